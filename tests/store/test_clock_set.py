"""Leases on SQLite while the machine's clock is set: a living holder keeps its runs, and a dead one does not."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from store.sample import LEASE_S, OTHER, OWNER, run_row, said
from treadle.core.errors import StoreError
from treadle.core.shared_ports import Clock
from treadle.journal.journal_interface import Store
from treadle.journal.open_store import open_store

HOUR_S = 3_600.0


class Machine(Clock):
    """A machine's clock, which somebody may set, and the seconds since it started, which nobody can."""

    def __init__(self) -> None:
        self.wall = 1_000_000.0
        self.up = 50.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.up

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.wall += seconds
        self.up += seconds


class Processes:
    """Processes on one machine, and what they share."""

    def __init__(self, place: str, stack: AsyncExitStack) -> None:
        self.machine = Machine()
        self._place = place
        self._stack = stack

    async def begin(self) -> Store:
        """Start another one."""
        store = open_store(self._place, clock=self.machine.now, monotonic=self.machine.monotonic)
        await store.open()
        self._stack.push_async_callback(store.close)
        return store


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[Processes]:
    """Processes on one database."""
    async with AsyncExitStack() as stack:
        yield Processes(str(tmp_path / "t.db"), stack)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, 1e9])
async def test_who_renews_keeps_its_runs_when_the_clock_is_set(processes: Processes, jump_s: float) -> None:
    """Before it has renewed too, and whether the other process was there before or comes later."""
    holder, other = await processes.begin(), await processes.begin()
    journal = await holder.start_run(run_row(), [said("hi")], owner=OWNER, lease_s=LEASE_S)
    machine = processes.machine
    machine.wall += jump_s
    late = await processes.begin()
    for store in (holder, other, late):
        assert await store.claim_abandoned(OTHER, LEASE_S, 5) == []
        assert await store.abandoned(["run_1"]) == []
    for _ in range(5):
        await machine.sleep(LEASE_S * 0.9)
        await journal.renew()
        machine.wall -= jump_s / 2
        assert await late.claim_abandoned(OTHER, LEASE_S, 5) == []
    assert await journal.append([said("still mine")]) == 2


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, -1e6])
async def test_what_a_dead_process_held_is_free_after_its_lease_whatever_the_clock(
    processes: Processes, jump_s: float
) -> None:
    """Not an hour later, and not before."""
    holder, other = await processes.begin(), await processes.begin()
    journal = await holder.start_run(run_row(), [said("hi")], owner=OWNER, lease_s=LEASE_S)
    machine = processes.machine
    machine.wall += jump_s
    late = await processes.begin()
    await machine.sleep(LEASE_S * 0.9)
    assert await other.claim_abandoned(OTHER, LEASE_S, 5) == []
    assert await late.abandoned(["run_1"]) == []
    await machine.sleep(LEASE_S * 0.2)
    assert await late.abandoned(["run_1"]) == ["run_1"]
    [(row, _)] = await other.claim_abandoned(OTHER, LEASE_S, 5)
    assert row.id == "run_1"
    with pytest.raises(StoreError, match="taken the run over"):
        await journal.append([said("too late")])


async def test_processes_see_each_other_whatever_the_clock(processes: Processes) -> None:
    """One that beats is there, and one that fell silent is not, an hour forth or back."""
    holder, other = await processes.begin(), await processes.begin()
    await holder.replicas.beat("one", "{}", forget_s=86_400.0)
    processes.machine.wall -= HOUR_S
    [seen] = await other.replicas.living(15.0)
    assert (seen.owner, seen.silent_s) == ("one", 0.0)
    processes.machine.wall += 2 * HOUR_S
    assert len(await other.replicas.living(15.0)) == 1
    await processes.machine.sleep(16.0)
    processes.machine.wall -= 2 * HOUR_S
    assert await other.replicas.living(15.0) == []


async def test_in_memory_a_run_is_not_taken_from_its_own_process() -> None:
    """The only process there is looks for abandoned runs too."""
    machine = Machine()
    store = open_store(":memory:", clock=machine.now, monotonic=machine.monotonic)
    await store.open()
    journal = await store.start_run(run_row(), [said("hi")], owner=OWNER, lease_s=LEASE_S)
    machine.wall += HOUR_S
    assert await store.claim_abandoned(OWNER, LEASE_S, 5) == []
    assert await journal.append([said("mine")]) == 2
    await store.close()
