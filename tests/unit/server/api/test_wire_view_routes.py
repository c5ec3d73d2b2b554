"""GET /treadle/v1/runs/{id}/rounds/{round}: the bytes where they were recorded, else the same written again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.config import Settings, StoreSection, Upstream
from treadle.providers.fakes.fake_server import ScriptServer
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.runtime import Parts, Runtime
from treadle.server.app import App
from unit.server.api.conftest import PATH, get, get_price, post, ran, refused
from unit.server.conftest import OpenApp
from unit.server.held import HeldModel

KEY = "sk-not-to-be-seen-0123456789"
TURNS = (
    ScriptTurn(text="Let me see.", calls=(ReplyCall(name="get_price", args={"article": "A7"}),)),
    ScriptTurn(text="It costs 12.5 €."),
)


@asynccontextmanager
async def behind(
    folder: Path, *turns: ScriptTurn, protocol: Any = "chat", is_recorded: bool = False
) -> AsyncIterator[tuple[App, ScriptServer]]:
    """An application whose upstream is a real server on loopback."""
    async with ScriptServer(Script(turns=turns or TURNS), chunk_bytes=40) as server:
        upstream = Upstream(name="up", base_url=server.base_url(protocol), protocol=protocol, key_env="UP_KEY")
        settings = Settings(
            store=StoreSection(url=f"sqlite:///{folder}/t.db"),
            upstream=(upstream,),
            default_model="script",
            record=str(folder / "tapes") if is_recorded else "",
        )
        async with Runtime(settings, tools=[get_price], parts=Parts(env={"UP_KEY": KEY})) as runtime:
            yield App(runtime), server


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages", "gemini"])
async def test_a_request_is_written_again_as_it_was_sent(tmp_path: Path, protocol: str) -> None:
    """The very bytes that the upstream got, in its protocol, and nowhere its key."""
    async with behind(tmp_path, protocol=protocol) as (app, server):
        run_id = await ran(app, "What is A7?")
        visits = [await get(app, f"{PATH}/{run_id}/rounds/{number}") for number in (1, 2)]
    for visit, received in zip(visits, server.received, strict=True):
        view = visit.json()
        assert view["request"]["body"].encode() == received.body
        assert view["request"]["url"].partition("?")[0].endswith(received.path)
        assert (view["upstream"], view["protocol"], view["is_recorded"]) == ("up", protocol, False)
        assert view["reply"]["status"] == 200
        assert KEY.encode() not in visit.body
    assert "get_price" in visits[0].json()["reply"]["body"]
    assert "costs" in visits[1].json()["reply"]["body"]


async def test_a_recorded_call_is_shown_as_the_network_carried_it(tmp_path: Path) -> None:
    """In the pieces it came in, with the headers of the answer."""
    async with behind(tmp_path, is_recorded=True) as (app, _):
        run_id = await ran(app, "What is A7?")
        view = (await get(app, f"{PATH}/{run_id}/rounds/1")).json()
    assert view["is_recorded"]
    assert view["reply"]["chunks"] > 1
    assert view["reply"]["headers"]["content-type"].startswith("text/event-stream")
    assert "authorization" not in {name.lower() for name in view["request"]["headers"]}
    assert KEY not in msgspec.json.encode(view).decode()


async def test_a_plan_is_shown_with_what_it_adds_to_the_one_before(tmp_path: Path) -> None:
    """The first has nothing before it; the second adds the call and its result."""
    async with behind(tmp_path) as (app, _):
        run_id = await ran(app, "What is A7?")
        first, second = [(await get(app, f"{PATH}/{run_id}/rounds/{number}")).json() for number in (1, 2)]
    assert first["diff"] is None
    added = [line for line in second["diff"].splitlines() if line.startswith("+")]
    removed = [line for line in second["diff"].splitlines()[2:] if line.startswith("-")]
    assert any("12.5" in line for line in added)
    assert removed == []
    assert len(second["plan"]["items"]) == len(first["plan"]["items"]) + 3
    assert first["fingerprint"] != second["fingerprint"]


async def test_a_refusal_is_shown_as_the_reply_it_was(tmp_path: Path) -> None:
    """With its status and its words."""
    unwell = ScriptTurn(faults=Faults(status=400, message="not well", code="unwell"))
    async with behind(tmp_path, unwell) as (app, _):
        run_id = await ran(app, "What is A7?")
        reply = (await get(app, f"{PATH}/{run_id}/rounds/1")).json()["reply"]
    assert reply["status"] == 400
    assert "not well" in reply["body"]


async def test_a_model_of_this_process_is_said_to_speak_no_protocol(app: App) -> None:
    """What is shown then is labelled as what it would look like."""
    run_id = await ran(app)
    view = (await get(app, f"{PATH}/{run_id}/rounds/1")).json()
    assert (view["upstream"], view["is_recorded"]) == ("in-process", False)
    assert view["notes"] == [
        "The model is in this process and speaks no protocol; this is how Chat Completions would say it."
    ]


async def test_a_model_call_that_goes_on_has_a_request_and_no_reply(open_app: OpenApp) -> None:
    """What was sent is known already."""
    async with open_app(HeldModel()) as app:
        run_id = (await post(app, PATH, {"input": "Hello"})).json()["id"]
        view = (await get(app, f"{PATH}/{run_id}/rounds/1")).json()
        assert view["reply"] is None
        assert "Hello" in view["request"]["body"]


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        ("0", (400, "invalid_value", "round")),
        ("x", (400, "invalid_value", "round")),
        ("3", (404, "not_found", "round")),
    ],
)
async def test_a_round_that_is_not_there_is_refused(app: App, number: str, answer: tuple[int, str, str]) -> None:
    """By its field."""
    run_id = await ran(app)
    assert refused(await get(app, f"{PATH}/{run_id}/rounds/{number}")) == answer
