"""The shared time: that of the database, whatever this machine's clock says, and however it is set meanwhile."""

import logging
from collections.abc import Awaitable, Callable

import pytest

from treadle.core.errors import StoreError
from treadle.runtime.database_clock import ANSWER_S_MAX, MEASURE_S, SharedClock

DATABASE_S = 1_000_000.0


class Machine:
    """A machine whose wall clock may be set; `at` is the true time."""

    def __init__(self, wrong_s: float) -> None:
        self.at = 500.0
        self.wrong_s = wrong_s
        self.slept: list[float] = []

    def now(self) -> float:
        return DATABASE_S + self.at + self.wrong_s

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds

    def database(self, takes_s: float = 0.0, wrong_s: float = 0.0) -> Callable[[], Awaitable[float | None]]:
        """How its database is asked, which takes so long each time."""

        async def ask() -> float | None:
            self.at += takes_s / 2
            answered = DATABASE_S + self.at + wrong_s
            self.at += takes_s / 2
            return answered

        return ask


@pytest.mark.parametrize("wrong_s", [-3_600.0, 0.0, 3_600.0])
async def test_the_time_is_the_databases_whatever_the_machine_says(wrong_s: float) -> None:
    """And goes on as the machine's seconds do, also where its clock is set meanwhile."""
    machine = Machine(wrong_s)
    clock = SharedClock(machine)
    assert await clock.measure(machine.database(0.02))
    assert clock.now() == pytest.approx(DATABASE_S + machine.at, abs=1e-6)
    assert clock.skew_s == pytest.approx(wrong_s, abs=1e-6)
    machine.at += 100.0
    machine.wrong_s += 86_400.0
    assert clock.now() == pytest.approx(DATABASE_S + machine.at, abs=1e-6)
    assert clock.skew_s == pytest.approx(wrong_s + 86_400.0, abs=1e-6)


async def test_where_all_are_on_one_machine_its_clock_holds() -> None:
    """There is nothing to measure, and nothing is ever wrong."""
    machine = Machine(7.0)
    clock = SharedClock(machine)

    async def no_server() -> float | None:
        return None

    assert not await clock.measure(no_server)
    assert (clock.now(), clock.skew_s) == (machine.now(), 0.0)


async def test_it_follows_a_database_that_is_set_and_minds_no_noise() -> None:
    """What lies within the time that the answer took moves nothing, and a slow answer says nothing."""
    machine = Machine(0.0)
    clock = SharedClock(machine)
    await clock.measure(machine.database(0.02))
    first = clock.now()
    await clock.measure(machine.database(0.02, wrong_s=0.005))
    assert clock.now() == pytest.approx(first + 0.02, abs=1e-6)
    await clock.measure(machine.database(ANSWER_S_MAX * 2, wrong_s=60.0))
    assert clock.now() == pytest.approx(DATABASE_S + machine.at, abs=1e-6)
    await clock.measure(machine.database(0.02, wrong_s=60.0))
    assert clock.now() == pytest.approx(DATABASE_S + machine.at + 60.0, abs=1e-6)


async def test_it_keeps_asking_and_a_database_that_is_away_changes_nothing() -> None:
    """Time goes on from what the database said last."""
    machine = Machine(3_600.0)
    clock = SharedClock(machine)
    await clock.measure(machine.database())
    answers = [StoreError("away"), StoreError("away"), RuntimeError("enough")]

    async def away() -> float | None:
        raise answers.pop(0)

    with pytest.raises(RuntimeError, match="enough"):
        await clock.measure_forever(away)
    assert machine.slept == [MEASURE_S] * 3
    assert clock.now() == DATABASE_S + machine.at


async def test_a_wrong_clock_is_logged_once_until_it_is_right(caplog: pytest.LogCaptureFixture) -> None:
    """The operator reads how far it is off, and what holds."""
    machine = Machine(3_600.0)
    clock = SharedClock(machine)
    with caplog.at_level(logging.WARNING, "treadle.runtime"):
        for wrong_s in (3_600.0, 3_600.0, 0.0, -10.0):
            machine.wrong_s = wrong_s
            await clock.measure(machine.database())
    line = "this machine's clock is {} that of the database, whose time holds; set both by NTP"
    assert caplog.messages == [line.format("3600 s ahead of"), line.format("10 s behind")]


async def test_a_function_that_was_handed_out_before_the_first_measurement_goes_by_it_too() -> None:
    """Stores and workspaces are given `clock.now` when they are made."""
    machine = Machine(wrong_s=3_600.0)
    clock = SharedClock(machine)
    now = clock.now
    assert await clock.measure(machine.database())
    assert now() == clock.now() == DATABASE_S + machine.at
