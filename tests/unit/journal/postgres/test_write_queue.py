"""The queue of writes: bounded, and indifferent to callers that leave; and how long a write waits for its slot."""

import asyncio
import time

import pytest

from treadle.core.errors import StoreError
from treadle.journal.postgres import write_queue as writes
from treadle.journal.postgres.write_queue import WriteQueue, WriteSlots
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
    queue.count_in()
    queue.count_in()
    assert (queue.queued, queue.has_room) == (2, False)
    waiting, another = queue.submit(gate), queue.submit(gate)
    queue.count_out()
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    queue.start(gate, future)
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


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let writes wait for hundredths of seconds."""
    monkeypatch.setattr(writes, "WRITE_WAIT_S", 0.05)
    monkeypatch.setattr(writes, "SLOW_WAIT_S", 0.2)


async def test_slots_are_given_in_the_order_of_asking() -> None:
    """As many as there are at once; each that comes back goes to the write that waits longest."""
    slots, taken = WriteSlots(2), list[str]()

    async def take(name: str) -> None:
        assert await slots.acquire(time.monotonic()) is not None
        taken.append(name)

    tasks = [asyncio.create_task(take(name)) for name in "abcd"]
    await turns()
    assert taken == ["a", "b"]
    slots.release()
    await turns()
    assert taken == ["a", "b", "c"]
    slots.release()
    slots.release()
    slots.release()
    await asyncio.gather(*tasks)
    await take("e")
    await take("f")
    assert taken == [*"abcdef"]


@pytest.mark.usefixtures("hasty")
async def test_writes_behind_a_database_that_answers_none_fail_together() -> None:
    """Those submitted before its last answer: at the same moment; one that came later has its own time."""
    slots, gone = WriteSlots(1), dict[str, float]()
    asked_at = time.monotonic()
    slots.note_answer()
    assert await slots.acquire(asked_at) is not None

    async def wait(name: str, submitted_at: float) -> None:
        assert await slots.acquire(submitted_at) is None
        gone[name] = time.monotonic() - asked_at

    early = [wait(str(n), asked_at - n / 1000) for n in range(100)]
    async with asyncio.timeout(5.0):
        await asyncio.gather(*early, wait("late", asked_at + 0.02))
    assert min(gone.values()) >= 0.05
    assert list(gone)[-1] == "late"
    assert gone["late"] >= 0.07
    slots.release()
    assert await slots.acquire(time.monotonic()) is not None


@pytest.mark.usefixtures("hasty")
async def test_a_slow_database_is_waited_for_as_long_as_it_answers_others() -> None:
    """Longer than for one that is away, but not for ever."""
    slots, began = WriteSlots(1), time.monotonic()
    assert await slots.acquire(began) is not None
    waiting = asyncio.create_task(slots.acquire(began))
    while not waiting.done():
        slots.note_answer()
        await asyncio.sleep(0.005)
    assert await waiting is None
    assert time.monotonic() - began >= 0.2


async def test_a_write_that_waited_for_its_slot_has_time_for_itself() -> None:
    """Until its own deadline, or some seconds more where the database answers others; never beyond what they wait."""
    slots, now = WriteSlots(3), time.monotonic()
    fresh, late = await slots.acquire(now), await slots.acquire(now - 9.0)
    assert fresh == now + writes.WRITE_WAIT_S
    assert late == now + 1.0, "nothing was answered since"
    slots.note_answer()
    answered = await slots.acquire(now - 9.0)
    assert answered is not None
    assert writes.ALONE_WAIT_S <= answered - now < writes.ALONE_WAIT_S + 1.0


async def test_a_slot_that_nobody_takes_any_more_goes_to_the_next() -> None:
    """Whoever is cancelled as it gets the slot, or before, keeps none."""
    slots = WriteSlots(1)
    await slots.acquire(time.monotonic())
    waiting = [asyncio.create_task(slots.acquire(time.monotonic())) for _ in range(3)]
    await turns()
    waiting[0].cancel()
    slots.release()
    waiting[1].cancel()
    assert await waiting[2] is not None
    assert [task.cancelled() for task in waiting] == [True, True, False]
