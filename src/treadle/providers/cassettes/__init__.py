"""Records HTTP exchanges with providers to files, and plays them back."""

from treadle.providers.cassettes.cassette_client import TapedClient
from treadle.providers.cassettes.file_format import Cassette, load_cassette
from treadle.providers.cassettes.playback import Player
from treadle.providers.cassettes.recorder import Recorder, Secrets

__all__ = ["Cassette", "Player", "Recorder", "Secrets", "TapedClient", "load_cassette"]
