"""Who reads a run: the last to leave may end it, at once, after a while, or never."""

import asyncio

import pytest

from treadle.server.delivery.subscribers import Subscribers

BOUND_S = 5.0


class Clock:
    """A clock whose sleeps end when the test says so."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.woken = asyncio.Event()

    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.woken.wait()


class Run:
    """Something to read."""

    run_id = "run_1"

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    async def cancel(self) -> None:
        self.cancelled.set()


async def test_the_last_reader_ends_the_run() -> None:
    """Not the first of two."""
    audience, run = Subscribers(Clock()), Run()
    audience.enter(run.run_id)
    audience.enter(run.run_id)
    await audience.leave(run, 0.0)
    assert not run.cancelled.is_set()
    await audience.leave(run, 0.0)
    assert run.cancelled.is_set()


async def test_a_run_may_go_on_by_itself() -> None:
    """Without any reader."""
    clock = Clock()
    audience, run = Subscribers(clock), Run()
    audience.enter(run.run_id)
    await audience.leave(run, None)
    assert (run.cancelled.is_set(), clock.slept) == (False, [])


async def test_a_run_waits_for_its_reader_for_a_while() -> None:
    """Then it ends."""
    clock = Clock()
    audience, run = Subscribers(clock), Run()
    audience.enter(run.run_id)
    await audience.leave(run, 60.0)
    await asyncio.sleep(0)
    assert (run.cancelled.is_set(), clock.slept) == (False, [60.0])
    clock.woken.set()
    async with asyncio.timeout(BOUND_S):
        await run.cancelled.wait()


@pytest.mark.parametrize("returns", [True, False])
async def test_a_reader_who_comes_back_stops_the_waiting(returns: bool) -> None:
    """Whoever it is; so does the end of the server."""
    clock = Clock()
    audience, run = Subscribers(clock), Run()
    audience.enter(run.run_id)
    await audience.leave(run, 60.0)
    if returns:
        audience.enter(run.run_id)
    else:
        await audience.close()
    clock.woken.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not run.cancelled.is_set()


async def test_a_request_that_comes_again_finds_what_waits_for_it() -> None:
    """Once, and as long as it waits."""
    clock = Clock()
    audience, run = Subscribers(clock), Run()
    audience.enter(run.run_id)
    await audience.leave(run, 0.9, "digest")
    assert (audience.find("other"), audience.find("digest"), audience.find("digest")) == (None, run, None)
    audience.enter(run.run_id)
    await audience.leave(run, 0.9, "digest")
    await asyncio.sleep(0)
    clock.woken.set()
    async with asyncio.timeout(BOUND_S):
        await run.cancelled.wait()
    assert audience.find("digest") is None
