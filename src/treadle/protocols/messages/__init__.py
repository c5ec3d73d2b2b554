"""The Anthropic Messages API in both directions: towards clients and towards upstreams.

No IO, no clock; nothing here runs a tool or decides what a run does next.
"""

from treadle.protocols.messages.client_encoder import Encoder
from treadle.protocols.messages.client_request import read_request
from treadle.protocols.messages.upstream_decoder import Decoder
from treadle.protocols.messages.upstream_request import write_request

__all__ = ["Decoder", "Encoder", "read_request", "write_request"]
