"""MCP's own reference servers and inspector against Treadle: over stdio and HTTP, on both sides."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients import node
from clients.cache import NotInstalled
from clients.model import answer
from clients.sandbox import Home
from clients.watched import Watched
from peers.visit import until, visit
from treadle.config import Mcp, ServerSection
from treadle.core.items import ImagePart
from treadle.tools.demo_tools import DEMO_TOOLS
from treadle.tools.mcp import ServerOptions

VERSION = "2026.8.31"
INSPECTOR_VERSION = "2.12.0"
WAIT_S = 30.0


def installed(package: str, version: str, command: str) -> Path:
    """Return the executable of a package, installing it once."""
    try:
        return (node.install_command(f"@modelcontextprotocol/{package}", version) / command).resolve()
    except NotInstalled as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def everything() -> Path:
    """Return the server that shows everything MCP can do."""
    return installed("server-everything", VERSION, "mcp-server-everything")


@pytest.fixture(scope="session")
def filesystem() -> Path:
    """Return the server that works on files."""
    return installed("server-filesystem", VERSION, "mcp-server-filesystem")


@pytest.fixture(scope="session")
def inspector() -> Path:
    """Return the inspector."""
    return installed("inspector", INSPECTOR_VERSION, "mcp-inspector")


@pytest.fixture
def everything_url(everything: Path) -> Iterator[str]:
    """Start that server over streamable HTTP, on a port that was free just now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [node.NODE, everything, "streamableHttp"]
    environment = {"PATH": os.environ["PATH"], "PORT": str(port)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


def is_listening(url: str) -> bool:
    """Tell whether somebody answers at an address."""
    port = int(url.rpartition(":")[2].partition("/")[0])
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def judge_everything(options: ServerOptions) -> None:
    """Use what the server shows: values, structured results, pictures, progress, links, a slow call cut off."""
    async with visit(options) as seen:
        assert seen.server.state == "up", seen.server.reason
        assert len(seen.names) >= 8
        assert (await seen.call("mcp__all__echo", message="hello")).text == "Echo: hello"
        assert "5" in (await seen.call("mcp__all__get-sum", a=2, b=3)).text
        shown = await seen.call("mcp__all__get-tiny-image")
        assert any(isinstance(part, ImagePart) for part in shown.parts)
        weather = await seen.call("mcp__all__get-structured-content", location="Chicago")
        assert weather.envelope is not None
        assert "temperature" in json.loads(bytes(weather.envelope.data))
        slow = await seen.call("mcp__all__trigger-long-running-operation", duration=1, steps=4)
        assert slow.rc == "ok"
        assert seen.heard
        wrong = await seen.call("mcp__all__get-sum", a="two")
        assert wrong.rc == "invalid_arguments"
        cut = asyncio.create_task(seen.call("mcp__all__trigger-long-running-operation", duration=600, steps=600))
        count = len(seen.heard)
        await until(lambda: len(seen.heard) > count)
        cut.cancel()
        await asyncio.wait({cut})
        assert (await seen.call("mcp__all__echo", message="still here")).text == "Echo: still here"


async def test_the_reference_server_is_used_over_stdio(everything: Path) -> None:
    """A server of the handshake era, as a child process."""
    command = (str(node.NODE), str(everything), "stdio")
    await judge_everything(ServerOptions(name="all", command=command, connect_s=WAIT_S, trusted=True))


async def test_the_reference_server_is_used_over_http(everything_url: str) -> None:
    """The same over streamable HTTP, with a session."""
    await until(lambda: is_listening(everything_url))
    await judge_everything(ServerOptions(name="all", url=everything_url, connect_s=WAIT_S, trusted=True))


async def test_the_file_server_reads_and_writes_and_its_hints_count(filesystem: Path, tmp_path: Path) -> None:
    """Its hints make effects; what it refuses is an error that a model can read."""
    (tmp_path / "note.txt").write_text("hello from a file")
    command = (str(node.NODE), str(filesystem), str(tmp_path))
    async with visit(ServerOptions(name="files", command=command, connect_s=WAIT_S, trusted=True)) as seen:
        effects = {tool.name.removeprefix("mcp__files__"): tool.policy.effect for tool in seen.registry.tools()}
        assert (effects["read_text_file"], effects["list_directory"]) == ("read", "read")
        assert effects["write_file"] in ("destructive", "write", "idempotent")
        read = await seen.call("mcp__files__read_text_file", path=str(tmp_path / "note.txt"))
        assert "hello from a file" in read.text
        outside = await seen.call("mcp__files__read_text_file", path="/etc/passwd")
        assert outside.rc == "failed"
        assert "denied" in outside.text.lower()


async def test_the_file_server_is_used_over_http_through_another_treadle(filesystem: Path, tmp_path: Path) -> None:
    """It speaks over pipes only; a Treadle in front of it serves it over streamable HTTP, under its own policy."""
    (tmp_path / "note.txt").write_text("hello from a file")
    files = Mcp(name="files", command=(str(node.NODE), str(filesystem), str(tmp_path)), connect_s=WAIT_S, trusted=True)

    def relay() -> Watched:
        return Watched(answer, tmp_path, mcp=(files,), server=ServerSection(mcp=True)).__enter__()

    served = await asyncio.to_thread(relay)
    try:
        far = ServerOptions(name="far", url=f"{served.origin}/mcp", connect_s=WAIT_S, trusted=True)
        async with visit(far) as seen:
            path = str(tmp_path / "note.txt")
            read = await seen.call("mcp__far__mcp__files__read_text_file", path=path)
            assert ("hello from a file" in read.text, read.sandbox) == (True, "remote")
            outside = await seen.call("mcp__far__mcp__files__read_text_file", path="/etc/passwd")
            assert outside.rc == "failed"
    finally:
        await asyncio.to_thread(served.__exit__, None, None, None)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Watched]:
    """Start a Treadle that serves MCP."""
    with Watched(answer, tmp_path, tools=DEMO_TOOLS, server=ServerSection(mcp=True)) as running:
        yield running


def inspect(inspector: Path, home: Home, *arguments: str) -> dict[str, object]:
    """Run the inspector's command line, and return what it printed."""
    ran = home.run(node.NODE, inspector, "--cli", *arguments)
    assert ran.code == 0, (ran.output, ran.errors)
    printed = json.loads(ran.output)
    assert isinstance(printed, dict)
    return printed


CALL = ("--method", "tools/call", "--tool-name", "get_weather", "--tool-arg", "city=Paris")


def test_the_inspector_lists_and_calls_over_http(inspector: Path, served: Watched, home: Home) -> None:
    """Treadle's tools as anybody's MCP client sees them."""
    target = (f"{served.origin}/mcp", "--transport", "http")
    listed = inspect(inspector, home, *target, "--method", "tools/list")
    assert {tool["name"] for tool in listed["tools"]} == {tool.name for tool in DEMO_TOOLS}  # type: ignore[index,union-attr]
    called = inspect(inspector, home, *target, *CALL)
    assert "temperature_c" in json.dumps(called)


def test_the_inspector_lists_and_calls_over_stdio(inspector: Path, home: Home) -> None:
    """`treadle mcp` as anybody's MCP client starts it."""
    target = (sys.executable, "-m", "treadle.cli.main", "mcp")
    listed = inspect(inspector, home, *target, "--method", "tools/list")
    assert {tool["name"] for tool in listed["tools"]} == {tool.name for tool in DEMO_TOOLS}  # type: ignore[index,union-attr]
    called = inspect(inspector, home, *target, *CALL)
    assert "temperature_c" in json.dumps(called)
