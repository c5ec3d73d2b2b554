"""Cassettes: upstream calls as the network carried them, recorded to files and played from them."""

from treadle.upstream.cassette.client import TapedClient
from treadle.upstream.cassette.play import Player
from treadle.upstream.cassette.record import Recorder, Secrets
from treadle.upstream.cassette.tape import Cassette, load_cassette

__all__ = ["Cassette", "Player", "Recorder", "Secrets", "TapedClient", "load_cassette"]
