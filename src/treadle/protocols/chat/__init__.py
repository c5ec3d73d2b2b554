"""The Chat Completions API: `client_*` modules face clients, `upstream_*` modules face providers."""

from treadle.protocols.chat.client_encoder import Choices, Encoder
from treadle.protocols.chat.client_request import read_request
from treadle.protocols.chat.upstream_decoder import Decoder
from treadle.protocols.chat.upstream_request import write_request

__all__ = ["Choices", "Decoder", "Encoder", "read_request", "write_request"]
