"""MCP over streamable HTTP: the SDK's transport on an HTTP client with bounded response bodies."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from treadle.tools.mcp.server_options import ServerOptions

ANSWER_BYTES_MAX = 16_777_216
SILENCE_S = 300.0
"""How long a stream may be silent; the timeout of one call is in the tool's policy."""


class TooLong(httpx2.TransportError):
    """A response that is not an event stream exceeds the size limit."""


class Web:
    """One connection to a remote server, as an SDK transport; records the status of the last refused request."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._status = 0
        self.reason = ""

    @property
    def last_words(self) -> str:
        """Return a description of the last refused request, or ""."""
        hint = " (it wants a key: key_env or headers_env)" if self._status in (401, 403) else ""
        return f"HTTP {self._status}{hint}" if self._status else ""

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncGenerator[Any, None]:
        """Open the transport; redirects to another origin are not followed, so that headers go nowhere else."""
        timeout = httpx2.Timeout(self._options.connect_s, read=SILENCE_S)
        headers, url = self._options.headers, self._options.url
        transport = _BoundedTransport(httpx2.AsyncHTTPTransport(retries=0), self._record_status)
        # The environment could name a proxy, or a .netrc with credentials of another service.
        async with (
            httpx2.AsyncClient(headers=headers, timeout=timeout, transport=transport, trust_env=False) as client,
            streamable_http_client(url, http_client=client, max_sse_event_size=ANSWER_BYTES_MAX) as streams,
        ):
            yield streams

    def _record_status(self, status: int) -> None:
        self._status = status if status >= 400 else 0


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Limits the size of response bodies; event streams have a limit for each event instead."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, record_status: Callable[[int], None]) -> None:
        self._inner = inner
        self._record_status = record_status

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and limit the size of the response body."""
        response = await self._inner.handle_async_request(request)
        self._record_status(response.status_code)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream), "an async transport answers with async streams"
            response.stream = _BoundedStream(response.stream)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > ANSWER_BYTES_MAX:
                raise TooLong(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
