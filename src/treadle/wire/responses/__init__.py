"""The OpenAI Responses API towards clients: its requests read, its events and response object written.

No IO, no clock; nothing here knows an upstream or runs a tool.
"""

from treadle.wire.responses.encode import Encoder
from treadle.wire.responses.request import read_request

__all__ = ["Encoder", "read_request"]
