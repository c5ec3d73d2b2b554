"""Cassettes: upstream calls as the network carried them, recorded to files and played from them.

A request is found by its path and the canonical JSON of its body; secrets are taken out before anything is written.
"""

from treadle.upstream.cassette.client import TapedClient
from treadle.upstream.cassette.play import Player
from treadle.upstream.cassette.record import Recorder, Secrets
from treadle.upstream.cassette.tape import Cassette, load_cassette

__all__ = ["Cassette", "Player", "Recorder", "Secrets", "TapedClient", "load_cassette"]
