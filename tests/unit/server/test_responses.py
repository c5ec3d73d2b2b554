"""The Responses API over HTTP."""

import asyncio
from typing import Any

import msgspec
import pytest

from treadle.core.items import text_message
from treadle.protocols.compaction import ASK, INTRODUCTION, unseal
from treadle.providers.fakes.scripted_model import ScriptTurn, Sees
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.server.app import App
from unit.server.conftest import OpenApp, scripted
from unit.server.held import HeldModel
from unit.server.visit import BOUND_S, JSON_TYPE, LOCAL, Visit

PATH = "/v1/responses"


def _ask(app: App, *headers: tuple[str, str], **fields: Any) -> Visit:
    body = {"model": "demo", "input": "What is the weather in Paris?", **fields}
    return Visit(app, "POST", PATH, headers=[LOCAL, JSON_TYPE, *headers], body=msgspec.json.encode(body))


def _events(visit: Visit) -> list[Any]:
    frames = [frame for frame in visit.body.decode().split("\n\n") if frame]
    return [msgspec.json.decode(frame.partition("\ndata: ")[2]) for frame in frames if "\ndata: " in frame]


async def test_a_server_tool_is_shown_as_an_mcp_call(app: App) -> None:
    """The call and its result are items that every SDK can read."""
    visit = await _ask(app).run()
    answer = visit.json()
    assert (visit.status, answer["status"]) == (200, "completed")
    assert [item["type"] for item in answer["output"]] == ["mcp_call", "message"]
    assert answer["output"][0]["name"] == "get_weather"


async def test_a_stream_has_one_terminal_event_and_no_done_marker(app: App) -> None:
    """The last event carries what the answer without streaming is."""
    visit = await _ask(app, stream=True).run()
    events = _events(visit)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    terminal = {"response.completed", "response.incomplete", "response.failed"}
    assert [event["type"] for event in events if event["type"] in terminal] == ["response.completed"]
    assert events[-1]["type"] == "response.completed"
    assert b"[DONE]" not in visit.body


async def test_extended_events_come_when_asked_for(app: App) -> None:
    """The header adds them beside the official ones, for this request only."""
    plain, extended = await _ask(app, stream=True).run(), _ask(app, ("x-treadle-events", "extended"), stream=True)
    await extended.run()
    assert "response.done" not in {event["type"] for event in _events(plain)}
    assert "response.done" in {event["type"] for event in _events(extended) if isinstance(event, dict)}


async def test_a_stored_response_is_read_again_as_it_was(app: App) -> None:
    """Told from the journal, it is equal to the one that was sent."""
    first = (await _ask(app).run()).json()
    visit = await Visit(app, "GET", f"{PATH}/{first['id']}").run()
    assert (visit.status, visit.json()) == (200, first)


async def test_a_deleted_response_is_gone(app: App) -> None:
    """Deleting says what was deleted; asking again says that there is nothing."""
    first = (await _ask(app).run()).json()
    deleted = await Visit(app, "DELETE", f"{PATH}/{first['id']}").run()
    assert deleted.json() == {"id": first["id"], "object": "response", "deleted": True}
    for method in ("GET", "DELETE"):
        visit = await Visit(app, method, f"{PATH}/{first['id']}").run()
        assert (visit.status, visit.json()["error"]["code"]) == (404, "not_found")


async def test_what_was_not_to_be_stored_cannot_be_read(app: App) -> None:
    """store: false leaves nothing to retrieve or to continue."""
    first = (await _ask(app, store=False).run()).json()
    assert (await Visit(app, "GET", f"{PATH}/{first['id']}").run()).status == 404


async def test_other_runs_are_not_responses(app: App) -> None:
    """A completion or a run id is no response id, even though the journal knows it."""
    body = b'{"model":"demo","messages":[{"role":"user","content":"hi"}]}'
    chat = await Visit(app, "POST", "/v1/chat/completions", headers=[LOCAL, JSON_TYPE], body=body).run()
    own = await _ask(app).run()
    for unknown in (chat.json()["id"], chat.headers["x-treadle-run"], own.headers["x-treadle-run"], "resp_none"):
        assert (await Visit(app, "GET", f"{PATH}/{unknown}").run()).status == 404


async def test_a_stored_response_is_streamed_again_byte_for_byte(app: App) -> None:
    """From the beginning, or after any number: the frames are those that were sent first."""
    first = await _ask(app, stream=True).run()
    response_id = _events(first)[0]["response"]["id"]
    again = await Visit(app, "GET", f"{PATH}/{response_id}?stream=true").run()
    assert (again.status, again.body) == (200, first.body)
    frames = [frame + b"\n\n" for frame in first.body.split(b"\n\n") if frame]
    for number in range(len(frames)):
        path = f"{PATH}/{response_id}?stream=true&starting_after={number}&include[]=x&include_obfuscation=false"
        rest = await Visit(app, "GET", path).run()
        assert rest.body == b"".join(frames[number + 1 :])


@pytest.mark.parametrize("number", ["999", str(2**53)])
async def test_a_stream_that_starts_behind_its_end_just_ends(app: App, number: str) -> None:
    """There is nothing more to say; an error would make clients ask for ever."""
    first = (await _ask(app).run()).json()
    visit = await Visit(app, "GET", f"{PATH}/{first['id']}?stream=true&starting_after={number}").run()
    assert (visit.status, visit.body, visit.is_complete) == (200, b"", True)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("stream=true&starting_after=x", "starting_after"),
        ("stream=true&starting_after=-1", "starting_after"),
        ("stream=true&starting_after=1.5", "starting_after"),
        ("stream=true&starting_after=", "starting_after"),
        ("starting_after=1", "starting_after"),
        ("stream=perhaps", "stream"),
    ],
)
async def test_a_place_that_is_none_is_refused_by_name(app: App, query: str, param: str) -> None:
    """The field is named."""
    first = (await _ask(app).run()).json()
    visit = await Visit(app, "GET", f"{PATH}/{first['id']}?{query}").run()
    assert (visit.status, visit.json()["error"]["param"]) == (400, param)


async def test_instructions_are_not_carried_to_the_next_response(open_app: OpenApp) -> None:
    """previous_response_id brings the items along and nothing else."""
    model = scripted(ScriptTurn(text="Arr."), ScriptTurn(text="Yes."))
    async with open_app(model) as app:
        first = (await _ask(app, input="Hi", instructions="Talk like a pirate.").run()).json()
        second = (await _ask(app, input="And now?", previous_response_id=first["id"]).run()).json()
    assert second["instructions"] is None
    assert "pirate" in str(model.player.plans[0].items)
    assert "pirate" not in str(model.player.plans[1].items)


async def test_the_input_of_a_continued_response_is_all_that_the_model_read(open_app: OpenApp) -> None:
    """What came before is listed too, newest first."""
    async with open_app(scripted(ScriptTurn(text="Blue."), ScriptTurn(text="Still blue."))) as app:
        first = (await _ask(app, input=_items("a")).run()).json()
        second = (await _ask(app, input=_items("b"), previous_response_id=first["id"]).run()).json()
        page = (await Visit(app, "GET", f"{PATH}/{second['id']}/input_items").run()).json()
    assert [item["id"] for item in page["data"]] == ["msg_b", first["output"][0]["id"], "msg_a"]


async def test_a_response_continues_another(open_app: OpenApp) -> None:
    """The model sees the earlier turn, and the new response says what it continues."""
    first_turn = ScriptTurn(text="Blue.")
    second_turn = ScriptTurn(text="As I said, blue.", sees=Sees(contains="again"))
    model = scripted(first_turn, second_turn)
    async with open_app(model) as app:
        first = (await _ask(app, input="What colour?").run()).json()
        second = (await _ask(app, input="Say it again", previous_response_id=first["id"]).run()).json()
    assert second["previous_response_id"] == first["id"]
    assert len(model.player.plans[1].items) == 3


async def test_an_unknown_previous_response_is_an_error(app: App) -> None:
    """The field is named, so that a client can start afresh."""
    visit = await _ask(app, previous_response_id="resp_none").run()
    assert (visit.status, visit.json()["error"]["param"]) == (404, "previous_response_id")


def _items(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "message", "id": f"msg_{text}", "role": "user", "content": text} for text in texts]


async def test_the_input_of_a_response_is_listed_in_pages(app: App) -> None:
    """Newest first unless asked otherwise; `after` goes on behind an item, has_more says whether that helps."""
    first = (await _ask(app, input=_items("a", "b", "c")).run()).json()
    path = f"{PATH}/{first['id']}/input_items"

    async def page(query: str) -> tuple[list[str], str | None, str | None, bool]:
        got = (await Visit(app, "GET", path + query).run()).json()
        assert got["object"] == "list"
        return [item["id"] for item in got["data"]], got["first_id"], got["last_id"], got["has_more"]

    assert await page("") == (["msg_c", "msg_b", "msg_a"], "msg_c", "msg_a", False)
    assert await page("?order=asc&limit=2") == (["msg_a", "msg_b"], "msg_a", "msg_b", True)
    assert await page("?order=asc&limit=2&after=msg_b") == (["msg_c"], "msg_c", "msg_c", False)
    assert await page("?after=msg_a") == ([], None, None, False)


async def test_an_input_item_is_whole(app: App) -> None:
    """What was given without an id has one now."""
    first = (await _ask(app, input="hi").run()).json()
    (item,) = (await Visit(app, "GET", f"{PATH}/{first['id']}/input_items").run()).json()["data"]
    content = [{"type": "input_text", "text": "hi"}]
    assert item == {"type": "message", "id": item["id"], "role": "user", "status": "completed", "content": content}
    assert item["id"].startswith("msg_")


@pytest.mark.parametrize(
    ("query", "status", "param"),
    [
        ("?limit=0", 400, "limit"),
        ("?limit=101", 400, "limit"),
        ("?limit=x", 400, "limit"),
        ("?order=up", 400, "order"),
        ("?after=msg_none", 404, "after"),
    ],
)
async def test_a_wrong_page_names_the_field(app: App, query: str, status: int, param: str) -> None:
    """And so does a cursor that is not there."""
    first = (await _ask(app).run()).json()
    visit = await Visit(app, "GET", f"{PATH}/{first['id']}/input_items{query}").run()
    assert (visit.status, visit.json()["error"]["param"]) == (status, param)


async def test_only_a_background_response_can_be_cancelled(app: App) -> None:
    """The official refusal; an unknown one is not found."""
    first = (await _ask(app).run()).json()
    visit = await Visit(app, "POST", f"{PATH}/{first['id']}/cancel").run()
    assert (visit.status, visit.json()["error"]["type"]) == (400, "invalid_request_error")
    assert visit.json()["error"]["message"].startswith("Cannot cancel a synchronous response.")
    assert (await Visit(app, "POST", f"{PATH}/resp_none/cancel").run()).status == 404


async def test_a_background_response_is_cancelled(open_app: OpenApp) -> None:
    """The upstream's stream is closed and the answer says how it ended; a second cancel says the same."""
    model = HeldModel()
    async with open_app(model) as app:
        visit = _ask(app, background=True, stream=True).begin()
        await visit.until(b"Hello")
        response_id = _events(visit)[0]["response"]["id"]
        cancelled = await Visit(app, "POST", f"{PATH}/{response_id}/cancel").run()
        assert (cancelled.status, cancelled.json()["status"]) == (200, "cancelled")
        async with asyncio.timeout(BOUND_S):
            await model.closed.wait()
        await visit.done()
        again = await Visit(app, "POST", f"{PATH}/{response_id}/cancel").run()
    assert (again.status, again.json()["status"]) == (200, "cancelled")


SUMMARY = ScriptTurn(text="They want a boat.", sees=Sees(contains=ASK))


async def test_a_trigger_gives_exactly_one_compaction_item(open_app: OpenApp) -> None:
    """Streamed, added and done and in the final output; the model was asked for it and offered no server tool."""
    model = scripted(SUMMARY)
    async with open_app(model) as app:
        trigger = {"type": "compaction_trigger"}
        visit = await _ask(app, stream=True, store=False, input=[*_items("a boat"), trigger]).run()
    events = _events(visit)
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    (item,) = events[-1]["response"]["output"]
    assert events[-2]["item"] == events[-3]["item"] == item
    assert (item["type"], unseal(item["encrypted_content"])) == ("compaction", "They want a boat.")
    assert [tool.name for tool in model.player.plans[0].tools] == []


async def test_a_compacted_conversation_goes_on(open_app: OpenApp) -> None:
    """The item that was handed out is read by the model as the summary it stands for."""
    goes_on = ScriptTurn(text="Which colour?", sees=Sees(contains="Go on"))
    model = scripted(SUMMARY, goes_on)
    async with open_app(model) as app:
        window = (await Visit(app, "POST", f"{PATH}/compact", headers=[LOCAL, JSON_TYPE], body=_compact()).run()).json()
        await _ask(app, input=[*window["output"], *_items("Go on")]).run()
    assert model.player.plans[1].items[0] == _restored(window["output"][0])


def _restored(item: dict[str, Any]) -> Any:
    return text_message("user", f"{INTRODUCTION}They want a boat.", item["id"])


def _compact(**fields: Any) -> bytes:
    return msgspec.json.encode({"model": "demo", "input": "I want a boat.", **fields})


async def test_compact_answers_with_a_window(open_app: OpenApp) -> None:
    """Never a stream, never stored: it is sent again whole, and its id leads nowhere."""
    model = scripted(SUMMARY)
    async with open_app(model) as app:
        visit = Visit(app, "POST", f"{PATH}/compact", headers=[LOCAL, JSON_TYPE], body=_compact(stream=True))
        await visit.run()
        window = visit.json()
        kept = await Visit(app, "GET", f"{PATH}/{window['id']}").run()
    assert (visit.status, visit.headers["content-type"], kept.status) == (200, "application/json", 404)
    assert sorted(window) == ["created_at", "id", "object", "output", "usage"]
    assert (window["object"], [item["type"] for item in window["output"]]) == ("response.compaction", ["compaction"])


@pytest.mark.parametrize(
    ("turns", "status", "code"),
    [
        ((ScriptTurn(text=" "),), 502, "compaction_failed"),
        ((ScriptTurn(calls=(ReplyCall(name="look", args={}),)),) * 4, 502, "compaction_failed"),
        ((ScriptTurn(faults=Faults(status=429, retry_after_s=7.0)),), 429, None),
    ],
)
async def test_a_compaction_that_fails_is_an_error(
    open_app: OpenApp, turns: tuple[ScriptTurn, ...], status: int, code: str | None
) -> None:
    """No summary, only calls up to a limit, or the upstream's refusal: never an empty window, nor one of our words."""
    body = _compact(tools=[{"type": "function", "name": "look", "parameters": {}}])
    async with open_app(scripted(*turns)) as app:
        visit = await Visit(app, "POST", f"{PATH}/compact", headers=[LOCAL, JSON_TYPE], body=body).run()
    assert visit.status == status
    assert code is None or visit.json()["error"]["code"] == code


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","input":"\xff"}',
        b'{"model":"m","input":[{"type":"mcp_call","id":"a","name":"b","error":1e999}]}',
        b'{"model":"m","input":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":{"a":"\xff"}}]}',
    ],
)
async def test_hostile_bodies_are_bad_requests(app: App, body: bytes) -> None:
    """Never a 500."""
    visit = await Visit(app, "POST", "/v1/responses", headers=[LOCAL, JSON_TYPE], body=body).run()
    assert visit.status == 400
