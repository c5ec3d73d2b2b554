"""Treadle's own tools for MCP clients: at /mcp and over stdio, in both eras of the protocol, each call a run."""

import asyncio
import http.client
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

from gateway.gateway import Gateway
from peers.visit import until, visit
from treadle import ToolContext, image, tool
from treadle.config import ServerSection
from treadle.config.settings import ApprovalsSection
from treadle.core.items import ImagePart
from treadle.journal.journal_interface import RunRow
from treadle.providers.fakes.scripted_reply import Reply
from treadle.runs.approvals.decisions import Answer
from treadle.tools.mcp import ServerOptions

ERAS = {"auto": "2026-07-28", "legacy": "2025-11-25"}


@tool(effect="read")
def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@tool(effect="read")
def picture() -> ImagePart:
    """Show a picture."""
    return image(b"\x89PNG")


@tool(effect="destructive")
def wipe() -> str:
    """Wipe everything."""
    raise AssertionError("nobody approved this")


@tool
async def wait(context: ToolContext) -> str:
    """Wait without end."""
    context.progress("waiting")
    await asyncio.Event().wait()
    return "never"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Gateway]:
    """Start a Treadle that serves MCP."""
    tools = (add, picture, wipe, wait)
    with Gateway(lambda _: Reply(text="unused"), tmp_path, tools=tools, server=ServerSection(mcp=True)) as running:
        yield running


def stored(served: Gateway) -> list[RunRow]:
    """Return the runs that are stored."""
    return list(served.ask(served.runtime.store.list_runs()))


@pytest.mark.parametrize(("mode", "version"), ERAS.items())
async def test_clients_of_both_eras_list_and_call(served: Gateway, mode: str, version: str) -> None:
    """Names, hints, schemas, structured results, pictures and errors; each call is a run in the journal."""
    async with Client(f"{served.origin}/mcp", mode=mode) as client:
        assert client.protocol_version == version
        listed = {each.name: each for each in (await client.list_tools()).tools}
        assert set(listed) == {"add", "picture", "wipe", "wait"}
        hints = [(each.annotations.read_only_hint, each.annotations.destructive_hint) for each in _hinted(listed)]
        assert hints == [(True, False), (True, False), (False, False), (False, True)]
        added = await client.call_tool("add", {"a": 1, "b": 2})
        assert (added.structured_content, added.is_error) == ({"sum": 3}, False)
        shown = await client.call_tool("picture")
        assert shown.content == [types.ImageContent(data="iVBORw==", mime_type="image/png")]
        wrong = await client.call_tool("add", {"a": "x"})
        assert wrong.is_error
        assert "/b" in _text(wrong)
        with pytest.raises(MCPError, match="There is no tool 'ad'"):
            await client.call_tool("ad", {})
    assert [(row.model, row.status) for row in stored(served)] == [("treadle:call", "completed")] * 3
    proofs = [served.ask(served.runtime.runs.verify_replay(row)) for row in stored(served)]
    assert all(proof.is_same for proof in proofs)


@pytest.mark.parametrize("mode", ERAS)
async def test_what_needs_approval_waits_for_a_person(served: Gateway, mode: str) -> None:
    """The client is told that it waits; what is denied does not run, and the client reads why."""
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with Client(f"{served.origin}/mcp", mode=mode) as client, asyncio.timeout(20):
        calling = asyncio.create_task(client.call_tool("wipe", progress_callback=hear))
        await until(lambda: bool(heard))
        [waiting] = served.ask(served.runtime.approvals.page(status="pending"))
        assert heard == [f"waiting for a person's approval ({waiting.id})"]
        assert waiting.expires_at - waiting.created_at == served.runtime.settings.approvals.wait_s
        served.ask(served.runtime.approvals.decide(waiting.id, Answer(approve=False, reason="not today")))
        refused = await calling
    assert refused.is_error
    assert "a person denied this call: not today" in _text(refused)


async def test_what_needs_approval_is_refused_where_nobody_is_asked(tmp_path: Path) -> None:
    """The client reads why, at once; the tool does not run."""
    sections = {"server": ServerSection(mcp=True), "approvals": ApprovalsSection(enabled=False)}
    with Gateway(lambda _: Reply(text="-"), tmp_path, tools=(wipe,), **sections) as served:
        async with Client(f"{served.origin}/mcp") as client, asyncio.timeout(20):
            refused = await client.call_tool("wipe")
    assert refused.is_error
    assert "nobody to ask" in _text(refused)


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_reaches_the_client_and_its_cancel_reaches_the_tool(served: Gateway, mode: str) -> None:
    """Whoever no longer waits ends the run."""
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with Client(f"{served.origin}/mcp", mode=mode) as client:
        calling = asyncio.create_task(client.call_tool("wait", progress_callback=hear))
        await until(lambda: heard == ["waiting"])
        calling.cancel()
        await asyncio.wait({calling})
        await until(lambda: [row.status for row in stored(served)] == ["cancelled"])


async def test_treadle_uses_the_tools_of_another_treadle(served: Gateway) -> None:
    """Its client and its server understand each other over HTTP, hints included."""
    other = ServerOptions(name="other", url=f"{served.origin}/mcp", trusted=True)
    async with visit(other) as seen:
        assert (await seen.call("mcp__other__add", a=2, b=2)).text == '{"sum":4}'
        shown = await seen.call("mcp__other__picture")
        assert shown.parts == (ImagePart(url="data:image/png;base64,iVBORw=="),)
        effects = {each.name: each.policy.effect for each in seen.registry.tools()}
        assert effects["mcp__other__wipe"] == "destructive"
        assert effects["mcp__other__add"] == "read"


async def test_a_server_over_http_that_goes_away_is_an_error_at_once(tmp_path: Path) -> None:
    """Its tools stay, and say that it is not there."""
    with Gateway(lambda _: Reply(text="-"), tmp_path, tools=(add,), server=ServerSection(mcp=True)) as served:
        other = ServerOptions(name="other", url=f"{served.origin}/mcp")
        connection = visit(other)
        seen = await connection.__aenter__()
        assert (await seen.call("mcp__other__add", a=2, b=2)).rc == "ok"
    try:
        first = await seen.call("mcp__other__add", a=2, b=2)
        assert first.rc == "failed"
        second = await seen.call("mcp__other__add", a=2, b=2)
        assert json.loads(second.text)["error"]["code"] in ("mcp_unavailable", "mcp_interrupted")
    finally:
        await connection.__aexit__(None, None, None)


def test_mcp_is_off_unless_configured(tmp_path: Path) -> None:
    """No endpoint runs a single tool by default, under whatever name."""
    with Gateway(lambda _: Reply(text="unused"), tmp_path, tools=(add,)) as gateway:
        assert _post(gateway, "/mcp", {})[0] == 404
        body = {"model": "treadle:call", "messages": [{"role": "user", "content": '{"tool":"add","arguments":{}}'}]}
        assert _post(gateway, "/v1/chat/completions", body)[0] == 404


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/treadle/v1/runs"])
def test_no_name_of_a_model_runs_a_tool(served: Gateway, path: str) -> None:
    """Where MCP is served too: what a key may do by MCP it cannot do by another API."""
    said = '{"tool":"add","arguments":{"a":1,"b":2}}'
    bodies = {"/treadle/v1/runs": {"model": "treadle:call", "input": said}}
    chat = {"model": "treadle:call", "messages": [{"role": "user", "content": said}]}
    assert _post(served, path, bodies.get(path, chat))[0] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"host": "evil.example"}, 403), ({"origin": "https://evil.example"}, 403), ({"content-type": "text/plain"}, 415)],
)
def test_pages_from_elsewhere_cannot_reach_mcp(served: Gateway, headers: dict[str, str], status: int) -> None:
    """Host, Origin and Content-Type are checked as everywhere."""
    assert _post(served, "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers)[0] == status


def test_a_guessed_session_is_not_found(served: Gateway) -> None:
    """Sessions are named by random ids, and only those that exist are answered."""
    headers = {"mcp-session-id": "1", "mcp-protocol-version": "2025-11-25"}
    assert _post(served, "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers)[0] == 404


@pytest.mark.parametrize(("mode", "version"), ERAS.items())
async def test_treadle_mcp_serves_over_stdio(tmp_path: Path, mode: str, version: str) -> None:
    """What an MCP client starts: the tools of a file, one run for each call; what a tool prints breaks nothing."""
    tools = tmp_path / "tools.py"
    tools.write_text(
        "from treadle import tool\n\n@tool(effect='read')\ndef shout(text: str) -> str:\n"
        "    '''Shout.'''\n    print('noise')\n    return text.upper()\n"
    )
    flags = ["mcp", "--tools", str(tools), "--store", f"sqlite:///{tmp_path / 'runs.db'}"]
    command = StdioServerParameters(command=sys.executable, args=["-m", "treadle.cli.main", *flags], cwd=tmp_path)
    async with Client(command, mode=mode) as client:
        assert client.protocol_version == version
        assert [each.name for each in (await client.list_tools()).tools] == ["shout"]
        assert _text(await client.call_tool("shout", {"text": "hey"})) == "HEY"


def _hinted(listed: dict[str, types.Tool]) -> list[types.Tool]:
    return [listed[name] for name in sorted(listed)]


def _text(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


def _post(gateway: Gateway, path: str, body: object, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    address = urlsplit(gateway.origin)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    accepted = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    try:
        connection.request("POST", path, json.dumps(body), accepted | (headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
