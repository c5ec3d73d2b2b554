"""Chat Completions."""

from treadle.protocols import chat
from treadle.server import n_choices as choices
from treadle.server import run_response as stream
from treadle.server.auth.route_permissions import CHAT_API
from treadle.server.http_exchange import Exchange
from treadle.server.route import ANY, KEY, TEXT, RouteGroup, listed, request, streams
from treadle.server.server_state import Service


async def create(service: Service, exchange: Exchange) -> None:
    """Answer a chat completion. Raises: TreadleError."""
    request = await service.read(exchange, chat.read_request)
    carry = stream.reply if request.surface.choices == 1 else choices.reply
    await carry(service, exchange, request)


_BODY = request("model", "messages", model=TEXT, messages=listed({}), stream={}, tools={})
_ROWS = RouteGroup("Chat Completions", CHAT_API)
ROUTES = (
    _ROWS.post(
        "/v1/chat/completions", create, "Answer as Chat Completions does", streams(ANY), headers=(KEY,), body=_BODY
    ),
)
