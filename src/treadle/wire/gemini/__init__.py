"""Gemini's generateContent API in both directions: towards clients and towards upstreams.

Both spellings of a field are read everywhere, camelCase is written. No IO, no clock; nothing here runs a tool or
decides what a run does next.
"""

from treadle.wire.gemini.decode import Decoder
from treadle.wire.gemini.encode import Candidates, Encoder
from treadle.wire.gemini.request import read_request
from treadle.wire.gemini.write import write_request

__all__ = ["Candidates", "Decoder", "Encoder", "read_request", "write_request"]
