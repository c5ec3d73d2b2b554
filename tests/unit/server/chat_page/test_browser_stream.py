"""The one event stream of a browser: runs from any place, lists by cursor, and an end when the server leaves."""

from typing import Any

import msgspec
import pytest

from treadle.config import ServerSection
from treadle.providers.fakes.scripted_model import ScriptTurn
from treadle.server.app import App
from treadle.server.chat_page.browser_stream import RUNS_MAX, read_watched
from unit.server.chat_page.test_chat_page_routes import ask, new_session, say
from unit.server.conftest import OpenApp, scripted
from unit.server.held import HeldModel
from unit.server.visit import Visit

QUESTION = "What is the weather in Paris?"


def _frames(visit: Visit, event: str) -> list[Any]:
    found: list[Any] = []
    for frame in visit.body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.split("\n") if ": " in line)
        if fields.get("event") == event:
            found.append(msgspec.json.decode(fields["data"]))
    return found


def _cursor(visit: Visit) -> str:
    lines = [line for line in visit.body.decode().split("\n") if line.startswith("id: ")]
    return lines[-1].removeprefix("id: ")


async def _leave(visit: Visit) -> None:
    visit.leave()
    await visit.done()


async def test_a_run_is_told_from_its_beginning_or_from_any_place(app: App) -> None:
    """Whoever comes later names how many events they have, and hears exactly the rest."""
    session = await new_session(app)
    turn = await say(app, session, input=QUESTION)
    whole = Visit(app, "GET", f"/treadle/v1/live?runs={turn['run_id']}:0").begin()
    await whole.until(b'"op":"turn"')
    frames = _frames(whole, "ops")
    assert (frames[0]["from"], frames[0]["run"]) == (0, turn["run_id"])
    last = frames[-1]
    ended = last["ops"][-1]
    assert (ended["op"], ended["status"], ended["usage"]["input_tokens"] > 0) == ("turn", "completed", True)
    part = Visit(app, "GET", f"/treadle/v1/live?runs={turn['run_id']}:{last['n'] - 2}").begin()
    await part.until(b'"op":"turn"')
    (frame,) = _frames(part, "ops")
    assert (frame["from"], frame["n"], frame["ops"]) == (last["n"] - 2, last["n"], last["ops"][-2:])
    await _leave(whole)
    await _leave(part)


async def test_the_thin_mode_is_told_lines(app: App) -> None:
    """No card leaves the server."""
    turn = await say(app, await new_session(app), input=QUESTION)
    visit = Visit(app, "GET", f"/treadle/v1/live?mode=text&runs={turn['run_id']}:0").begin()
    await visit.until(b'"op":"turn"')
    assert b'"kind":"tool"' not in visit.body
    assert b"Called get_weather." in visit.body
    await _leave(visit)


async def test_changes_follow_a_hello_and_go_on_by_cursor(app: App) -> None:
    """A first visit is told to read the lists; one that comes back hears what it missed instead."""
    first = Visit(app, "GET", "/treadle/v1/live").begin()
    await first.until(b"event: hello")
    session = await new_session(app, "one")
    await first.until(b"event: session")
    assert [row["id"] for row in _frames(first, "session")] == [session]
    cursor = _cursor(first)
    await _leave(first)
    await say(app, session, input=QUESTION)
    second = Visit(app, "GET", f"/treadle/v1/live?after={cursor}").begin()
    await second.until(b"event: run")
    assert b"event: hello" not in second.body
    assert _frames(second, "run")[0]["question"] == QUESTION
    await _leave(second)
    stranger = Visit(app, "GET", "/treadle/v1/live?after=other.3").begin()
    await stranger.until(b"event: hello")
    await _leave(stranger)


async def test_a_silent_stream_is_kept_alive(open_app: OpenApp) -> None:
    """So that nobody between cuts it."""
    async with open_app(server=ServerSection(keep_alive_s=0.02)) as app:
        visit = Visit(app, "GET", "/treadle/v1/live").begin()
        await visit.until(b"event: kept_alive")
        await _leave(visit)


async def test_a_reader_that_leaves_stops_nothing(open_app: OpenApp) -> None:
    """The run goes on; only an explicit stop ends it, and every reader is told."""
    async with open_app(HeldModel()) as app:
        session = await new_session(app)
        _, turn = await ask(app, "POST", f"/sessions/{session}/turns", {"input": "one"})
        path = f"/treadle/v1/live?runs={turn['run_id']}:0"
        first = Visit(app, "GET", path).begin()
        await first.until(b"event: ops")
        await _leave(first)
        second = Visit(app, "GET", path).begin()
        await second.until(b"event: ops")
        assert (await ask(app, "GET", f"/runs/{turn['run_id']}"))[1]["status"] == "running"
        await ask(app, "POST", f"/runs/{turn['run_id']}/cancel")
        await second.until(b'"status":"cancelled"')
        await _leave(second)


async def test_a_server_that_leaves_ends_its_streams(open_app: OpenApp) -> None:
    """After the runs had their end, in good order, so that the page connects to the next one."""
    async with open_app(scripted(ScriptTurn(text="x"))) as app:
        visit = Visit(app, "GET", "/treadle/v1/live").begin()
        await visit.until(b"event: hello")
        await app.service.drain(0.0)
        await visit.done()
        assert visit.is_complete


@pytest.mark.parametrize(
    ("runs", "found"),
    [("", []), ("run_a:0", [("run_a", 0)]), ("run_a:1,run_b:22,", [("run_a", 1), ("run_b", 22)])],
)
def test_watched_runs_are_read(runs: str, found: list[tuple[str, int]]) -> None:
    """Ids with numbers, commas between."""
    assert read_watched(runs) == found


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("runs=run_a", 400),
        ("runs=:3", 400),
        ("runs=run_a:-1", 400),
        ("runs=run_a:1e3", 400),
        (f"runs={','.join(['r:1'] * (RUNS_MAX + 1))}", 400),
        ("runs=run_none:0", 404),
        ("mode=x", 400),
    ],
)
async def test_a_bad_wish_is_refused_before_the_stream(app: App, query: str, status: int) -> None:
    """With the field's name, as any other request."""
    visit = await Visit(app, "GET", f"/treadle/v1/live?{query}").run()
    assert visit.status == status
    assert visit.json()["error"]["param"] in ("runs", "mode")
