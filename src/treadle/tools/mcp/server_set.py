"""All MCP servers of a process: opened together, their tools in the registry, closed together."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from treadle.core.errors import ConfigError
from treadle.tools.function_tools import Tool
from treadle.tools.mcp.server_connection import Server
from treadle.tools.mcp.server_isolation import Hiding
from treadle.tools.mcp.server_options import ServerOptions
from treadle.tools.mcp.tool_pins import Pins
from treadle.tools.tool_registry import ToolRegistry

log = logging.getLogger("treadle.mcp")


class Servers:
    """The MCP servers of one process. `told` is called after each change of the registry."""

    def __init__(
        self,
        options: Sequence[ServerOptions],
        registry: ToolRegistry,
        *,
        environ: Mapping[str, str],
        pins: Pins,
        told: Callable[[], None],
        hiding: Hiding | None = None,
    ) -> None:
        self._hiding = hiding
        self._registry = registry
        self._on_change = told
        self.all = [Server(each, environ=environ, pins=pins, publish=self._publish, hiding=hiding) for each in options]

    async def open(self) -> None:
        """Connect to all concurrently, and wait until each has listed its tools or failed once."""
        for server in self.all:
            server.start()
        await asyncio.gather(*(server.tried() for server in self.all))

    async def close(self) -> None:
        """Close all concurrently."""
        await asyncio.gather(*(server.close() for server in self.all))
        if self._hiding is not None:
            self._hiding.close()

    def _publish(self, source: str, tools: list[Tool]) -> None:
        """Replace a server's tools in the registry; a tool whose name is taken is left out."""
        for declared in self._registry.held(source):
            self._registry.remove(declared.name)
        for tool in tools:
            try:
                self._registry.add(tool)
            except ConfigError as error:
                log.warning("MCP tool left out: %s", error.message)
        self._on_change()
