"""The console itself: one page for every address below /console, which it reads by itself."""

from treadle.server.http_exchange import Exchange
from treadle.server.server_state import Service
from treadle.server.static_pages import send_page


async def show(service: Service, exchange: Exchange) -> None:
    """GET /console and all below it."""
    await send_page(exchange, "console/index.html")
