"""Treadle's side of a visit to MCP servers: a registry, a runner, and the servers between them."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from treadle.core.items import CallItem
from treadle.core.json import write_json
from treadle.core.tool_definitions import CallContext, Outcome
from treadle.runtime import SystemClock
from treadle.tools import ToolRegistry, ToolRunner
from treadle.tools.mcp import Pins, ServerOptions
from treadle.tools.mcp.server_connection import Server
from treadle.tools.mcp.server_isolation import Hiding
from treadle.tools.mcp.server_set import Servers

HERE = Path(__file__).parent
WAIT_S = 20.0


class Visit:
    """What a test looks at."""

    def __init__(self, servers: Servers, registry: ToolRegistry, runner: ToolRunner, heard: list[str]) -> None:
        self.servers = servers
        self.registry = registry
        self.runner = runner
        self.heard = heard

    @property
    def server(self) -> Server:
        """Return the only server."""
        (server,) = self.servers.all
        return server

    @property
    def names(self) -> list[str]:
        """Return the names of all tools."""
        return [tool.name for tool in self.registry.tools()]

    async def call(self, name: str, **arguments: Any) -> Outcome:
        """Call a tool of the server as a model would."""
        call = CallItem(call_id="call_1", name=name, arguments=write_json(arguments).decode())
        return await self.runner.run(call, CallContext(run_id="run_1", call_id="call_1"))


@contextlib.asynccontextmanager
async def visit(
    *options: ServerOptions,
    registry: ToolRegistry | None = None,
    pins: Pins | None = None,
    hiding: Hiding | None = None,
) -> AsyncGenerator[Visit, None]:
    """Connect to servers, and close them afterwards."""
    held = registry or ToolRegistry()
    heard: list[str] = []
    servers = Servers(options, held, environ=os.environ, pins=pins or Pins(), told=lambda: None, hiding=hiding)
    runner = ToolRunner(held, clock=SystemClock(), report=lambda _, text: heard.append(text))
    await servers.open()
    try:
        yield Visit(servers, held, runner, heard)
    finally:
        await servers.close()
        runner.close()


def toy(**more: Any) -> ServerOptions:
    """Return how the well-behaved server is reached."""
    return ServerOptions(**{"name": "toy", "command": (sys.executable, str(HERE / "toy.py")), **more})


def hostile(mode: str, file: object = "", **more: Any) -> ServerOptions:
    """Return how the bad one is reached."""
    command = (sys.executable, str(HERE / "hostile.py"), mode, str(file))
    return ServerOptions(**{"name": "bad", "command": command, **more})


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something holds.

    Raises: AssertionError, after a while.
    """
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came to hold"
        await asyncio.sleep(0.01)
