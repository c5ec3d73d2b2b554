"""Ctrl-C and SIGTERM for a command that runs turns."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from treadle.terminal import exit_codes as exits


class Turns(Protocol):
    """Something with turns, which a signal cancels before the program."""

    @property
    def is_running(self) -> bool:
        """Return whether a turn is running."""
        ...

    def cancel(self) -> None:
        """Cancel the running turn."""
        ...


class Interrupts:
    """Handles SIGINT, SIGTERM and SIGHUP: they cancel the running turn, else the program.

    `idle` may handle a Ctrl-C while no turn runs; `leave` is called when the program should end after the turn.
    """

    def __init__(self) -> None:
        self._turns: Turns | None = None
        self._task: asyncio.Task[Any] | None = None
        self.idle: Callable[[], bool] = lambda: False
        self.leave: Callable[[], None] = lambda: None
        self.is_terminated = False

    def watch(self) -> None:
        """Install the signal handlers, for the current task."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        # Loops on Windows know no signal handlers; there Ctrl-C stays a KeyboardInterrupt.
        with contextlib.suppress(NotImplementedError, AttributeError):
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self._terminate)

    def guard(self, turns: Turns) -> None:
        """Set the conversation whose turns are cancelled first."""
        self._turns = turns

    @property
    def exit_code(self) -> int:
        """Return the exit code of the signal that ended the program."""
        return exits.TERMINATED if self.is_terminated else exits.CANCELLED

    def _terminate(self) -> None:
        """End the turn, and the program after it."""
        self.is_terminated = True
        # The turn is cancelled first, so that its end is stored; the loop then sees that it should not read on.
        self.leave()
        if self._turns is not None and self._turns.is_running:
            self._turns.cancel()
        elif self._task is not None:
            self._task.cancel()

    def _interrupt(self) -> None:
        if self._turns is not None and self._turns.is_running:
            self._turns.cancel()
        elif not self.idle() and self._task is not None:
            self._task.cancel()


def run_interruptible(main: Callable[[Interrupts], Coroutine[Any, Any, int]]) -> int:
    """Run a command's main coroutine; a signal that comes while no turn is running ends it, with the signal's code."""
    interrupts = Interrupts()
    try:
        return asyncio.run(main(interrupts))
    except asyncio.CancelledError:
        return interrupts.exit_code
