"""Waiting for what must not be left half done."""

import asyncio
from functools import partial
from typing import Any


async def wait_out(work: "asyncio.Future[Any]") -> asyncio.CancelledError | None:
    """Wait for something that must not be left half done; return the cancellation that came meanwhile."""
    cancelled = None
    while not work.done():
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work.add_done_callback(partial(_wake, waiter))
        try:
            await waiter
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


def _wake(waiter: "asyncio.Future[None]", _: "asyncio.Future[Any]") -> None:
    if not waiter.done():
        waiter.set_result(None)
