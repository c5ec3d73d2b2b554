import asyncio
import contextvars
import threading

import pytest

from treadle.tools.thread_pool import LATE, Threads

BOUND_S = 5


async def test_a_value_and_an_exception_come_back() -> None:
    """The end of a function is told, whichever it is; also what asyncio's own futures cannot carry."""
    threads = Threads(1)
    assert (await threads.run(lambda: 7)).value == 7
    ended = await threads.run(lambda: next(iter([])))
    assert isinstance(ended.raised, StopIteration)
    ended = await threads.run(lambda: (_ for _ in ()).throw(SystemExit(3)))
    assert isinstance(ended.raised, SystemExit)
    assert threads.count == 1
    threads.close()


async def test_the_number_of_threads_is_bounded() -> None:
    """More work than threads waits its turn; no thread is started beyond the bound."""
    threads = Threads(2)
    release = threading.Event()
    running = [asyncio.create_task(threads.run(lambda: release.wait(BOUND_S))) for _ in range(6)]
    await asyncio.sleep(0)
    assert threads.count == 2
    release.set()
    assert [ended.value for ended in await asyncio.gather(*running)] == [True] * 6
    assert threads.count == 2
    threads.close()


async def test_an_idle_thread_is_used_again() -> None:
    """One after the other needs one thread."""
    threads = Threads(8)
    for _ in range(20):
        await threads.run(lambda: None)
    assert threads.count == 1
    threads.close()


async def test_a_job_nobody_waits_for_is_not_started() -> None:
    """What was cancelled while it queued never runs."""
    threads = Threads(1)
    release, ran = threading.Event(), threading.Event()
    blocking = asyncio.create_task(threads.run(lambda: release.wait(BOUND_S)))
    queued = asyncio.create_task(threads.run(ran.set))
    await asyncio.sleep(0)
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    release.set()
    await blocking
    await threads.run(lambda: None)
    assert not ran.is_set()
    threads.close()


async def test_context_variables_are_seen_in_the_thread() -> None:
    """A sync tool sees what the run has set."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("here")
    threads = Threads(1)
    assert (await threads.run(variable.get)).value == "here"
    threads.close()


async def test_closing_lets_the_threads_end() -> None:
    """Idle threads go away, and those that are busy when they are done."""
    threads = Threads(2)
    names: list[threading.Thread] = []
    await threads.run(lambda: names.append(threading.current_thread()))
    threads.close()
    await asyncio.to_thread(names[0].join, BOUND_S)
    assert not names[0].is_alive()
    assert threads.count == 0


def test_a_result_for_a_loop_that_is_gone_is_dropped() -> None:
    """A function that outlives its loop does not kill the thread it ran in."""
    threads = Threads(1)
    release, entered, done = threading.Event(), threading.Event(), threading.Event()

    async def leave() -> None:
        task = asyncio.create_task(threads.run(lambda: (entered.set(), release.wait(BOUND_S))))
        await asyncio.to_thread(entered.wait, BOUND_S)
        task.cancel()

    asyncio.run(leave())
    release.set()
    asyncio.run(threads.run(done.set))  # type: ignore[arg-type]
    assert done.is_set()
    assert threads.count == 1
    threads.close()


async def test_what_takes_too_long_is_not_waited_for() -> None:
    """Who runs goes on unheard; who has not begun by then never does."""
    threads = Threads(1)
    release, ran = threading.Event(), threading.Event()
    assert await threads.run(lambda: release.wait(BOUND_S), 0.01) is LATE
    assert await threads.run(ran.set, 0.01) is LATE
    release.set()
    assert (await threads.run(lambda: 7, BOUND_S)).value == 7
    assert not ran.is_set()
    threads.close()
