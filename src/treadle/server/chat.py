"""Chat Completions."""

from treadle.server import stream
from treadle.server.http import Exchange
from treadle.server.service import Service


async def create(service: Service, exchange: Exchange) -> None:
    """POST /v1/chat/completions."""
    await stream.answer(service, exchange, "chat")
