"""The Chat Completions API in both directions: towards clients and towards upstreams.

No IO, no clock; nothing here runs a tool or decides what a run does next.
"""

from treadle.protocols.chat.client_encoder import Choices, Encoder
from treadle.protocols.chat.client_request import read_request
from treadle.protocols.chat.upstream_decoder import Decoder
from treadle.protocols.chat.upstream_request import write_request

__all__ = ["Choices", "Decoder", "Encoder", "read_request", "write_request"]
