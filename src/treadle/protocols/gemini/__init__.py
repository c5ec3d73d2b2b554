"""Gemini's generateContent API in both directions: towards clients and towards upstreams.

Both spellings of a field are read everywhere, camelCase is written. No IO, no clock; nothing here runs a tool or
decides what a run does next.
"""

from treadle.protocols.gemini.client_encoder import Candidates, Encoder
from treadle.protocols.gemini.client_request import read_request
from treadle.protocols.gemini.upstream_decoder import Decoder
from treadle.protocols.gemini.upstream_request import write_request

__all__ = ["Candidates", "Decoder", "Encoder", "read_request", "write_request"]
