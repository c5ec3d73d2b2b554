import asyncio

import pytest

from treadle.engine.deadline import Deadline, TimeLimit

from .fakes import FakeClock

BOUND_S = 5


async def test_work_past_its_limit_is_cut_and_the_task_goes_on() -> None:
    """The cancellation is the limit's own, so it ends there."""
    limit = TimeLimit(0.0)
    with limit:
        await asyncio.Event().wait()
    assert limit.has_cut_off
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_work_that_ends_in_time_is_left_alone() -> None:
    """Neither then nor later is the task cancelled."""
    limit = TimeLimit(0.0)
    with limit:
        pass
    assert not limit.has_cut_off
    await asyncio.wait_for(asyncio.sleep(0.001), BOUND_S)


async def test_what_fails_in_time_fails_as_it_did() -> None:
    """An error of the work is nobody's time limit, and one that says so itself is not the limit's."""
    limit = TimeLimit(60.0)
    with pytest.raises(TimeoutError, match="its own"), limit:
        raise TimeoutError("its own")
    assert not limit.has_cut_off


async def test_a_cut_that_the_work_calls_a_timeout_is_one() -> None:
    """Whatever stands between turns the cancellation into its own error: it was the limit all the same."""
    limit = TimeLimit(0.0)
    with limit:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise TimeoutError from None
    assert limit.has_cut_off


async def test_without_a_bound_nothing_is_cut() -> None:
    """Work may take as long as it takes."""
    limit = TimeLimit(None)
    with limit:
        await asyncio.sleep(0)
    assert not limit.has_cut_off


async def test_who_cancels_at_the_same_time_goes_first() -> None:
    """A run that is cancelled when its time is over is cancelled."""
    limit, entered = TimeLimit(0.001), asyncio.Event()

    async def work() -> None:
        with limit:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelling.cancel()

    cancelling = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(cancelling, BOUND_S)
    assert not limit.has_cut_off


def test_time_runs_from_the_start_and_can_be_put_off() -> None:
    """What was not the run's own time is not counted, and the last answer has some of its own."""
    clock = FakeClock()
    deadline = Deadline(clock, 10.0)
    clock.time += 100
    assert not deadline.is_over
    deadline.start()
    clock.time += 9
    deadline.exclude(5.0)
    clock.time += 5
    assert not deadline.is_over
    clock.time += 1
    assert deadline.is_over
    deadline.extend_to(2.0)
    assert not deadline.is_over
    clock.time += 2
    assert deadline.is_over


def test_a_run_without_a_bound_is_never_over() -> None:
    """There is nothing to put off either."""
    clock = FakeClock()
    deadline = Deadline(clock, None)
    deadline.start()
    deadline.exclude(1.0)
    deadline.extend_to(1.0)
    clock.time += 1e9
    assert not deadline.is_over


async def test_no_time_left_is_noticed_at_the_first_wait() -> None:
    """What needs one turn of the loop is not heard any more."""
    limit, heard = TimeLimit(0.0), list[str]()
    with limit:
        await asyncio.sleep(0)
        heard.append("late")
    assert (limit.has_cut_off, heard) == (True, [])
