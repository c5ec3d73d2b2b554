import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from treadle.core.errors import Conflict, NotFound, ProtocolError, StoreError, UpstreamTimeout
from treadle.core.events import ItemDone, Numbered, RunEnded, RunStarted, ToolFinished
from treadle.core.ids import CountingIds, shown_call_id
from treadle.core.items import CallItem, MessageItem, ReferenceItem, ResultItem, text_message, text_of, text_result
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.core.request import Options, Request, Surface
from treadle.core.run_endings import NOT_STORED
from treadle.core.tool_definitions import Outcome, ServerTool, ToolPolicy, ToolSpec
from treadle.core.usage import Usage
from treadle.engine.limits import Limits
from treadle.journal.journal_interface import RunRow, SessionRow
from treadle.journal.sqlite.store import SqliteStore
from treadle.runs import RunDependencies, Runs, RunsOptions
from treadle.telemetry import Metrics
from unit.engine.fakes import FakeClock, FakeModel, FakeToolbox, ask_for, call, ok, say

OURS = ServerTool(spec=ToolSpec(name="ours"), policy=ToolPolicy(effect="read"))


class QuietClock(FakeClock):
    """A clock on which nothing ever falls due."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


class Table:
    """Models and tools by name."""

    def __init__(self, model: FakeModel, tools: tuple[ServerTool, ...]) -> None:
        self._model = model
        self._tools = tools

    def model_for(self, name: str) -> FakeModel:
        if name == "missing":
            raise NotFound("no such model", param="model")
        return self._model

    def tools(self) -> tuple[ServerTool, ...]:
        return self._tools


@asynccontextmanager
async def running(
    model: FakeModel, toolbox: FakeToolbox | None = None, *tools: ServerTool, **options: object
) -> AsyncIterator[tuple[Runs, SqliteStore]]:
    """Open the runs room on a private store."""
    clock = QuietClock()
    store = SqliteStore(":memory:", clock=clock.now)
    await store.open()
    table = Table(model, tools)
    rooms = RunDependencies(
        store=store,
        models=table,
        tools=table,
        toolbox=toolbox or FakeToolbox(),
        clock=clock,
        ids=CountingIds(),
        metrics=Metrics(),
    )
    runs = Runs(rooms, RunsOptions(**options))
    await runs.open()
    try:
        yield runs, store
    finally:
        await runs.close()
        await store.close()


def asking(text: str = "go", **fields: object) -> Request:
    """Return a request of one user message."""
    items = fields.pop("items", None) or (text_message("user", text),)
    return Request(protocol=fields.pop("protocol", "responses"), model="m", items=items, **fields)


async def events_of(runs: Runs, request: Request, **how: object) -> list[Numbered]:
    """Run a request to its end and return what was told."""
    handle = await runs.start(request, **how)
    told = [numbered async for batch in handle.events() for numbered in batch]
    await handle.wait()
    return told


async def test_a_run_is_told_and_kept_the_same():
    """What a reader saw live is what the journal tells afterwards, with the same numbers."""
    model = FakeModel(ask_for(call("ours")), say("done"))
    async with running(model, FakeToolbox(ours=ok("42")), OURS) as (runs, _):
        live = await events_of(runs, asking())
        run_id = live[0].event.run_id
        assert await runs.replay(run_id) == live
        assert [n async for batch in runs.events(run_id, after=len(live) - 1) for n in batch] == live[-1:]


@pytest.mark.parametrize(
    ("fields", "is_private"),
    [
        ({}, True),
        ({"protocol": "chat"}, True),
        ({"surface": Surface(stream=True)}, False),
        ({"background": True}, False),
        ({"protocol": "treadle"}, False),
    ],
)
async def test_a_run_is_private_where_its_client_hears_of_it_with_its_end(
    fields: dict[str, object], is_private: bool, monkeypatch: pytest.MonkeyPatch
):
    """Whoever is told an id before must find it again, also after a loss of power."""
    started: list[bool] = []
    start_run = SqliteStore.start_run

    def watched(self: SqliteStore, *args: object, **named: object) -> object:
        started.append(bool(named["is_private"]))
        return start_run(self, *args, **named)

    monkeypatch.setattr(SqliteStore, "start_run", watched)
    async with running(FakeModel(say("done"))) as (runs, _):
        await events_of(runs, asking(**fields))
    assert started == [is_private]


async def test_the_next_request_continues_the_previous_response():
    """The model reads the whole conversation, and instructions of the first request do not leak into it."""
    model = FakeModel(say("one"), say("two"))
    async with running(model) as (runs, _):
        first = await events_of(runs, asking("a", instructions="be brief"))
        response_id = first[0].event.response_id
        second = await events_of(runs, asking("b", previous_response_id=response_id))
        assert second[0].event.previous_response_id == response_id
    texts = [(item.role, text_of(item.content)) for item in model.plans[1].items if isinstance(item, MessageItem)]
    assert texts == [("user", "a"), ("assistant", "one"), ("user", "b")]
    assert [item.role for item in model.plans[0].items] == ["system", "user"]


async def test_an_unknown_previous_response_is_not_found():
    """The error names the field."""
    async with running(FakeModel(say("x"))) as (runs, _):
        with pytest.raises(NotFound) as caught:
            await runs.start(asking(previous_response_id="resp_gone"))
        assert caught.value.param == "previous_response_id"


async def test_a_request_may_inherit_what_it_leaves_out():
    """A continued thread sends only what is new: instructions, tools and options come from the request before."""
    model = FakeModel(ask_for(call("theirs", call_id="c1")), say("two"))
    async with running(model) as (runs, _):
        tools, options = (ToolSpec(name="theirs"),), Options(temperature=0.5, max_output_tokens=9)
        first = await events_of(runs, asking("a", instructions="be brief", tools=tools, options=options))
        result = text_result(CallItem(call_id="c1", name="theirs"), "seven")
        again = asking(
            items=(result,),
            previous_response_id=first[0].event.response_id,
            inherits=True,
            options=Options(max_output_tokens=5),
        )
        await events_of(runs, again)
    plan = model.plans[1]
    assert plan.items[0] == text_message("system", "be brief")
    assert (plan.tools, plan.options) == (tools, Options(temperature=0.5, max_output_tokens=5))


async def test_another_keys_response_is_not_found():
    """Ids of one key are nothing to another."""
    async with running(FakeModel(say("x"))) as (runs, _):
        first = await events_of(runs, asking(), key_id="alice")
        with pytest.raises(NotFound):
            await runs.start(asking(previous_response_id=first[0].event.response_id), key_id="bob")


async def test_a_mixed_turn_is_joined_again_when_the_client_sends_its_half():
    """A Chat client sends only its own call and result; the model sees both, in order, with the server's result."""
    mixed = ask_for(call("ours", call_id="s1"), call("theirs", call_id="c1"))
    model = FakeModel(mixed, say("done"))
    tools = (ToolSpec(name="theirs"),)
    async with running(model, FakeToolbox(ours=ok("42")), OURS) as (runs, _):
        first = await events_of(runs, asking(protocol="chat", tools=tools))
        assert first[-1].event.status == "requires_action"
        theirs = CallItem(call_id="c1", name="theirs", arguments="{}")
        items = (text_message("user", "go"), theirs, text_result(theirs, "seven"))
        second = await events_of(runs, asking(protocol="chat", tools=tools, items=items))
        assert second[-1].event.status == "completed"
    sent = model.plans[1].items
    assert [(type(item).__name__, getattr(item, "call_id", "")) for item in sent] == [
        ("MessageItem", ""),
        ("CallItem", "s1"),
        ("CallItem", "c1"),
        ("ResultItem", "s1"),
        ("ResultItem", "c1"),
    ]
    assert [text_of(item.output) for item in sent if isinstance(item, ResultItem)] == ["42", "seven"]


async def test_a_reference_brings_back_the_item_it_names():
    """A message by its id, a server call by the id it was shown under, with its result; an unknown id is not found."""
    model = FakeModel(ask_for(call("ours")), say("one"), say("two"))
    async with running(model, FakeToolbox(ours=ok("42")), OURS) as (runs, _):
        told = await events_of(runs, asking("a"))
        done = [numbered.event.item.id for numbered in told if isinstance(numbered.event, ItemDone)]
        items = (ReferenceItem(id=shown_call_id(done[0])), ReferenceItem(id=done[1]), text_message("user", "b"))
        await events_of(runs, asking(items=items))
        with pytest.raises(NotFound):
            await runs.start(asking(items=(ReferenceItem(id="msg_gone"),)))
    sent = model.plans[2].items
    assert [type(item).__name__ for item in sent] == ["CallItem", "ResultItem", "MessageItem", "MessageItem"]
    assert isinstance(sent[1], ResultItem)
    assert text_of(sent[1].output) == "42"


async def test_what_is_not_to_be_stored_is_gone_after_the_run():
    """`store: false` leaves the numbers and nothing of the content."""
    async with running(FakeModel(say("secret"))) as (runs, store):
        told = await events_of(runs, asking("hush", store=False))
        row = await store.find_run(told[0].event.run_id)
        assert row is not None
        assert row.status == "completed"
        assert await store.entries(row.id) == []


async def test_a_mixed_turn_that_is_not_to_be_stored_lives_until_its_results_arrive():
    """Its memory is needed once more; then it is gone too."""
    model = FakeModel(ask_for(call("ours", call_id="s1"), call("theirs", call_id="c1")), say("done"))
    tools = (ToolSpec(name="theirs"),)
    async with running(model, FakeToolbox(ours=ok("42")), OURS) as (runs, store):
        first = await events_of(runs, asking(tools=tools, store=False))
        run_id = first[0].event.run_id
        assert await store.entries(run_id) == []
        assert await store.entries(run_id, for_next=True) != []
        theirs = CallItem(call_id="c1", name="theirs", arguments="{}")
        items = (text_message("user", "go"), theirs, text_result(theirs, "seven"))
        await events_of(runs, asking(tools=tools, items=items, store=False))
        assert await store.entries(run_id, for_next=True) == []


async def test_an_open_turn_that_is_not_stored_is_forgotten_when_its_id_is_gone_on_with():
    """Where that leaves one open again, both wait; with the last one's good end all are forgotten."""
    replies = [ask_for(call("ours", call_id=f"s{n}"), call("theirs", call_id=f"c{n}")) for n in (1, 2)]
    model = FakeModel(*replies, say("done"))
    tools = (ToolSpec(name="theirs"),)
    async with running(model, FakeToolbox(ours=ok("42")), OURS) as (runs, store):
        ids: list[str] = []
        left: list[list[bool]] = []
        for number in range(3):
            given = () if not number else (text_result(CallItem(call_id=f"c{number}", name="theirs"), "seven"),)
            items = given or (text_message("user", "go"),)
            previous = ids[-1] if ids else None
            asked = asking(tools=tools, items=items, store=False, previous_response_id=previous)
            ids.append((await events_of(runs, asked))[0].event.run_id)
            left.append([bool(await store.entries(each, for_next=True)) for each in ids])
    assert left == [[True], [True, True], [False, False, False]]
    assert [type(item).__name__ for item in model.plans[2].items].count("ResultItem") == 4


async def test_without_persistence_nothing_is_left():
    """A run lasts while it lasts."""
    async with running(FakeModel(say("x")), persistence=False) as (runs, store):
        await events_of(runs, asking())
        assert await store.list_runs() == []


async def test_a_cancelled_run_ends_once_and_keeps_its_results():
    """Cancelling twice is like cancelling once; every call has its result."""
    toolbox = FakeToolbox(ours=asyncio.Event())
    async with running(FakeModel(ask_for(call("ours"))), toolbox, OURS) as (runs, store):
        handle = await runs.start(asking())
        await asyncio.wait_for(toolbox.running.wait(), 5)
        await asyncio.gather(handle.cancel(), handle.cancel())
        told = [numbered.event async for batch in handle.events() for numbered in batch]
        assert [event.status for event in told if isinstance(event, RunEnded)] == ["cancelled"]
        assert [event.result.rc for event in told if isinstance(event, ToolFinished)] == ["cancelled"]
        row = await store.find_run(handle.run_id)
        assert row is not None
        assert row.status == "cancelled"
        assert runs.find_live(handle.run_id) is None
        assert await runs.cancel(handle.run_id) is False


async def test_a_run_cancelled_at_birth_ends_as_cancelled():
    """Also before its task took its first step."""
    async with running(FakeModel(say("x"))) as (runs, store):
        start = asyncio.create_task(runs.start(asking()))
        await asyncio.sleep(0)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        while live := list(runs._live.values()):
            await asyncio.wait([live[0].task], timeout=5)
        assert [row.status for row in await store.list_runs()] == ["cancelled"]


async def test_closing_ends_live_runs_properly():
    """Readers get their end when the process stops."""
    toolbox = FakeToolbox(ours=asyncio.Event())
    async with running(FakeModel(ask_for(call("ours"))), toolbox, OURS) as (runs, _):
        handle = await runs.start(asking())
        await asyncio.wait_for(toolbox.running.wait(), 5)
        await runs.close()
        ended = await handle.wait()
        assert (ended.status, ended.error.code, ended.error.status) == ("failed", "server_stopping", 503)


async def test_a_run_that_comes_while_the_process_leaves_is_not_begun(monkeypatch: pytest.MonkeyPatch):
    """It was let in before: left half done it would be gone on with later, long after its client was told it failed."""
    async with running(FakeModel(say("never"))) as (runs, store):
        gate, entered, take = asyncio.Event(), asyncio.Event(), runs._quotas.take

        async def slow(*given: Any) -> None:
            entered.set()
            await gate.wait()
            await take(*given)

        monkeypatch.setattr(runs._quotas, "take", slow)
        starting = asyncio.create_task(runs.start(asking()))
        await asyncio.wait_for(entered.wait(), 5)
        await asyncio.wait_for(runs.close(), 5)
        gate.set()
        with pytest.raises(StoreError, match="begins no more runs") as caught:
            await asyncio.wait_for(starting, 5)
        assert caught.value.info.code == "server_stopping"
        assert await store.list_runs() == []


async def test_a_bug_in_a_tool_box_ends_one_run_and_is_not_shown():
    """The run fails with an error that tells no inside; its call has a result."""

    class Broken(FakeToolbox):
        async def run(self, call, context):
            raise RuntimeError("secret detail")

    async with running(FakeModel(ask_for(call("ours"))), Broken(), OURS) as (runs, _):
        told = await events_of(runs, asking())
        ended = told[-1].event
        assert (ended.status, ended.error.code, ended.error.status) == ("failed", "internal_error", 500)
        assert "secret" not in msgspec.json.encode(ended).decode()
        assert len([event for event in told if isinstance(event.event, ToolFinished)]) == 1


async def test_a_refusing_upstream_fails_the_run_and_is_kept():
    """The error is on the row."""
    async with running(FakeModel(UpstreamTimeout("silent"))) as (runs, store):
        told = await events_of(runs, asking())
        row = await store.find_run(told[0].event.run_id)
        assert row is not None
        assert (row.status, row.error.code) == ("failed", "upstream_timeout")


async def test_a_session_remembers():
    """The second prompt of a session reads the first; two at once are refused."""
    model = FakeModel(say("one"), say("two"))
    async with running(model) as (runs, store):
        await store.create_session(SessionRow(id="sess_1", created_at=0, updated_at=0, name="work"))
        await events_of(runs, asking("a"), session_id="sess_1")
        await events_of(runs, asking("b"), session_id="sess_1")
        assert len(model.plans[1].items) == 3
        with pytest.raises(NotFound):
            await runs.start(asking(), session_id="sess_2")


async def test_a_run_that_is_not_stored_does_not_move_its_session_on():
    """The next prompt goes on from the last one that is kept."""
    model = FakeModel(say("one"), say("two"), say("three"))
    async with running(model) as (runs, store):
        await store.create_session(SessionRow(id="sess_1", created_at=0, updated_at=0, name="work"))
        await events_of(runs, asking("a"), session_id="sess_1")
        await events_of(runs, asking("b", store=False), session_id="sess_1")
        await events_of(runs, asking("c"), session_id="sess_1")
    assert [len(plan.items) for plan in model.plans] == [1, 3, 3]


async def test_a_session_runs_one_thing_at_a_time():
    """A second run of a session that is busy is a conflict."""
    toolbox = FakeToolbox(ours=asyncio.Event())
    async with running(FakeModel(ask_for(call("ours"))), toolbox, OURS) as (runs, store):
        await store.create_session(SessionRow(id="sess_1", created_at=0, updated_at=0))
        await runs.start(asking(), session_id="sess_1")
        with pytest.raises(Conflict):
            await runs.start(asking(), session_id="sess_1")


async def test_a_response_id_is_spelled_as_its_api_does():
    """Chat ids begin with chatcmpl-, others with resp_."""
    async with running(FakeModel(say("x"))) as (runs, _):
        chat = (await events_of(runs, asking(protocol="chat")))[0].event
        other = (await events_of(runs, asking()))[0].event
        assert isinstance(chat, RunStarted)
        assert (chat.response_id.split("-")[0], other.response_id.split("_")[0]) == ("chatcmpl", "resp")


async def test_a_bad_request_starts_nothing():
    """Refused before anything is stored."""
    async with running(FakeModel(say("x"))) as (runs, store):
        twice = (ToolSpec(name="a"), ToolSpec(name="a"))
        with pytest.raises(ProtocolError):
            await runs.start(asking(tools=twice))
        with pytest.raises(NotFound):
            await runs.start(msgspec.structs.replace(asking(), model="missing"))
        assert await store.list_runs() == []


async def test_a_dead_process_leaves_no_open_call():
    """A run whose lease ended is closed at the next start: its open call is answered, its status failed."""
    async with running(FakeModel(say("x"))) as (runs, store):
        row = RunRow(
            id="run_dead",
            response_id="resp_dead",
            conversation_id="conv",
            protocol="responses",
            model="m",
            created_at=0,
        )
        dead = CallItem(id="fc_1", call_id="call_1", name="ours", side="server")
        entries = [Entry(kind="status", content="running", at=0), entry_of_item(dead, at=0)]
        await (await store.start_run(row, entries, owner="dead", lease_s=0.001)).release()
        assert await runs.claim_abandoned() == ["run_dead"]
        found = await store.find_run("run_dead")
        assert found is not None
        assert (found.status, found.error.code) == ("failed", "interrupted")
        kinds = [(entry.kind, entry.call_id) for entry in await store.entries("run_dead")]
        assert kinds[-2:] == [("tool_result", "call_1"), ("status", None)]


async def test_outcomes_are_told_with_their_size():
    """The numbers that metrics and traces need are on the event."""
    toolbox = FakeToolbox(ours=lambda _: Outcome(text="12345", output_bytes=5))
    async with running(FakeModel(ask_for(call("ours")), say("ok")), toolbox, OURS) as (runs, _):
        told = await events_of(runs, asking())
        finished = next(n.event for n in told if isinstance(n.event, ToolFinished))
        assert (finished.output_bytes, finished.source) == (5, "python")


async def test_a_client_call_in_a_later_round_leaves_nothing_to_remember():
    """The server's part is over when the client is asked: with store false nothing is kept."""
    model = FakeModel(ask_for(call("ours", call_id="s1")), ask_for(call("theirs", call_id="c1")))
    async with running(model, FakeToolbox(ours=ok("42")), OURS) as (runs, store):
        told = await events_of(runs, asking(tools=(ToolSpec(name="theirs"),), store=False))
        assert told[-1].event.status == "requires_action"
        assert await store.entries(told[0].event.run_id, for_next=True) == []


async def test_what_is_not_stored_cannot_be_continued():
    """A purged response is not found, instead of continuing an empty conversation."""
    async with running(FakeModel(say("x"))) as (runs, _):
        told = await events_of(runs, asking(store=False))
        with pytest.raises(NotFound):
            await runs.start(asking(previous_response_id=told[0].event.response_id))


async def test_a_response_that_is_going_on_cannot_be_continued():
    """Its calls have no results yet: nobody makes any up."""
    toolbox = FakeToolbox(ours=asyncio.Event())
    async with running(FakeModel(ask_for(call("ours"))), toolbox, OURS) as (runs, _):
        handle = await runs.start(asking())
        await asyncio.wait_for(toolbox.running.wait(), 5)
        with pytest.raises(Conflict):
            await runs.start(asking(previous_response_id=handle.response_id))


async def test_of_two_prompts_of_a_session_at_once_one_is_refused():
    """Neither is lost silently: one runs, the other hears of it."""
    async with running(FakeModel(say("x"))) as (runs, store):
        await store.create_session(SessionRow(id="sess_1", created_at=0, updated_at=0))
        both = await asyncio.gather(
            *(runs.start(asking(text), session_id="sess_1") for text in ("a", "b")), return_exceptions=True
        )
        assert sorted(type(each).__name__ for each in both) == ["Conflict", "LocalRun"]


async def test_a_refused_request_gives_the_session_back():
    """A mistake does not lock it."""
    async with running(FakeModel(say("x"))) as (runs, store):
        await store.create_session(SessionRow(id="sess_1", created_at=0, updated_at=0))
        with pytest.raises(ProtocolError):
            await runs.start(asking(tools=(ToolSpec(name="a"), ToolSpec(name="a"))), session_id="sess_1")
        assert (await events_of(runs, asking(), session_id="sess_1"))[-1].event.status == "completed"


async def test_a_session_keeps_what_was_done_in_a_cancelled_run():
    """The mail was sent: the next prompt must know."""
    toolbox = FakeToolbox(ours=asyncio.Event())
    model = FakeModel(ask_for(call("ours")), say("again"))
    async with running(model, toolbox, OURS) as (runs, store):
        await store.create_session(SessionRow(id="sess_1", created_at=0, updated_at=0))
        handle = await runs.start(asking("send it"), session_id="sess_1")
        await asyncio.wait_for(toolbox.running.wait(), 5)
        await handle.cancel()
        await events_of(runs, asking("did you?"), session_id="sess_1")
    assert [type(item).__name__ for item in model.plans[1].items] == [
        "MessageItem",
        "CallItem",
        "ResultItem",
        "MessageItem",
    ]


async def test_a_dead_process_leaves_nothing_of_what_was_not_to_be_stored():
    """Closing such a run forgets it too, and only what had started is of unknown outcome."""
    async with running(FakeModel(say("x"))) as (runs, store):
        row = RunRow(
            id="run_dead",
            response_id="resp_dead",
            conversation_id="conv",
            protocol="responses",
            model="m",
            created_at=0,
            store=False,
        )
        journal = await store.start_run(row, [Entry(kind="user", content="secret", at=0)], owner="dead", lease_s=1)
        await journal.release()
        assert await runs.claim_abandoned() == ["run_dead"]
        assert await store.entries("run_dead") == []


async def test_an_unreadable_entry_does_not_keep_a_dead_run_open():
    """It is closed all the same, and so are the others."""
    async with running(FakeModel(say("x"))) as (runs, store):
        for name, data in (("a", b'{"item":{"type":"nonsense"}}'), ("b", b"{}")):
            row = RunRow(
                id=f"run_{name}",
                response_id=f"resp_{name}",
                conversation_id=f"conv_{name}",
                protocol="responses",
                model="m",
                created_at=0,
            )
            broken = Entry(kind="tool_call", call_id="c", data=msgspec.Raw(data), at=0)
            await (await store.start_run(row, [broken], owner="dead", lease_s=1)).release()
        assert sorted(await runs.claim_abandoned()) == ["run_a", "run_b"]


async def test_what_cannot_be_counted_does_not_change_the_end():
    """A number that metrics refuse is no reason to tell another end than the journal's."""
    async with running(FakeModel(say("x", usage=Usage(input_tokens=-5, output_tokens=1)))) as (runs, store):
        told = await events_of(runs, asking())
        row = await store.find_run(told[0].event.run_id)
        assert row is not None
        assert (told[-1].event.status, row.status) == ("completed", "completed")


ENDINGS = {
    "limit": (FakeModel(ask_for(call("ours")), say("x")), RunsOptions(limits=Limits(max_iterations=1))),
    "length": (FakeModel(ask_for(call("ours"), stop="length")), RunsOptions()),
    "unknown": (FakeModel(ask_for(call("nope")), say("x")), RunsOptions()),
    "mixed": (FakeModel(ask_for(call("ours", call_id="s"), call("theirs", call_id="c"))), RunsOptions()),
    "calls": (
        FakeModel(ask_for(call("ours", call_id="a"), call("ours", call_id="b", arguments="[1]")), say("x")),
        RunsOptions(limits=Limits(max_total_tool_calls=1)),
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_however_it_ends_the_journal_tells_what_was_told(ending):
    """Live and replayed are the same events with the same numbers."""
    model, options = ENDINGS[ending]
    chosen = {name: getattr(options, name) for name in ("limits",)}
    async with running(model, FakeToolbox(ours=ok("42")), OURS, **chosen) as (runs, _):
        live = await events_of(runs, asking(tools=(ToolSpec(name="theirs"),)))
        assert await runs.replay(live[0].event.run_id) == live


async def test_a_cancelled_run_is_told_again_as_it_was():
    """Nothing is announced twice."""
    toolbox = FakeToolbox(ours=asyncio.Event())
    async with running(FakeModel(ask_for(call("ours"))), toolbox, OURS) as (runs, _):
        handle = await runs.start(asking())
        await asyncio.wait_for(toolbox.running.wait(), 5)
        await handle.cancel()
        told = [numbered async for batch in handle.events() for numbered in batch]
        assert await runs.replay(handle.run_id) == told


async def test_the_end_of_a_forgotten_run_is_still_told():
    """A reader that comes after the purge hears that it ended, and never takes what is missing for an answer."""
    async with running(FakeModel(say("x"))) as (runs, _):
        told = await events_of(runs, asking(store=False))
        again = [numbered async for batch in runs.events(told[0].event.run_id) for numbered in batch]
        assert [(each.event.status, each.event.error) for each in again] == [("failed", NOT_STORED)]


async def test_the_same_input_gives_the_same_journal():
    """Time and ids are injected: two runs of one script write the same bytes."""
    journals: list[list[Entry]] = []
    for _ in range(2):
        model = FakeModel(ask_for(call("ours"), call("nope", call_id="c2")), say("done"))
        async with running(model, FakeToolbox(ours=ok("42")), OURS) as (runs, store):
            told = await events_of(runs, asking())
            journals.append(await store.entries(told[0].event.run_id))
    assert msgspec.json.encode(journals[0]) == msgspec.json.encode(journals[1])
