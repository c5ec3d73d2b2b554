"""HTTP to a Treadle that comes and goes."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from treadle.core.errors import Conflict, Unauthorised
from treadle.core.events import RoundStarted, RunEnded, RunEvent
from treadle.terminal.conversation import remote_client as client
from treadle.terminal.conversation.remote_client import RemoteClient, Unreachable
from treadle.terminal.conversation.remote_host import RemoteHost

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
ENDED = f"id: 1\ndata: {msgspec.json.encode(RunEnded(status='completed')).decode()}\n\n"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(client, "PAUSE_S", 0.0)


@asynccontextmanager
async def served(answer: Answer) -> AsyncGenerator[str, None]:
    """Serve one function for every path and return the address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[RemoteClient, None]:
    """Open a client."""
    asked = RemoteClient(url)
    await asked.open()
    try:
        yield asked
    finally:
        await asked.close()


def broken(request: web.Request) -> None:
    """Cut the connection."""
    assert request.transport is not None
    request.transport.abort()


async def test_a_server_that_starts_again_is_waited_for() -> None:
    """What a proxy says meanwhile is no end of the stream."""
    statuses = [502, 503, 504]

    async def answer(request: web.Request) -> web.StreamResponse:
        if statuses:
            return web.Response(status=statuses.pop(0))
        return web.Response(text=ENDED, content_type="text/event-stream")

    async with served(answer) as url, connected(url) as asked:
        events = [event async for event in asked.events("run_1")]
    assert events == [RunEnded(status="completed")]


async def test_a_server_that_stays_away_is_said_to() -> None:
    """Tries are bounded."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=502)

    async with served(answer) as url, connected(url) as asked:
        with pytest.raises(Unreachable, match="status 502"):
            await asyncio.wait_for(anext(asked.events("run_1")), 20)


async def test_a_run_that_its_server_lost_is_followed_elsewhere() -> None:
    """An end without a number is not the run's; the next server goes on after the last number."""
    lost = RunEnded(status="failed")
    begun = RoundStarted(round=1, fingerprint="f")
    asked_after: list[str] = []
    answers = [f"id: 7\ndata: {_json(begun)}\n\ndata: {_json(lost)}\n\n", ENDED.replace("id: 1", "id: 9")]

    async def answer(request: web.Request) -> web.StreamResponse:
        asked_after.append(request.query["after"])
        return web.Response(text=answers.pop(0), content_type="text/event-stream")

    async with served(answer) as url, connected(url) as asked:
        events = [event async for event in asked.events("run_1")]
    assert events == [begun, RunEnded(status="completed")]
    assert asked_after == ["0", "7"]


def _json(event: RunEvent) -> str:
    return msgspec.json.encode(event).decode()


async def test_what_is_sent_again_is_sent_under_the_same_key() -> None:
    """So that a run whose answer was lost is not begun twice."""
    keys: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        keys.append(request.headers["idempotency-key"])
        if len(keys) < client.SENT_MAX:
            broken(request)
        return web.json_response({"id": "run_1"})

    async with served(answer) as url, connected(url) as asked:
        assert await asked.post_again("/x", {}, dict[str, Any], "k") == {"id": "run_1"}
    assert keys == ["k"] * client.SENT_MAX


async def test_a_refusal_is_not_sent_again() -> None:
    """It would be refused again."""
    count = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        return web.json_response({"error": {"code": "conflict", "message": "taken"}}, status=409)

    async with served(answer) as url, connected(url) as asked:
        with pytest.raises(Conflict, match="taken"):
            await asked.post_again("/x", {}, dict[str, Any], "k")
    assert count == 1


async def test_a_redirect_is_said_and_not_followed() -> None:
    """It could lead the key elsewhere; whoever asked is told the address."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=308, headers={"location": "https://other.example/"})

    async with served(answer) as url, connected(url) as asked:
        with pytest.raises(Unreachable, match=r"redirects to https://other\.example/"):
            await asked.get("/x", dict[str, Any])


@pytest.mark.parametrize(("method", "count"), [("get", 2), ("delete", 1)])
async def test_only_what_changes_nothing_is_asked_again(method: str, count: int) -> None:
    """A connection may be closed by the server just when it is used again."""
    asks = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal asks
        asks += 1
        if asks == 1:
            broken(request)
        return web.json_response({"a": 1})

    async with served(answer) as url, connected(url) as asked:
        if method == "get":
            assert await asked.get("/x", dict[str, Any], {"q": "a b", "none": None}) == {"a": 1}
        else:
            with pytest.raises(Unreachable, match="the connection was closed"):
                await asked.delete("/x")
    assert asks == count


async def test_a_query_is_spelled_for_an_address() -> None:
    """What has no value is left out."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.raw_path)
        return web.json_response({})

    async with served(answer) as url, connected(url) as asked:
        await asked.get("/x", dict[str, Any], {"q": "a&b é", "n": 1, "none": None, "empty": ""})
    assert seen == ["/x?q=a%26b+%C3%A9&n=1"]


@pytest.mark.parametrize(
    ("run", "cost"),
    [
        ({"status": "completed", "cost_usd": 0.5}, 0.5),
        ({"status": "completed", "cost_usd": None}, None),
        ({"status": "running", "cost_usd": None}, 0.25),
    ],
)
async def test_what_a_run_costs_is_asked_of_the_server(run: dict[str, object], cost: float | None) -> None:
    """Of one that goes on, what its rounds have cost so far."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"trace": {"cost_usd": 0.25}} if request.path.endswith("/trace") else run)

    async with served(answer) as url, RemoteHost(url) as host:
        assert await host.cost("run_1", "m", None) == cost


async def test_a_cost_that_can_not_be_asked_for_is_not_known() -> None:
    """That is no reason to fail a turn that has gone well."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"code": "forbidden", "message": "no"}}, status=403)

    async with served(answer) as url, RemoteHost(url) as host:
        assert await host.cost("run_1", "m", None) is None


async def test_a_person_is_shown_only_to_a_server_that_asks_for_one() -> None:
    """The credential goes with the second request; what is refused again is not sent a third time."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("authorization", ""))
        if request.path == "/free" or (request.path == "/decide" and seen[-1] == "Bearer tr_person_1"):
            return web.json_response({"done": True})
        return web.json_response({"error": {"code": "person_needed", "message": "no", "status": 401}}, status=401)

    async with served(answer) as url:
        asked = RemoteClient(url, person=lambda: "tr_person_1")
        await asked.open()
        assert await asked.post("/free", {}, dict[str, Any]) == {"done": True}
        assert await asked.post("/decide", {"approve": True}, dict[str, Any]) == {"done": True}
        with pytest.raises(Unauthorised):
            await asked.delete("/never")
        await asked.close()
    assert seen == ["", "", "Bearer tr_person_1", "", "Bearer tr_person_1"]
