"""The Responses API over HTTP."""

from typing import Any

import msgspec

from treadle.server.app import App
from treadle.upstream.script import ScriptTurn, Sees
from unit.server.conftest import OpenApp, scripted
from unit.server.visit import JSON_TYPE, LOCAL, Visit

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


async def test_streaming_a_stored_response_is_refused_clearly(app: App) -> None:
    """What is not there yet is said, with the field's name."""
    first = (await _ask(app).run()).json()
    visit = await Visit(app, "GET", f"{PATH}/{first['id']}?stream=true").run()
    assert (visit.status, visit.json()["error"]["param"]) == (400, "stream")


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
