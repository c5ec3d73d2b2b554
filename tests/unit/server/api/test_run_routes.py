"""Treadle's own API: runs, their events, and the tools."""

import asyncio
from typing import Any

import msgspec
import pytest

from treadle.config import ServerSection
from treadle.core.errors import ProtocolError
from treadle.core.items import text_message
from treadle.server.api.run_routes import NewRun, read_new_run
from treadle.server.app import App
from unit.server.conftest import OpenApp
from unit.server.held import HeldModel
from unit.server.visit import BOUND_S, JSON_TYPE, LOCAL, Visit

PATH = "/treadle/v1/runs"


def _create(app: App, **fields: Any) -> Visit:
    body = {"input": "What is the weather in Paris?", **fields}
    return Visit(app, "POST", PATH, headers=[LOCAL, JSON_TYPE], body=msgspec.json.encode(body))


def _frames(visit: Visit) -> list[tuple[str, int]]:
    """Return name and number of every frame; frames without a number count as zero."""
    frames: list[tuple[str, int]] = []
    for frame in visit.body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.split("\n") if line)
        if fields:
            assert msgspec.json.decode(fields["data"])["type"] == fields["event"]
            frames.append((fields["event"], int(fields.get("id", "0"))))
    return frames


async def _ended(app: App, run_id: str) -> Any:
    """Wait for the end of a run by reading its events, then return it."""
    await Visit(app, "GET", f"{PATH}/{run_id}/events").run()
    return (await Visit(app, "GET", f"{PATH}/{run_id}").run()).json()


async def test_a_run_is_created_and_goes_on_by_itself(app: App) -> None:
    """The answer to the creation does not wait for the end."""
    visit = await _create(app).run()
    run = visit.json()
    assert (visit.status, visit.headers["location"]) == (201, f"{PATH}/{run['id']}")
    assert (run["protocol"], run["model"]) == ("treadle", "demo")
    ended = await _ended(app, run["id"])
    assert (ended["status"], ended["rounds"], ended["calls"]) == ("completed", 2, 1)
    assert [entry["seq"] for entry in ended["entries"]] == list(range(1, len(ended["entries"]) + 1))
    assert [entry["kind"] for entry in ended["entries"]][:4] == ["status", "user", "frame", "plan"]
    assert not ended["has_more"]


async def test_a_run_can_be_created_with_its_events_as_the_answer(app: App) -> None:
    """The stream begins with the start and ends with the end of the run."""
    visit = await _create(app, stream=True).run()
    names = [name for name, _ in _frames(visit)]
    assert visit.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert (names[0], names[-1]) == ("run.started", "run.ended")
    assert "tool.finished" in names


async def test_the_key_and_the_stored_request_are_not_shown(app: App) -> None:
    """What a run was asked with is bookkeeping; whose it is is nobody's business."""
    run = (await _create(app).run()).json()
    assert not {"key_id", "request", "expires_at"} & set(await _ended(app, run["id"]))


async def test_events_are_read_on_from_where_a_reader_stopped(app: App) -> None:
    """By query or by the header that browsers send on their own; nothing is told twice."""
    run_id = (await _create(app).run()).json()["id"]
    await _ended(app, run_id)
    everything = _frames(await Visit(app, "GET", f"{PATH}/{run_id}/events").run())
    numbers = [seq for _, seq in everything if seq]
    assert numbers == sorted(set(numbers))
    middle = numbers[len(numbers) // 2]
    after = everything[[seq for _, seq in everything].index(middle) + 1 :]
    by_query = await Visit(app, "GET", f"{PATH}/{run_id}/events?after={middle}").run()
    by_header = await Visit(
        app, "GET", f"{PATH}/{run_id}/events", headers=[LOCAL, ("last-event-id", str(middle))]
    ).run()
    assert _frames(by_query) == _frames(by_header) == after


async def test_a_reader_that_saw_the_end_is_told_to_stop(app: App) -> None:
    """An EventSource connects again after every end; 204 is how it learns that there is no more."""
    run_id = (await _create(app).run()).json()["id"]
    last = _frames(await Visit(app, "GET", f"{PATH}/{run_id}/events").run())[-1][1]
    visit = await Visit(app, "GET", f"{PATH}/{run_id}/events?after={last}").run()
    assert (visit.status, visit.body) == (204, b"")


async def test_a_reader_that_goes_away_does_not_stop_the_run(open_app: OpenApp) -> None:
    """Closing a tab is not a stop; whoever comes back sees the end."""
    model = HeldModel()
    async with open_app(model) as app:
        first = _create(app, stream=True).begin()
        await first.until(b"text.delta")
        first.leave()
        await first.done()
        model.released.set()
        run_id = first.headers["x-treadle-run"]
        assert (await _ended(app, run_id))["status"] == "completed"


async def test_a_silent_stream_of_events_is_kept_alive(open_app: OpenApp) -> None:
    """A real event without a number breaks the silence."""
    model = HeldModel()
    async with open_app(model, ServerSection(keep_alive_s=0.01)) as app:
        visit = _create(app, stream=True).begin()
        await visit.until(b'event: kept_alive\ndata: {"type":"kept_alive"}\n\n')
        model.released.set()
        await visit.done()
        assert _frames(visit)[-1][0] == "run.ended"


async def test_a_run_is_cancelled_by_an_explicit_request(open_app: OpenApp) -> None:
    """The answer is the run as it ended; its readers get the end too."""
    model = HeldModel()
    async with open_app(model) as app:
        reader = _create(app, stream=True).begin()
        await reader.until(b"text.delta")
        visit = await Visit(app, "POST", f"{PATH}/{reader.headers['x-treadle-run']}/cancel").run()
        await reader.done()
        async with asyncio.timeout(BOUND_S):
            await model.closed.wait()
    assert (visit.status, visit.json()["status"]) == (200, "cancelled")
    assert _frames(reader)[-1][0] == "run.ended"


async def test_cancelling_an_ended_run_changes_nothing(app: App) -> None:
    """The answer tells how it ended."""
    run_id = (await _create(app).run()).json()["id"]
    await _ended(app, run_id)
    visit = await Visit(app, "POST", f"{PATH}/{run_id}/cancel").run()
    assert (visit.status, visit.json()["status"]) == (200, "completed")


async def test_runs_are_listed_newest_first_in_pages(app: App) -> None:
    """The last id of a page is where the next one begins."""
    ids = [(await _create(app).run()).json()["id"] for _ in range(3)]
    for run_id in ids:
        await _ended(app, run_id)
    first = (await Visit(app, "GET", f"{PATH}?limit=2").run()).json()
    rest = (await Visit(app, "GET", f"{PATH}?limit=2&before={first['runs'][-1]['id']}").run()).json()
    assert [run["id"] for run in (*first["runs"], *rest["runs"])] == ids[::-1]
    assert (first["has_more"], rest["has_more"]) == (True, False)
    none = (await Visit(app, "GET", f"{PATH}?status=failed").run()).json()
    assert none == {"runs": [], "has_more": False}


async def test_runs_of_a_session_continue_each_other(app: App) -> None:
    """A session is made by its name; its runs are one conversation."""
    first = await _ended(app, (await _create(app, session="notes").run()).json()["id"])
    second = (await _create(app, session="notes").run()).json()
    assert (second["previous_id"], second["session_id"]) == (first["id"], first["session_id"])
    listed = (await Visit(app, "GET", f"{PATH}?session={first['session_id']}").run()).json()
    assert len(listed["runs"]) == 2


@pytest.mark.parametrize(
    ("path", "status", "param"),
    [
        (f"{PATH}?limit=0", 400, "limit"),
        (f"{PATH}?limit=201", 400, "limit"),
        (f"{PATH}?limit=-1", 400, "limit"),
        (f"{PATH}?limit=99999999999999999999", 400, "limit"),
        (f"{PATH}?status=sleeping", 400, "status"),
        (f"{PATH}?before=run_none", 404, None),
        (f"{PATH}/run_none", 404, "run_id"),
        (f"{PATH}/run_none/events", 404, "run_id"),
    ],
)
async def test_bad_questions_name_the_field(app: App, path: str, status: int, param: str | None) -> None:
    """Every refusal has Treadle's envelope."""
    visit = await Visit(app, "GET", path).run()
    assert (visit.status, visit.json()["error"]["param"]) == (status, param)
    assert sorted(visit.json()["error"]) == ["code", "hint", "message", "param"]


async def test_a_bad_event_id_is_refused(app: App) -> None:
    """A number that cannot be one is not taken for the beginning."""
    run_id = (await _create(app).run()).json()["id"]
    visit = await Visit(app, "GET", f"{PATH}/{run_id}/events", headers=[LOCAL, ("last-event-id", "x")]).run()
    assert (visit.status, visit.json()["error"]["param"]) == (400, "after")


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (b"", "The body is not JSON: Input data was truncated.", None),
        (b"{}", "Object missing required field `input`.", "input"),
        (b'{"input":""}', "input is empty.", "input"),
        (b'{"input":[]}', "input is empty.", "input"),
        (b'{"input":7}', "Expected `str | array`, got `int`.", "input"),
        (b'{"input":"x","tool":"y"}', "Object contains unknown field `tool`.", "tool"),
        (
            b'{"input":"x","session":"a","previous":"b"}',
            "A run goes on with a session or with a previous run, not both.",
            "previous",
        ),
    ],
)
def test_a_bad_body_is_refused_with_the_field(body: bytes, message: str, param: str | None) -> None:
    """There is no field to run a tool with, and none is ignored."""
    with pytest.raises(ProtocolError) as caught:
        read_new_run(body)
    assert (caught.value.message, caught.value.param) == (message, param)


def test_input_may_be_canonical_items() -> None:
    """Whoever has items need not flatten them."""
    body = b'{"input":[{"type":"message","role":"user","content":[{"type":"text","text":"hi"}]}]}'
    assert read_new_run(body) == NewRun(input=(text_message("user", "hi"),))


def test_a_deep_body_is_refused_before_it_is_built() -> None:
    """Depth is bounded in one pass over the bytes."""
    with pytest.raises(ProtocolError, match="nests deeper"):
        read_new_run(b'{"input":' + b"[" * 1_000)


async def test_tools_are_listed_with_their_policy(app: App) -> None:
    """What the model is told, how it may be run, and where it comes from; there is no way to run one here."""
    tools = (await Visit(app, "GET", "/treadle/v1/tools").run()).json()["tools"]
    weather = next(tool for tool in tools if tool["spec"]["name"] == "get_weather")
    assert weather["source"] == "python"
    assert (weather["policy"]["effect"], weather["policy"]["timeout_s"]) == ("read", 10.0)
    visit = await Visit(app, "POST", "/treadle/v1/tools", headers=[LOCAL, JSON_TYPE], body=b"{}").run()
    assert visit.status == 405
