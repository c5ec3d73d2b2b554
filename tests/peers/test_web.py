"""MCP servers over HTTP that misbehave: sessions forgotten, redirects, endless answers, locked doors."""

import asyncio
import contextlib
import json
import urllib.request
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from aiohttp import web as http

from gateway.gateway import Gateway
from peers.visit import until, visit
from treadle.config import Mcp
from treadle.core.items import ResultItem
from treadle.core.plan import Plan
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall
from treadle.tools.mcp import ServerOptions
from treadle.tools.mcp import http_transport as web

NAME = "mcp__web__act"
TOOLS = {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]}


class Peer:
    """A server of the handshake era, written by hand; `mode` says what it does to a call."""

    def __init__(self, mode: str = "ok") -> None:
        self.mode = mode
        self.url = ""
        self.sessions = 0
        self.calls = 0
        self.asked: list[str] = []
        self.keys: set[str | None] = set()

    async def answer(self, request: http.Request) -> http.StreamResponse:
        """Answer one request."""
        self.asked.append(request.path)
        self.keys.add(request.headers.get("authorization"))
        if self.mode == "locked":
            elsewhere = f'Bearer resource_metadata="{self.url}/metadata"'
            return http.Response(status=401, headers={"www-authenticate": elsewhere})
        if self.mode == "moved":
            return http.Response(status=307, headers={"location": "http://127.0.0.1:9/mcp"})
        if request.method != "POST":
            return http.Response(status=405 if request.method == "GET" else 200)
        message = await request.json()
        if "id" not in message:
            return http.Response(status=202)
        return await self._reply(request, message)

    async def _reply(self, request: http.Request, message: dict[str, object]) -> http.StreamResponse:
        headers: dict[str, str] = {}
        match message["method"]:
            case "initialize":
                self.sessions += 1
                headers["mcp-session-id"] = f"s{self.sessions}"
                info = {"name": "peer", "version": "0"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                result = TOOLS
            case "tools/call":
                self.calls += 1
                if self.mode == "forgetful" and request.headers.get("mcp-session-id") == "s1":
                    return http.Response(status=404)
                if self.mode == "endless":
                    return await self._pour(request)
                if self.mode == "silent":
                    await asyncio.Event().wait()
                result = {"content": [{"type": "text", "text": "done"}]}
            case _:
                body = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such method"}}
                return http.json_response(body)
        return http.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)

    async def _pour(self, request: http.Request) -> http.StreamResponse:
        response = http.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b" " * 65_536)
        return response


@contextlib.asynccontextmanager
async def running(peer: Peer) -> AsyncGenerator[str, None]:
    """Serve the peer on loopback."""
    application = http.Application()
    application.router.add_route("*", "/{path:.*}", peer.answer)
    runner = http.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = http.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    peer.url = f"http://127.0.0.1:{port}"
    try:
        yield f"{peer.url}/mcp"
    finally:
        await runner.cleanup()


async def test_a_forgotten_session_is_repaired_and_the_call_not_replayed() -> None:
    """The call that met the lost session fails once; the next one has a new session."""
    peer = Peer("forgetful")
    async with running(peer) as url, visit(ServerOptions(name="web", url=url)) as seen:
        assert (await seen.call("mcp__web__act")).rc == "failed"
        assert peer.calls == 1
        await until(lambda: peer.sessions == 2)
        assert (await seen.call("mcp__web__act")).text == "done"
        assert peer.calls == 2


async def test_a_redirect_elsewhere_is_not_followed() -> None:
    """Headers with secrets go to the configured origin only."""
    peer = Peer("moved")
    options = ServerOptions(name="web", url="", headers={"authorization": "Bearer secret"})
    async with running(peer) as url:
        async with visit(ServerOptions(name="web", url=url, headers=options.headers)) as seen:
            assert seen.server.state == "down"
            assert "redirect" in seen.server.reason.lower()
        assert peer.keys == {"Bearer secret"}


async def test_a_locked_door_is_said_and_nothing_else_is_asked() -> None:
    """What a server names as the place to get a token is never fetched."""
    peer = Peer("locked")
    async with running(peer) as url, visit(ServerOptions(name="web", url=url)) as seen:
        assert seen.server.state == "down"
        assert "401" in seen.server.reason or "unauthorized" in seen.server.reason.lower()
        assert set(peer.asked) == {"/mcp"}


async def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has a bound, and the call an error."""
    monkeypatch.setattr(web, "ANSWER_BYTES_MAX", 1_000_000)
    async with running(Peer("endless")) as url, visit(ServerOptions(name="web", url=url)) as seen:
        outcome = await seen.call("mcp__web__act")
        assert outcome.rc == "failed"


async def test_a_call_that_is_never_answered_times_out_over_http() -> None:
    """The tool's own time ends it."""
    async with running(Peer("silent")) as url, visit(ServerOptions(name="web", url=url, timeout_s=0.3)) as seen:
        outcome = await seen.call("mcp__web__act")
        assert json.loads(outcome.text)["error"]["code"] == "timeout"


async def test_the_token_of_a_client_is_not_passed_on(tmp_path: Path) -> None:
    """What a client shows to Treadle is for Treadle: a server gets its own key from the configuration, or none."""
    peer = Peer()

    def reply(plan: Plan) -> Reply:
        return Reply(text="done") if isinstance(plan.items[-1], ResultItem) else Reply(calls=(ReplyCall(name=NAME),))

    def ask(url: str) -> str:
        with Gateway(reply, tmp_path, mcp=(Mcp(name="web", url=url),)) as gateway:
            body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "act"}]}).encode()
            headers = {"content-type": "application/json", "authorization": "Bearer for-treadle"}
            request = urllib.request.Request(f"{gateway.url}/chat/completions", body, headers)
            with urllib.request.urlopen(request, timeout=30) as response:
                return str(json.load(response)["choices"][0]["message"]["content"])

    async with running(peer) as url:
        assert await asyncio.to_thread(ask, url) == "done"
    assert (peer.calls, peer.keys) == (1, {None})
