"""Waiting for what must not be left half done."""

import asyncio
from typing import Any


async def wait_out(work: "asyncio.Future[Any]") -> asyncio.CancelledError | None:
    """Wait for something that must not be left half done; return the cancellation that came meanwhile."""
    cancelled = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
