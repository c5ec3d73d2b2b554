"""Gemini's generateContent API in both directions: towards clients and towards upstreams."""

from treadle.wire.gemini.decode import Decoder
from treadle.wire.gemini.encode import Candidates, Encoder
from treadle.wire.gemini.request import read_request
from treadle.wire.gemini.write import write_request

__all__ = ["Candidates", "Decoder", "Encoder", "read_request", "write_request"]
