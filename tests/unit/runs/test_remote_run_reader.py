"""Runs seen from another process: two runs rooms on one file."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec
import pytest

from treadle.core.errors import Conflict
from treadle.core.events import (
    NUMBER_STEP,
    ItemAdded,
    ItemDone,
    Numbered,
    Numbering,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunRecovered,
    TextDelta,
)
from treadle.core.ids import CountingIds
from treadle.core.items import MessageItem, TextPart
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.core.request import Surface
from treadle.core.shared_ports import Clock
from treadle.core.tool_definitions import ServerTool, ToolPolicy, ToolSpec
from treadle.engine import delta_log
from treadle.engine.recorded_run import ReplyRecord
from treadle.journal.journal_interface import Chunk, RunRow, Store
from treadle.journal.sqlite.store import SqliteStore
from treadle.runs import Idempotency, RunDependencies, RunHandle, Runs, RunsOptions
from treadle.runs.recovery.run_record import close_run
from treadle.runs.remote_run_reader import after_number, tail
from treadle.runtime import RandomIds, SystemClock
from treadle.telemetry import Metrics
from unit.engine.fakes import FakeModel, FakeToolbox, ask_for, call, ok, say
from unit.runs.test_run_service import Table, asking

OURS = ServerTool(spec=ToolSpec(name="ours"), policy=ToolPolicy(effect="read"))
SLOW = ServerTool(spec=ToolSpec(name="slow"), policy=ToolPolicy(effect="write"))


class Process:
    """One process's runs room, as far as a test needs it."""

    def __init__(self, path: Path, owner: str, model: FakeModel, toolbox: FakeToolbox | None = None) -> None:
        self.clock: Clock = SystemClock()
        self.store = SqliteStore(str(path), clock=self.clock.now)
        self.model = model
        self.toolbox = toolbox or FakeToolbox(ours=ok("42"))
        table = Table(model, (OURS, SLOW))
        ids = CountingIds() if owner == "one" else RandomIds()
        rooms = RunDependencies(
            store=self.store,
            models=table,
            tools=table,
            toolbox=self.toolbox,
            clock=self.clock,
            ids=ids,
            metrics=Metrics(),
        )
        self.runs = Runs(rooms, RunsOptions(owner=owner))


@asynccontextmanager
async def two(tmp_path: Path, model: FakeModel, toolbox: FakeToolbox | None = None) -> AsyncIterator[list[Process]]:
    """Open two processes on one file; the second one's model would answer otherwise."""
    both = [
        Process(tmp_path / "runs.db", "one", model, toolbox),
        Process(tmp_path / "runs.db", "two", FakeModel(say("from two"))),
    ]
    for process in both:
        await process.store.open()
        await process.runs.open()
    try:
        yield both
    finally:
        for process in both:
            await process.runs.close()
            await process.store.close()


async def all_of(handle: RunHandle, after: int = 0) -> list[Numbered]:
    """Read a run to its end."""
    return [numbered async for batch in handle.events(after) for numbered in batch]


def plain(events: list[Numbered]) -> list[object]:
    """Return events without the numbers of their entries."""
    return [numbered.event for numbered in events]


async def test_another_process_reads_a_run_as_it_goes_on(tmp_path):
    """Its text comes before the run is over, and all of it is the same and in the same pieces."""
    hold = asyncio.Event()
    item = MessageItem(id="msg_1", role="assistant")
    whole = MessageItem(id="msg_1", role="assistant", content=(TextPart(text="Hello there"),))
    begun = [[ItemAdded(index=0, item=item), TextDelta(index=0, text="Hel"), TextDelta(index=0, text="lo ")]]
    model = FakeModel(begun, hold=hold)
    async with two(tmp_path, model) as (one, other):
        handle = await one.runs.start(asking(surface=Surface(stream=True)))
        row = await other.store.find_run(handle.run_id)
        assert row is not None
        seen: list[Numbered] = []
        heard = asyncio.Event()

        async def follow() -> None:
            async for batch in other.runs.attach(row).events():
                seen.extend(batch)
                if any(isinstance(each.event, TextDelta) for each in seen):
                    heard.set()

        reader = asyncio.create_task(follow())
        await asyncio.wait_for(heard.wait(), 10)
        assert not any(isinstance(each.event, RunEnded) for each in seen)
        begun.append([TextDelta(index=0, text="there"), ItemDone(index=0, item=whole)])
        hold.set()
        await asyncio.wait_for(reader, 10)
        assert plain(seen) == plain(await all_of(handle))
        assert await one.store.chunks(handle.run_id) == []


async def test_a_reader_goes_on_anywhere(tmp_path):
    """After each event, here or elsewhere, live or ended: what is left is the same."""
    async with two(tmp_path, FakeModel(ask_for(call("ours")), say("done"))) as (one, other):
        handle = await one.runs.start(asking())
        told = plain(await all_of(handle))
        await handle.wait()
        row = await other.store.find_run(handle.run_id)
        assert row is not None
        for after in range(len(told) + 2):
            assert plain(await all_of(other.runs.attach(row), after)) == told[after:]


async def test_a_run_is_cancelled_from_another_process(tmp_path):
    """Its calls get their results, and both processes see one end."""
    toolbox = FakeToolbox(slow=asyncio.Event())
    async with two(tmp_path, FakeModel(ask_for(call("slow"))), toolbox) as (one, other):
        handle = await one.runs.start(asking())
        await asyncio.wait_for(toolbox.running.wait(), 10)
        assert await other.runs.cancel(handle.run_id)
        assert (await asyncio.wait_for(handle.wait(), 10)).status == "cancelled"
        row = await other.store.find_run(handle.run_id)
        assert row is not None
        assert row.status == "cancelled"
        assert not await other.runs.cancel(handle.run_id), "it has ended"
        assert (await other.runs.attach(row).wait()).status == "cancelled"


async def test_a_background_run_is_handed_over_when_its_process_stops(tmp_path):
    """It does not end: the other process goes on, and the call that was running is not run again."""
    toolbox = FakeToolbox(slow=asyncio.Event())
    async with two(tmp_path, FakeModel(ask_for(call("slow"))), toolbox) as (one, other):
        handle = await one.runs.start(asking(background=True))
        await asyncio.wait_for(toolbox.running.wait(), 10)
        await one.runs.close()
        assert await other.runs.claim_abandoned() == [handle.run_id]
        row = await other.store.find_run(handle.run_id)
        assert row is not None
        ended = await other.runs.attach(row).wait()
        entries = await other.store.entries(handle.run_id)
    assert ended.status == "completed"
    [result] = [entry for entry in entries if entry.kind == "tool_result"]
    assert "outcome unknown" in (result.content or "")
    assert other.toolbox.ran == []
    assert entries[-3].content == "from two"


async def test_a_hundred_requests_of_one_key_are_one_run(tmp_path):
    """In two processes at once: one model call, and a hundred equal answers."""
    async with two(tmp_path, FakeModel(say("from one"))) as both:
        key = Idempotency(key="k", request_sha256="s")
        handles = await asyncio.gather(*(both[n % 2].runs.start(asking(), idempotency=key) for n in range(100)))
        answers = [plain(await all_of(handle)) for handle in handles]
    assert len({handle.run_id for handle in handles}) == 1
    assert sum(not handle.is_attached for handle in handles) == 1
    assert all(answer == answers[0] for answer in answers)
    assert sum(len(process.model.plans) for process in both) == 1


async def test_a_key_is_not_for_another_request(tmp_path):
    """The same key of another client is another key."""
    async with two(tmp_path, FakeModel(say("x"))) as (one, other):
        first = await one.runs.start(asking(), idempotency=Idempotency(key="k", request_sha256="s"))
        with pytest.raises(Conflict) as caught:
            await other.runs.start(asking(), idempotency=Idempotency(key="k", request_sha256="t"))
        assert caught.value.info.code == "idempotency_key_reused"
        second = await other.runs.start(asking(), key_id="them", idempotency=Idempotency(key="k", request_sha256="t"))
        assert first.run_id != second.run_id


async def test_what_was_not_to_be_stored_can_be_heard_again_only_where_it_was_said(tmp_path):
    """In this process for a while, from memory; elsewhere it is gone, and that is said."""
    key = Idempotency(key="k", request_sha256="s")
    async with two(tmp_path, FakeModel(say("secret"))) as (one, other):
        handle = await one.runs.start(asking(store=False), idempotency=key)
        told = plain(await all_of(handle))
        await handle.wait()
        again = await one.runs.start(asking(store=False), idempotency=key)
        assert plain(await all_of(again)) == told
        with pytest.raises(Conflict) as caught:
            await other.runs.start(asking(store=False), idempotency=key)
        assert caught.value.info.code == "idempotency_result_gone"


async def _numbers(batches: AsyncIterator[list[Numbered]]) -> list[tuple[int, object]]:
    """Return the events of a run with their numbers."""
    numbering = Numbering()
    return [(numbering.take(each.event), each.event) async for batch in batches for each in batch]


async def _left_in_a_model_call(tmp_path: Path, pieces: int) -> str:
    """Let a process die in a model call that has said some pieces, of which none was written; return the run."""
    hold = asyncio.Event()
    item = MessageItem(id="msg_1", role="assistant")
    said = [TextDelta(index=0, text=f"{number} ") for number in range(pieces)]
    async with two(tmp_path, FakeModel([[ItemAdded(index=0, item=item), *said]], hold=hold)) as (one, _):
        handle = await one.runs.start(asking(background=True, surface=Surface(stream=True)))
        seen: list[tuple[int, object]] = []
        numbering = Numbering()
        async for batch in handle.events():
            seen += [(numbering.take(each.event), each.event) for each in batch]
            if len(seen) == pieces + 3:
                break
        assert seen[-1] == (pieces + 3, said[-1])
        live = one.runs._live[handle.run_id]
        assert live.relay is not None
        await live.relay.close()
        await one.runs.close()
        return handle.run_id


async def test_a_number_that_a_client_has_is_never_another_events(tmp_path):
    """What comes after the recovery is numbered far above; a client that saw more goes on with all of it."""
    run_id = await _left_in_a_model_call(tmp_path, 20)
    async with two(tmp_path, FakeModel(say("from one"))) as (_, other):
        row = await other.store.find_run(run_id)
        assert row is not None
        assert (await asyncio.wait_for(other.runs.attach(row).wait(), 10)).status == "completed"
        told = await _numbers(other.runs.events(run_id))
        assert [number for number, _ in told[:3]] == [1, 2, NUMBER_STEP + 3]
        assert isinstance(told[2][1], RunRecovered)
        after = {
            number: [each.event async for batch in other.runs.events(run_id, number) for each in batch]
            for number in (0, 1, 2, 3, 22, NUMBER_STEP + 3, told[-1][0])
        }
    whole = [event for _, event in told]
    assert after[0] == whole
    assert [after[number] for number in (1, 2, 3, 22)] == [whole[1:], whole[2:], whole[2:], whole[2:]]
    assert [after[NUMBER_STEP + 3], after[told[-1][0]]] == [whole[3:], []]


async def test_a_run_that_cannot_be_recovered_is_told_from_what_stands(tmp_path):
    """Its pieces are lost with its process: a reader that had them is told so, and of the end."""
    run_id = await _left_in_a_model_call(tmp_path, 5)
    store = SqliteStore(str(tmp_path / "runs.db"))
    await store.open()
    [(_, journal)] = await store.claim_abandoned("two", 60.0, 1)
    await close_run(store, journal, 5.0)
    events = [each.event async for batch in after_number(tail(store, run_id), 8) for each in batch]
    await store.close()
    assert [type(event) for event in events] == [RunRecovered, RunEnded]


ITEM = MessageItem(id="msg_1", role="assistant", content=(TextPart(text="Hello"),))
SAID: list[RunEvent] = [
    ItemAdded(index=0, item=MessageItem(id="msg_1", role="assistant")),
    TextDelta(index=0, text="Hel"),
    RunRecovered(),
    TextDelta(index=0, text="lo"),
    ItemDone(index=0, item=ITEM),
]


class Growing:
    """A store whose journal grows each time that it is waited for; what a model call said comes before its entry."""

    def __init__(self) -> None:
        plan = msgspec.Raw(b'{"round":1,"fingerprint":"f"}')
        reply = ReplyRecord(ending="interrupted", tape=delta_log.encode_deltas(SAID))
        status = RunEnded(status="failed")
        self._entries = [
            Entry(kind="plan", data=plan, seq=1, at=0.0),
            entry_of_item(ITEM, at=0.0),
            Entry(kind="reply", data=msgspec.Raw(msgspec.json.encode(reply)), seq=3, at=0.0),
            Entry(kind="status", data=msgspec.Raw(msgspec.json.encode(status)), seq=4, at=0.0),
        ]
        self._entries[1] = msgspec.structs.replace(self._entries[1], seq=2)
        self._count = 1

    async def entries(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        return [entry for entry in self._entries[: self._count] if entry.seq > after]

    async def chunks(self, run_id: str, *, after: int = 0) -> list[Chunk]:
        return [Chunk(first=2, count=4, data=msgspec.json.encode(SAID[:4]))] if self._count < 3 else []

    async def find_run(self, run_id: str) -> RunRow:
        return RunRow(id=run_id, response_id="", conversation_id="", protocol="chat", model="m", created_at=0.0)

    async def wait_change(self, run_id: str, timeout_s: float) -> None:
        self._count += 1


async def test_a_recovery_is_told_once():
    """A reader that had it from the process that recovered the run does not hear it again from the journal."""
    events = [each.event async for batch in tail(cast("Store", Growing()), "run_1") for each in batch]
    assert [type(event) for event in events] == [RoundStarted, *map(type, SAID), RunEnded]
