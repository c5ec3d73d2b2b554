"""The Anthropic Messages API in both directions: towards clients and towards upstreams.

No IO, no clock; nothing here runs a tool or decides what a run does next.
"""

from treadle.wire.messages.decode import Decoder
from treadle.wire.messages.encode import Encoder
from treadle.wire.messages.request import read_request
from treadle.wire.messages.write import write_request

__all__ = ["Decoder", "Encoder", "read_request", "write_request"]
