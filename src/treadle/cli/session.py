"""One conversation of the terminal: sends a prompt as a run, yields its events, cancels it, and goes on from it.

Draws nothing and reads nothing: `chat` and `run` do that.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from treadle.canon.errors import ConfigError
from treadle.canon.events import ItemDone, RunEvent, RunStarted, ToolFinished
from treadle.canon.items import AnyItem, text_message
from treadle.canon.request import Request
from treadle.cli import command

if TYPE_CHECKING:
    from treadle.runs import RunHandle
    from treadle.runtime import Runtime


class Interrupts:
    """Ctrl-C and SIGTERM: they cancel the turn that is going on, else the program."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._task: asyncio.Task[Any] | None = None
        self.is_terminated = False

    def watch(self) -> None:
        """Take the signals of this process from now on, for the current task."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        # Loops on Windows know no signal handlers; there Ctrl-C stays a KeyboardInterrupt.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
            loop.add_signal_handler(signal.SIGTERM, self._terminate)

    def guard(self, session: "Session") -> None:
        """Name the session whose turns shall be cancelled first."""
        self._session = session

    @property
    def exit_code(self) -> int:
        """Return the exit code of the signal that ended the program."""
        return command.TERMINATED if self.is_terminated else command.CANCELLED

    def _terminate(self) -> None:
        self.is_terminated = True
        self._interrupt()

    def _interrupt(self) -> None:
        if self._session is not None and self._session.is_running:
            self._session.cancel()
        elif self._task is not None:
            self._task.cancel()


class Session:
    """Keeps the thread: the next prompt continues the last run, by its id, or by its items where nothing is kept."""

    def __init__(self, runtime: "Runtime", model: str) -> None:
        if not model:
            raise ConfigError(
                "which model? There is an upstream, but no default",
                param="default_model",
                hint="name one with -m NAME, or set default_model in treadle.toml",
            )
        self.model = model
        self._runtime = runtime
        self._keeps = runtime.settings.store.persistence == "on"
        self._previous: str | None = None
        self._items: list[AnyItem] = []
        self._handle: RunHandle | None = None
        self._cancelling: asyncio.Future[None] | None = None
        self._is_cancelled = False
        self.is_running = False

    def forget(self) -> None:
        """Begin a new conversation."""
        self._previous = None
        self._items = []

    def cancel(self) -> None:
        """Ask the turn that is going on to end; its events then end with a cancelled run."""
        self._is_cancelled = True
        if self._handle is not None:
            self._cancelling = asyncio.ensure_future(self._handle.cancel())

    async def send(self, prompt: str) -> AsyncGenerator[RunEvent, None]:
        """Run one turn and yield its events.

        Raises: TreadleError, if the run could not be started.
        """
        self._is_cancelled = False
        self.is_running = True
        try:
            async with aclosing(self._run(prompt)) as events:
                async for event in events:
                    yield event
        finally:
            self.is_running = False
            self._handle = None

    async def _run(self, prompt: str) -> AsyncGenerator[RunEvent, None]:
        said = text_message("user", prompt)
        items = (*self._items, said)
        request = Request(protocol="treadle", model=self.model, items=items, previous_response_id=self._previous)
        self._handle = await self._runtime.runs.start(request)
        if self._is_cancelled:
            self.cancel()
        new: list[AnyItem] = [said]
        try:
            async for batch in self._handle.events():
                for numbered in batch:
                    self._follow(numbered.event, new)
                    yield numbered.event
        finally:
            if not self._keeps:
                self._items += new

    def _follow(self, event: RunEvent, new: list[AnyItem]) -> None:
        match event:
            case RunStarted() if self._keeps:
                self._previous = event.response_id
            case ItemDone():
                new.append(event.item)
            case ToolFinished():
                new.append(event.result)
            case _:
                pass


def run_interruptible(main: Callable[[Interrupts], Coroutine[Any, Any, int]]) -> int:
    """Run a command's main coroutine; a signal that comes while no turn is going on ends it, with the signal's code."""
    interrupts = Interrupts()
    try:
        return asyncio.run(main(interrupts))
    except asyncio.CancelledError:
        return interrupts.exit_code
