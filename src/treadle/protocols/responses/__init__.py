"""The OpenAI Responses API towards clients: its requests read, its events and response object written.

No IO, no clock; nothing here knows an upstream or runs a tool.
"""

from treadle.protocols.responses.client_encoder import Encoder
from treadle.protocols.responses.client_request import read_request
from treadle.protocols.responses.upstream_decoder import Decoder
from treadle.protocols.responses.upstream_request import write_request

__all__ = ["Decoder", "Encoder", "read_request", "write_request"]
