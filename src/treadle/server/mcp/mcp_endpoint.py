"""Serves the tools at `/mcp` over streamable HTTP, with sessions only for clients of older protocol versions."""

import asyncio
import logging
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from treadle.access.client_identity import Client
from treadle.core.errors import NotFound
from treadle.core.items import ResultItem
from treadle.http.asgi import Header
from treadle.protocols.field_reader import open_body
from treadle.server.http_exchange import Exchange
from treadle.server.mcp.served_tools import make_server
from treadle.server.run_response import read
from treadle.server.server_state import Service

SESSIONS_MAX = 256
OWNERS_MAX = 64 * SESSIONS_MAX
"""How many sessions' owners are stored: more than can be open, because sessions end without a notification."""

SESSION_HEADER = b"mcp-session-id"
SESSION_IDLE_S = 600.0
logging.getLogger("mcp").setLevel(logging.CRITICAL)
# The SDK logs every wrong request with a traceback; requests are counted and logged by Treadle itself.


class McpEndpoint:
    """Serves MCP clients. One task owns all sessions, so that closing it ends them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._server = make_server(service.runtime, self._call)
        self._manager = StreamableHTTPSessionManager(
            self._server,
            max_request_body_size=service.runtime.settings.server.body_bytes_max,
            # Each of several workers gets some of a client's requests, so none could hold its session.
            stateless=service.is_one_of_many,
            max_sessions=SESSIONS_MAX,
            session_idle_timeout=None if service.is_one_of_many else SESSION_IDLE_S,
        )
        self._owners: dict[bytes, str] = {}
        self._leaving = asyncio.Event()
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep(), name="treadle-mcp-endpoint")

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request; its body is checked here, because the SDK decodes any input.

        Raises: ProtocolError, NotFound.
        """
        await asyncio.shield(self._begun)
        body = await self._service.body(exchange)
        await read(body, open_body)
        key_id = exchange.client.key_id
        session = exchange.headers.get(SESSION_HEADER, b"")
        if session and self._owners.get(session, key_id) != key_id:
            # The SDK knows a session by its id alone; another key's is as if there were none.
            raise NotFound("Session not found.", code="session_not_found")

        def on_head(head: tuple[Header, ...]) -> None:
            self._own(next((value for name, value in head if name.lower() == SESSION_HEADER), b""), key_id)

        await exchange.delegate(self._manager.handle_request, body, on_head)

    def _own(self, session: bytes, key_id: str) -> None:
        """Store the session's owner."""
        if session and session not in self._owners:
            self._owners[session] = key_id
            while len(self._owners) > OWNERS_MAX:
                del self._owners[next(iter(self._owners))]

    async def close(self) -> None:
        """End all sessions."""
        self._server.changes.close()
        self._leaving.set()
        await asyncio.wait({self._task})

    async def _call(self, tool: str, arguments: dict[str, Any], report: Any, client: Client) -> ResultItem:
        await self._service.admit(client)
        return await self._service.runtime.call(tool, arguments, report, client)

    async def _keep(self) -> None:
        async with self._manager.run():
            self._begun.set_result(None)
            await self._leaving.wait()
