"""Cassettes: upstream calls as the network carried them, recorded to files and played from them.

A request is found by its path and the canonical JSON of its body; secrets are taken out before anything is written.
"""

from treadle.providers.cassettes.cassette_client import TapedClient
from treadle.providers.cassettes.file_format import Cassette, load_cassette
from treadle.providers.cassettes.playback import Player
from treadle.providers.cassettes.recorder import Recorder, Secrets

__all__ = ["Cassette", "Player", "Recorder", "Secrets", "TapedClient", "load_cassette"]
