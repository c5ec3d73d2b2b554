"""Notifies MCP clients that the tools changed: subscribers, and clients of older protocol versions that listed them."""

import asyncio
import contextlib
from typing import Any

from mcp.server import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from treadle.tools.tool_registry import ToolRegistry

CLIENTS_MAX = 256
SEND_S = 5.0
"""How long sending to one client may take; a client that does not read is skipped."""


class ToolChangeNotices:
    """Watches a registry. Many changes at once send one notice."""

    def __init__(self, registry: ToolRegistry) -> None:
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus, max_subscriptions=CLIENTS_MAX)
        self._sessions: dict[int, ServerSession] = {}
        self._sending: asyncio.Task[None] | None = None
        self._registry = registry
        self._known = registry.tools()
        self._unwatch = registry.watch(self._changed)

    def remember_client(self, context: ServerRequestContext[Any, Any]) -> None:
        """Remember a client that listed the tools; clients of the stateless versions subscribe themselves."""
        session = context.session
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        # Every request has its own session object; the client parameters are the same object in all of them.
        self._sessions.pop(id(session.client_params), None)
        self._sessions[id(session.client_params)] = session
        while len(self._sessions) > CLIENTS_MAX:
            del self._sessions[next(iter(self._sessions))]

    def close(self) -> None:
        """Stop watching."""
        self._unwatch()
        if self._sending is not None:
            self._sending.cancel()

    def _changed(self) -> None:
        if self._sending is None or self._sending.done():
            with contextlib.suppress(RuntimeError):
                # Without a running loop there is no client either.
                self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        """Notify all clients, unless the tools are the same as before."""
        before, self._known = self._known, self._registry.tools()
        if self._known == before:
            return
        await self._bus.publish(ToolsListChanged())
        for session in list(self._sessions.values()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SEND_S):
                    await session.send_tool_list_changed()
