"""The console itself: one page for every address below /console, which it reads by itself."""

from treadle.server.http import Exchange
from treadle.server.pages import send_page
from treadle.server.service import Service


async def show(service: Service, exchange: Exchange) -> None:
    """GET /console and all below it."""
    await send_page(exchange, "console/index.html")
