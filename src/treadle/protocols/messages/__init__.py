"""The Anthropic Messages API: `client_*` modules face clients, `upstream_*` modules face providers."""

from treadle.protocols.messages.client_encoder import Encoder
from treadle.protocols.messages.client_request import read_request
from treadle.protocols.messages.upstream_decoder import Decoder
from treadle.protocols.messages.upstream_request import write_request

__all__ = ["Decoder", "Encoder", "read_request", "write_request"]
