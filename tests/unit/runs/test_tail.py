"""Runs seen from another process: two runs rooms on one file."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from treadle.canon.errors import Conflict
from treadle.canon.events import ItemAdded, ItemDone, Numbered, RunEnded, TextDelta
from treadle.canon.ids import CountingIds
from treadle.canon.items import MessageItem, TextPart
from treadle.canon.request import Surface
from treadle.canon.tools import ServerTool, ToolPolicy, ToolSpec
from treadle.engine.ports import Clock
from treadle.runs import Idempotency, Rooms, RunHandle, Runs, RunsOptions
from treadle.runtime import RandomIds, SystemClock
from treadle.store.sqlite.store import SqliteStore
from treadle.telemetry import Metrics
from unit.engine.fakes import FakeModel, FakeToolbox, ask_for, call, ok, say
from unit.runs.test_service import Table, asking

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
        rooms = Rooms(
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
        assert await other.runs.take_over() == [handle.run_id]
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
