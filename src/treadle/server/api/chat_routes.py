"""Chat Completions."""

from treadle.protocols import chat
from treadle.server import n_choices as choices
from treadle.server import run_response as stream
from treadle.server.http_exchange import Exchange
from treadle.server.server_state import Service


async def create(service: Service, exchange: Exchange) -> None:
    """POST /v1/chat/completions.

    Raises: TreadleError.
    """
    request = await service.read(exchange, chat.read_request)
    carry = stream.reply if request.surface.choices == 1 else choices.reply
    await carry(service, exchange, request)
