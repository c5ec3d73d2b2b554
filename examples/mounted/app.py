"""An application of your own with Treadle mounted below it: one process, one port, tools that are its own functions.

python app.py            then ask http://127.0.0.1:8730/ai/v1 with any client
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from treadle import Runtime, tool
from treadle.server.app import App

ORDERS = {"17": "packed", "18": "on its way"}


@tool(effect="read")
def order_status(order: str) -> str:
    """Say where an order is.

    Args:
        order: The order's number.
    """
    return ORDERS.get(order, "unknown")


async def show_order(request: Request) -> JSONResponse:
    """Answer what the application answered before there was a model."""
    return JSONResponse({"status": ORDERS.get(request.path_params["order"], "unknown")})


runtime = Runtime(tools=[order_status])
treadle = App(runtime)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
    """Open Treadle with the application, and let runs end before it goes."""
    async with runtime:
        yield
        await treadle.service.drain()


app = Starlette(routes=[Route("/orders/{order}", show_order), Mount("/ai", treadle)], lifespan=lifespan)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8730")), log_level="warning", ws="none")
