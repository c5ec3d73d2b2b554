"""Asking in a session over HTTP: turns, branches, files, models, and what is refused."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from treadle.config import Upstream
from treadle.providers.fakes.scripted_model import ScriptTurn
from treadle.server.app import App
from unit.server.conftest import OpenApp, scripted
from unit.server.held import HeldModel
from unit.server.visit import JSON_TYPE, LOCAL, Visit


async def ask(app: App, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Make a request with JSON and return the answer."""
    data = b"" if body is None else msgspec.json.encode(body)
    visit = await Visit(app, method, f"/treadle/v1{path}", headers=[LOCAL, JSON_TYPE], body=data).run()
    return visit.status, visit.json() if visit.body else None


async def new_session(app: App, name: str = "talk") -> str:
    """Make a session and return its id."""
    status, row = await ask(app, "POST", "/sessions", {"name": name})
    assert status == 201
    return row["id"]


async def say(app: App, session: str, **body: Any) -> dict[str, Any]:
    """Ask in a session, wait for the end, and return the turn."""
    status, turn = await ask(app, "POST", f"/sessions/{session}/turns", body)
    assert status == 201, turn
    row = await app.service.runtime.store.find_run(turn["run_id"])
    assert row is not None
    handle = app.service.runtime.runs.attach(row)
    async with asyncio.timeout(5.0):
        await handle.wait()
        # A run is live until it is tidied up, and its session has moved on by then.
        while (live := app.service.runtime.runs.find_live(turn["run_id"])) is not None:
            await live.wait()
    return turn


async def turns_of(app: App, session: str, query: str = "") -> list[dict[str, Any]]:
    """Return the turns of a session."""
    status, talk = await ask(app, "GET", f"/sessions/{session}/turns{query}")
    assert status == 200, talk
    return talk["turns"]


def _texts(turns: list[dict[str, Any]]) -> list[str]:
    return [part["text"] for turn in turns for part in turn["parts"] if part["kind"] == "text"]


@pytest.fixture
async def talking(open_app: OpenApp) -> AsyncIterator[App]:
    """An application whose model counts its answers."""
    model = scripted(*(ScriptTurn(text=f"answer {n}") for n in range(1, 9)))
    async with open_app(model) as app:
        yield app


async def test_turns_follow_each_other(talking: App) -> None:
    """Each goes on from the one before; the snapshot has question, parts, status and the number of events."""
    session = await new_session(talking)
    first = await say(talking, session, input="one")
    await say(talking, session, input="two")
    turns = await turns_of(talking, session)
    assert [turn["question"]["text"] for turn in turns] == ["one", "two"]
    assert _texts(turns) == ["answer 1", "answer 2"]
    assert [turn["status"] for turn in turns] == ["completed"] * 2
    assert (turns[0]["run_id"], turns[1]["previous_id"]) == (first["run_id"], first["run_id"])
    events = await talking.service.runtime.runs.replay(first["run_id"])
    assert turns[0]["n"] == len(events)


async def test_asking_again_makes_a_branch(talking: App) -> None:
    """From the place of the first question, with its words or with others; the branches know each other."""
    session = await new_session(talking)
    first = await say(talking, session, input="one")
    second = await say(talking, session, input="two")
    other = await say(talking, session, again=second["run_id"], input="two, better")
    turns = await turns_of(talking, session)
    assert _texts(turns) == ["answer 1", "answer 3"]
    assert turns[1]["siblings"] == [second["run_id"], other["run_id"]]
    anew = await say(talking, session, again=first["run_id"])
    turns = await turns_of(talking, session)
    assert ([turn["question"]["text"] for turn in turns], _texts(turns)) == (["one"], ["answer 4"])
    assert turns[0]["siblings"] == [first["run_id"], anew["run_id"]]
    assert turns[0]["previous_id"] is None


async def test_a_branch_is_gone_back_to_at_its_leaf(talking: App) -> None:
    """Naming any run of it shows it to its newest end, and what is asked then goes on there."""
    session = await new_session(talking)
    first = await say(talking, session, input="one")
    await say(talking, session, input="two")
    await say(talking, session, again=first["run_id"], input="other")
    assert (await ask(talking, "POST", f"/sessions/{session}/branch", {"run": first["run_id"]}))[0] == 200
    assert _texts(await turns_of(talking, session)) == ["answer 1", "answer 2"]
    await say(talking, session, input="three")
    assert _texts(await turns_of(talking, session)) == ["answer 1", "answer 2", "answer 4"]


async def test_long_chats_come_in_pages(talking: App) -> None:
    """The newest first; `before` leads back."""
    session = await new_session(talking)
    for n in range(4):
        await say(talking, session, input=str(n))
    status, talk = await ask(talking, "GET", f"/sessions/{session}/turns?limit=3")
    assert (status, talk["has_more"], _texts(talk["turns"])) == (200, True, ["answer 2", "answer 3", "answer 4"])
    before = talk["turns"][0]["run_id"]
    status, talk = await ask(talking, "GET", f"/sessions/{session}/turns?limit=3&before={before}")
    assert (status, talk["has_more"], _texts(talk["turns"])) == (200, False, ["answer 1"])
    status, refused = await ask(talking, "GET", f"/sessions/{session}/turns?before=run_x")
    assert (status, refused["error"]["param"]) == (404, "before")


async def test_a_turn_that_failed_is_shown_and_left(open_app: OpenApp) -> None:
    """It stands beside the next try, since nothing was said in it to go on from."""
    fault = msgspec.convert({"faults": {"status": 400, "message": "no"}}, ScriptTurn)
    async with open_app(scripted(fault, ScriptTurn(text="yes"))) as app:
        session = await new_session(app)
        failed = await say(app, session, input="one")
        (turn,) = await turns_of(app, session)
        assert (turn["status"], "no" in turn["note"]) == ("failed", True)
        await say(app, session, again=failed["run_id"])
        (turn,) = await turns_of(app, session)
        assert (turn["status"], turn["siblings"][0], len(turn["siblings"])) == ("completed", failed["run_id"], 2)


async def test_a_session_is_not_moved_while_it_is_answered(open_app: OpenApp) -> None:
    """Neither another question nor another branch, until the run has ended; the run is in the snapshot meanwhile."""
    model = HeldModel()
    async with open_app(model) as app:
        session = await new_session(app)
        status, turn = await ask(app, "POST", f"/sessions/{session}/turns", {"input": "one"})
        assert (status, turn["status"]) == (201, "running")
        assert [each["run_id"] for each in await turns_of(app, session)] == [turn["run_id"]]
        for path, body in (("turns", {"input": "two"}), ("branch", {"run": turn["run_id"]})):
            status, refused = await ask(app, "POST", f"/sessions/{session}/{path}", body)
            assert (status, refused["error"]["code"]) == (409, "session_busy")
        await app.service.runtime.runs.cancel(turn["run_id"])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": "  "}, "input"),
        ({"input": 7}, "input"),
        ({"inputs": "x"}, "inputs"),
        ({"again": "run_none"}, "again"),
        ({"input": "x", "files": [{"name": "a", "media_type": "image/png", "data": "AA=="}]}, "files[0]"),
        ({"input": "x", "files": [{"name": "a", "media_type": "text/plain", "data": "é"}]}, "files[0].data"),
    ],
)
async def test_a_bad_question_is_refused_by_field(app: App, body: dict[str, Any], param: str) -> None:
    """And nothing is started."""
    session = await new_session(app)
    status, refused = await ask(app, "POST", f"/sessions/{session}/turns", body)
    assert status in (400, 404)
    assert refused["error"]["param"] == param
    assert await turns_of(app, session) == []


async def test_unknown_places_are_refused(talking: App) -> None:
    """A session that is not there, a run of another session, a mode that does not exist."""
    session, other = await new_session(talking), await new_session(talking, "other")
    turn = await say(talking, other, input="one")
    assert (await ask(talking, "GET", "/sessions/sess_x/turns"))[0] == 404
    assert (await ask(talking, "POST", f"/sessions/{session}/branch", {"run": turn["run_id"]}))[0] == 404
    assert (await ask(talking, "POST", f"/sessions/{session}/turns", {"again": turn["run_id"]}))[0] == 404
    status, refused = await ask(talking, "GET", f"/sessions/{session}/turns?mode=html")
    assert (status, refused["error"]["param"]) == (400, "mode")


async def test_models_say_what_they_take(open_app: OpenApp, app: App) -> None:
    """The demo model reads text; an upstream takes what its configuration says."""
    assert await ask(app, "GET", "/models") == (
        200,
        {"default": "demo", "models": [{"id": "demo", "upstream": "demo", "takes": []}]},
    )
    upstream = Upstream(name="up", base_url="http://127.0.0.1:9/v1", models=("m",), takes=("image",))
    async with open_app(upstream=(upstream,)) as other:
        _, shown = await ask(other, "GET", "/models")
        assert shown["models"] == [{"id": "m", "upstream": "up", "takes": ["image"]}]


async def test_a_taken_name_gets_a_number(app: App) -> None:
    """Where that is wished; else it is a conflict as before."""
    bodies = [{"name": "x", "numbered": True}] * 3
    names = [(await ask(app, "POST", "/sessions", body))[1]["name"] for body in bodies]
    assert names == ["x", "x (2)", "x (3)"]
    assert (await ask(app, "POST", "/sessions", {"name": "x"}))[0] == 409
