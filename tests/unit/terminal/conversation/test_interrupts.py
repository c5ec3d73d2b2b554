"""Signals: a turn is cancelled before the program is."""

import asyncio
import os
import signal

import pytest

from treadle.terminal.conversation.interrupts import Interrupts, run_interruptible


class Turns:
    """A conversation that may be going on."""

    def __init__(self, is_running: bool) -> None:
        self.is_running = is_running
        self.cancelled = asyncio.Event()

    def cancel(self) -> None:
        """Remember it."""
        self.is_running = False
        self.cancelled.set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_turn_and_not_the_program(number: signal.Signals) -> None:
    """While a turn runs it is cancelled; the task goes on."""
    turns, interrupts = Turns(True), Interrupts()
    interrupts.watch()
    interrupts.guard(turns)
    os.kill(os.getpid(), number)
    await asyncio.wait_for(turns.cancelled.wait(), 5)
    assert interrupts.is_terminated == (number == signal.SIGTERM)


async def test_a_signal_while_idle_ends_the_program() -> None:
    """Without a turn the signal cancels the main task."""
    interrupts = Interrupts()

    async def main() -> None:
        interrupts.watch()
        interrupts.guard(Turns(False))
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asyncio.Event().wait(), 5)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(main())
    assert (interrupts.is_terminated, interrupts.exit_code) == (True, 143)


async def test_an_idle_interrupt_may_be_taken() -> None:
    """A chat warns first."""
    interrupts, heard = Interrupts(), asyncio.Event()

    def take() -> bool:
        heard.set()
        return True

    interrupts.watch()
    interrupts.idle = take
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.wait_for(heard.wait(), 5)


def test_the_code_of_a_signal_is_the_exit_code() -> None:
    """130 for Ctrl-C."""

    async def main(interrupts: Interrupts) -> int:
        interrupts.watch()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(asyncio.Event().wait(), 5)
        return 0

    assert run_interruptible(main) == 130


async def test_who_talks_is_told_to_leave_after_the_turn() -> None:
    """SIGTERM ends a chat, also one that is in the middle of a turn; Ctrl-C does not."""
    turns, interrupts, left = Turns(True), Interrupts(), list[str]()
    interrupts.watch()
    interrupts.guard(turns)
    interrupts.leave = lambda: left.append("left")
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.wait_for(turns.cancelled.wait(), 5)
    assert left == []
    turns.cancelled.clear()
    turns.is_running = True
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(turns.cancelled.wait(), 5)
    assert left == ["left"]
