"""The queue of writes: bounded, and indifferent to callers that leave."""

import asyncio

import pytest

from treadle.core.errors import StoreError
from treadle.journal.postgres import write_queue as writes
from treadle.journal.postgres.write_queue import WriteQueue
from treadle.journal.store_url import PostgresAddress

ADDRESS = PostgresAddress("postgresql://me:hidden@db.example/x")


class Gate:
    """Work that waits until it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.is_open = asyncio.Event()

    async def __call__(self) -> str:
        self.begun += 1
        await self.is_open.wait()
        return "done"


async def turns(count: int = 10) -> None:
    """Let everybody take a few steps."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_full_queue_makes_callers_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the bound is under way; the rest follows."""
    assert writes.QUEUED_WRITES_MAX == 1_000
    monkeypatch.setattr(writes, "QUEUED_WRITES_MAX", 3)
    queue, gate = WriteQueue(ADDRESS), Gate()
    callers = [queue.submit(gate) for _ in range(5)]
    await turns()
    assert (gate.begun, queue.queued) == (3, 3)
    gate.is_open.set()
    assert await asyncio.gather(*callers) == ["done"] * 5
    assert queue.queued == 0


async def test_a_caller_that_leaves_does_not_stop_its_write() -> None:
    """It is done, and closing waits for it."""
    queue, gate = WriteQueue(ADDRESS), Gate()
    caller = queue.submit(gate)
    await turns()
    caller.cancel()
    await turns()
    assert (caller.cancelled(), queue.queued) == (True, 1)
    closing = asyncio.create_task(queue.close())
    await turns()
    assert not closing.done()
    gate.is_open.set()
    await closing
    assert queue.queued == 0


async def test_a_caller_that_leaves_while_waiting_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its work never begins, and its place is for others."""
    monkeypatch.setattr(writes, "QUEUED_WRITES_MAX", 1)
    queue, gate = WriteQueue(ADDRESS), Gate()
    first = queue.submit(gate)
    await turns()
    second = queue.submit(gate)
    await turns()
    second.cancel()
    gate.is_open.set()
    assert await first == "done"
    assert await queue.submit(gate) == "done"
    assert gate.begun == 2


async def test_what_is_done_elsewhere_counts_and_may_go_on_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes room until it leaves, closing waits for it, and where it goes on its own future is told."""
    monkeypatch.setattr(writes, "QUEUED_WRITES_MAX", 2)
    queue, gate = WriteQueue(ADDRESS), Gate()
    queue.enter()
    queue.enter()
    assert (queue.queued, queue.has_room) == (2, False)
    waiting, another = queue.submit(gate), queue.submit(gate)
    queue.leave()
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    queue.go_on(gate, future)
    await turns()
    assert (gate.begun, queue.queued) == (2, 2)
    closing = asyncio.create_task(queue.close())
    await turns()
    assert (gate.begun, closing.done()) == (3, False)
    gate.is_open.set()
    await closing
    assert await asyncio.gather(waiting, another, future) == ["done"] * 3
    assert (queue.queued, queue.has_room) == (0, False)


async def test_a_closed_queue_takes_nothing() -> None:
    """The error names the store, without its password."""
    queue = WriteQueue(ADDRESS)
    await queue.close()
    with pytest.raises(StoreError) as caught:
        await queue.submit(Gate())
    assert caught.value.info.code == "store_closed"
    assert caught.value.message == "the store postgresql://me:***@db.example/x is not open"


async def test_a_failure_reaches_the_caller() -> None:
    """And makes room for the next."""
    queue = WriteQueue(ADDRESS)

    async def fail() -> None:
        raise StoreError("no")

    with pytest.raises(StoreError, match="no"):
        await queue.submit(fail)
    assert queue.queued == 0


@pytest.mark.parametrize("steps", [0, 1], ids=["before its first step", "amid it"])
async def test_work_that_is_cancelled_is_left_all_the_same(steps: int) -> None:
    """As when a loop ends: whoever comes behind it must not wait for ever."""
    queue, gate, left = WriteQueue(ADDRESS), Gate(), list[str]()
    future = queue.submit(gate, lambda: left.append("left"))
    await turns(steps)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.wait([future], timeout=5)
    assert (gate.begun, future.cancelled(), left, queue.queued) == (steps, True, ["left"], 0)
