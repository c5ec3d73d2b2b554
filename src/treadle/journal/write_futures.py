"""Futures of writes that are done, or refused, before they can be awaited."""

import asyncio
from typing import Any, TypeVar

T = TypeVar("T")


def done(value: T) -> "asyncio.Future[T]":
    """Return a future that has its value."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


def failed(error: Exception) -> "asyncio.Future[Any]":
    """Return a future that raises this."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
