"""Records HTTP exchanges with providers to files, and plays them back."""

from treadle.providers.cassettes.cassette_client import CassetteClient
from treadle.providers.cassettes.file_format import Cassette, load_cassette
from treadle.providers.cassettes.playback import Player
from treadle.providers.cassettes.recorder import Recorder, Secrets

__all__ = ["Cassette", "CassetteClient", "Player", "Recorder", "Secrets", "load_cassette"]
