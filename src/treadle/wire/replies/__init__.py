"""The OpenAI Responses API towards upstreams: plans written as its requests, its streams read into model events.

No IO, no clock; nothing here runs a tool or decides what a run does next.
"""

from treadle.wire.replies.decode import Decoder
from treadle.wire.replies.write import write_request

__all__ = ["Decoder", "write_request"]
