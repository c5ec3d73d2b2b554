"""Completes MCP results that lack `resultType`, which the protocol of 2026-07-28 says to read as complete.

The SDK requires the field and refuses such results, so it is added between the transport and the SDK.
"""

import contextlib
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self

from mcp.client import Transport
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

Incoming = SessionMessage | Exception
_FIELD, _COMPLETE = "resultType", "complete"


@contextlib.asynccontextmanager
async def with_result_types(
    transport: Transport,
) -> AsyncGenerator[tuple[ReadStream[Incoming], WriteStream[SessionMessage]], None]:
    """Open a transport whose results all have a type."""
    async with transport as (reader, writer):
        yield Completed(reader), writer


class Completed:
    """A stream of messages that adds the type "complete" to results without one."""

    def __init__(self, stream: ReadStream[Incoming]) -> None:
        self._stream = stream

    @property
    def last_context(self) -> object:
        """Return the SDK's context of the last message."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Incoming:
        """Return the next message."""
        return _completed(await self._stream.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> "Completed":
        """Return what yields the messages."""
        return self

    async def __anext__(self) -> Incoming:
        """Return the next message, until there is none."""
        return _completed(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        """Enter the stream."""
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        """Leave the stream."""
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)


def _completed(item: Incoming) -> Incoming:
    message = item.message if isinstance(item, SessionMessage) else None
    if isinstance(message, JSONRPCResponse) and message.result.get(_FIELD) is None:
        message.result[_FIELD] = _COMPLETE
    return item
