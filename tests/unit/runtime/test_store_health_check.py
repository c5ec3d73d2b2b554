"""The look at the store in the background: what it says, from when on, and what it refuses."""

import asyncio

import pytest

from treadle.core.errors import StoreError
from treadle.journal.journal_interface import StoreStats
from treadle.journal.memory_store import MemoryStore
from treadle.runtime.store_health_check import AWAY_S, FAILED_S, STALE_S, StoreHealth
from treadle.telemetry import Metrics


class Clock:
    """Time that the test moves; whoever sleeps sleeps for ever."""

    value = 100.0

    def now(self) -> float:
        """Return the wall clock."""
        return self.value

    def monotonic(self) -> float:
        """Return the same."""
        return self.value

    async def sleep(self, seconds: float) -> None:
        """Wait until the test ends."""
        await asyncio.Event().wait()


class FailingStore(MemoryStore):
    """A store that fails as it is told, and remembers what requests are refused with."""

    def __init__(self) -> None:
        super().__init__()
        self.error: StoreError | None = None
        self.held: list[str | None] = []
        self.counted = StoreStats()

    @property
    def stats(self) -> StoreStats:
        """Return what the test counted."""
        return self.counted

    async def probe(self) -> None:
        """Fail, where it is told to."""
        if self.error is not None:
            raise self.error

    def hold_off(self, error: StoreError | None) -> None:
        """Remember it."""
        self.held.append(None if error is None else error.info.code)


@pytest.fixture
def clock() -> Clock:
    """A clock that the test moves."""
    return Clock()


@pytest.fixture
def store() -> FailingStore:
    """A store that fails as it is told."""
    return FailingStore()


@pytest.fixture
def metrics() -> Metrics:
    """Numbers of their own."""
    return Metrics()


@pytest.fixture
def health(store: FailingStore, clock: Clock, metrics: Metrics) -> StoreHealth:
    """The look at it."""
    return StoreHealth(store, clock, metrics)


def _code(health: StoreHealth) -> str | None:
    return None if health.problem is None else health.problem.info.code


async def test_an_outage_is_known_after_a_while_and_its_end_at_once(
    health: StoreHealth, store: FailingStore, clock: Clock, metrics: Metrics
) -> None:
    """It is not ready from the first failure on; requests are refused when it lasts, and no longer than it does."""
    await health.check()
    assert (_code(health), metrics.registry.value("treadle_store_up")) == (None, 1.0)
    store.error = StoreError("the store at db.internal: gone")
    await health.check()
    assert (_code(health), metrics.registry.value("treadle_store_up")) == ("store_unavailable", 0.0)
    clock.value += AWAY_S
    await health.check()
    store.error = None
    await health.check()
    assert (_code(health), metrics.registry.value("treadle_store_up")) == (None, 1.0)
    assert store.held == [None, None, "store_unavailable", None]


async def test_a_full_disk_refuses_no_reads(health: StoreHealth, store: FailingStore, clock: Clock) -> None:
    """What can still be read is; each write finds out by itself."""
    store.error = StoreError("full", code="store_full")
    await health.check()
    clock.value += 10 * AWAY_S
    await health.check()
    assert (_code(health), store.held) == ("store_full", [None, None])


async def test_a_write_that_found_no_room_counts_for_a_while(
    health: StoreHealth, store: FailingStore, clock: Clock
) -> None:
    """Also where a look finds nothing wrong; other errors, and those before, do not."""
    store.counted.errors["store_full"] = 3
    store.counted.errors["store_unavailable"] = 3
    health.open()
    try:
        await health.check()
        assert _code(health) == "store_full"
        clock.value += FAILED_S
        await health.check()
        assert _code(health) is None
    finally:
        await health.close()


async def test_a_look_that_hangs_is_an_answer(health: StoreHealth, clock: Clock) -> None:
    """What was found too long ago is not told as if it were so now."""
    health.open()
    try:
        assert _code(health) is None
        clock.value += STALE_S + 1
        assert _code(health) == "store_unavailable"
    finally:
        await health.close()


async def test_a_probe_that_breaks_is_a_failure_and_ends_nothing(
    health: StoreHealth, store: FailingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the process would never be ready again."""

    async def broken() -> None:
        raise OSError("the disk does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(store, "probe", broken)
        await health.check()
        assert _code(health) == "store_unavailable"
    await health.check()
    assert _code(health) is None
