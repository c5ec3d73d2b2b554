"""Treadle's own MCP server says when its tools change, to clients of both eras and over both transports."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from gateway.gateway import Gateway
from peers.visit import HERE, until, visit
from treadle import Tool, tool
from treadle.config import ServerSection
from treadle.providers.fakes.scripted_reply import Reply
from treadle.tools.mcp import ServerOptions


@tool(effect="read")
def first() -> str:
    """Be there from the start."""
    return "first"


@tool(effect="read")
def second() -> str:
    """Come later."""
    return "second"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Gateway]:
    """Start a Treadle that serves MCP."""
    with Gateway(lambda _: Reply(text="-"), tmp_path, tools=(first,), server=ServerSection(mcp=True)) as running:
        yield running


def swap(served: Gateway, out: list[str], into: list[Tool]) -> None:
    """Change the tools as a reload does."""

    async def change() -> None:
        served.runtime.registry.swap(out, into)

    served.ask(change())


async def test_a_client_of_the_handshake_era_is_told_once_for_a_change(served: Gateway) -> None:
    """It was promised at the handshake; a swap of several tools is one notice, and none comes before a change."""
    heard: list[str] = []

    async def hear(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            heard.append("changed")

    async with Client(f"{served.origin}/mcp", mode="legacy", message_handler=hear) as client:
        tools = client.server_capabilities.tools
        assert tools is not None
        assert tools.list_changed is True
        assert [each.name for each in (await client.list_tools()).tools] == ["first"]
        assert heard == []
        swap(served, ["first"], [second, first])
        await until(lambda: bool(heard))
        assert [each.name for each in (await client.list_tools()).tools] == ["first", "second"]
        assert heard == ["changed"]


async def test_a_client_of_the_stateless_era_listens_for_changes(served: Gateway) -> None:
    """It asks to be told, and is."""
    async with Client(f"{served.origin}/mcp") as client, asyncio.timeout(20):
        async with client.listen(tools_list_changed=True) as changes:
            swap(served, [], [second])
            async for _ in changes:
                break
        assert [each.name for each in (await client.list_tools()).tools] == ["first", "second"]


async def test_another_treadle_follows_the_changes(served: Gateway) -> None:
    """What is added here is added there once it was accepted; what is taken away here is gone there."""
    async with visit(ServerOptions(name="other", url=f"{served.origin}/mcp")) as seen:
        assert seen.names == ["mcp__other__first"]
        swap(served, [], [second])
        await until(lambda: "second" in seen.server.left_out)
        (waiting,) = seen.server.review()
        assert seen.server.decide("second", waiting.digest, is_accepted=True)
        await until(lambda: seen.names == ["mcp__other__first", "mcp__other__second"])
        swap(served, ["first"], [])
        await until(lambda: seen.names == ["mcp__other__second"])


async def test_over_stdio_a_change_behind_treadle_reaches_its_client(tmp_path: Path) -> None:
    """A server of `[[mcp]]` changes its list while it is called: whoever started `treadle mcp` hears of it."""
    command_line = json.dumps([sys.executable, str(HERE / "hostile.py"), "grows", str(tmp_path / "grown")])
    (tmp_path / "treadle.toml").write_text(f'[[mcp]]\nname = "x"\ncommand = {command_line}\n', encoding="utf-8")
    heard: list[object] = []

    async def hear(message: object) -> None:
        heard.append(message)

    flags = ["mcp", "--config", "treadle.toml", "--store", f"sqlite:///{tmp_path / 'runs.db'}"]
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "treadle.cli.main", *flags], cwd=tmp_path, env=dict(os.environ)
    )
    async with Client(command, mode="legacy", message_handler=hear) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["mcp__x__act"]
        await client.call_tool("mcp__x__act", {})
        accept = [sys.executable, "-m", "treadle.cli.main", "mcp", "accept", "x", *flags[1:]]
        await until(lambda: b"grown" in subprocess.run(accept, cwd=tmp_path, capture_output=True).stdout)
        await until(lambda: any(isinstance(each, types.ToolListChangedNotification) for each in heard))
        assert [each.name for each in (await client.list_tools()).tools] == ["mcp__x__act", "mcp__x__grown"]


async def test_a_reload_that_changes_nothing_is_not_news(served: Gateway) -> None:
    """Clients are not made to list again what they have."""
    heard: list[object] = []

    async def hear(message: object) -> None:
        heard.append(message)

    async with Client(f"{served.origin}/mcp", mode="legacy", message_handler=hear) as client:
        await client.list_tools()
        swap(served, ["first"], [first])
        swap(served, [], [second])
        await until(lambda: bool(heard))
        assert [type(each) for each in heard] == [types.ToolListChangedNotification]
