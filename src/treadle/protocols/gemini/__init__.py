"""Gemini's generateContent API: `client_*` modules face clients, `upstream_*` modules face providers."""

from treadle.protocols.gemini.client_encoder import Candidates, Encoder
from treadle.protocols.gemini.client_request import read_posted, read_request
from treadle.protocols.gemini.upstream_decoder import Decoder
from treadle.protocols.gemini.upstream_request import write_request

__all__ = ["Candidates", "Decoder", "Encoder", "read_posted", "read_request", "write_request"]
