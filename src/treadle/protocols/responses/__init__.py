"""The OpenAI Responses API: `client_*` modules face clients, `upstream_*` modules face providers."""

from treadle.protocols.responses.client_encoder import Encoder
from treadle.protocols.responses.client_request import read_request
from treadle.protocols.responses.upstream_decoder import Decoder
from treadle.protocols.responses.upstream_request import write_request

__all__ = ["Decoder", "Encoder", "read_request", "write_request"]
