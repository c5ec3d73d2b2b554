"""The Chat Completions API in both directions: towards clients and towards upstreams."""

from treadle.wire.chat.decode import Decoder
from treadle.wire.chat.encode import Encoder
from treadle.wire.chat.request import read_request
from treadle.wire.chat.write import write_request

__all__ = ["Decoder", "Encoder", "read_request", "write_request"]
