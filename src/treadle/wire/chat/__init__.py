"""The Chat Completions API in both directions: towards clients and towards upstreams.

No IO, no clock; nothing here runs a tool or decides what a run does next.
"""

from treadle.wire.chat.decode import Decoder
from treadle.wire.chat.encode import Choices, Encoder
from treadle.wire.chat.request import read_request
from treadle.wire.chat.write import write_request

__all__ = ["Choices", "Decoder", "Encoder", "read_request", "write_request"]
