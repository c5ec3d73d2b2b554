"""Runs guests in threads of this process, with large stacks and a connection to the event loop."""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from treadle.core.items import CallItem
from treadle.core.tool_definitions import CallContext
from treadle.wasm.engine.guest_instance import Control
from treadle.wasm.engine.guest_limits import GuestStopped, Stop
from treadle.wasm.engine.wasmtime_engine import THREAD_STACK_BYTES
from treadle.wasm.execution.conversation_runs import ConversationRuns, GuestConversation
from treadle.wasm.execution.thread_messages import Answered, Ask, GuestOutput, OutputHandler, Sent, Wanted

T = TypeVar("T")
GIVE_UP_S = 10.0
"""How long a stopped guest waits for the end of its run to be recorded."""

_stack_lock = threading.Lock()


async def run_in_thread(work: Callable[[], T], name: str) -> T:
    """Run blocking work in a new thread whose stack is larger than any guest's.

    Cancellation does not end the work: the caller must also stop the guest.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def set_outcome(value: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)  # pyright: ignore[reportArgumentType]

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as raised:
            error = raised
            raise
        finally:
            # An abandoned guest may end after the loop is closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(set_outcome, value, error)

    # stack_size() is global to the process, so another thread must not start in between.
    with _stack_lock:
        before = threading.stack_size(THREAD_STACK_BYTES)
        try:
            threading.Thread(target=run, name=name, daemon=True).start()
        finally:
            threading.stack_size(before)
    return await done


class ThreadLine:
    """The connection of a guest that runs in a thread; implements `Line`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        conversations: ConversationRuns,
        conversation: GuestConversation,
        control: Control,
        on_output: OutputHandler,
    ) -> None:
        self._loop = loop
        self._conversations = conversations
        self._control = control
        self._on_output = on_output
        self._conversation = conversation
        self._is_ending = False
        self._inbox: queue.SimpleQueue[Wanted | Sent | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._call: asyncio.Future[Answered] | None = None
        control.on_cancel(lambda: self._inbox.put(None))

    def ask(self, ask: Ask) -> None:
        """Start a send."""
        self._over.clear()
        self._loop.call_soon_threadsafe(self._start_send, ask)

    def next(self) -> Wanted | Sent:
        """Wait for the send's next tool call, or its end.

        Raises: GuestStopped.
        """
        try:
            got = self._inbox.get(timeout=max(0.0, self._control.deadline - time.monotonic()))
        except queue.Empty:
            self._control.must_stop()
            got = None
        if got is None:
            raise GuestStopped(self._control.stop or _OUT_OF_TIME)
        return got

    def answer(self, answered: Answered) -> None:
        """Return the outcome of the last tool call."""
        self._loop.call_soon_threadsafe(self._answer, answered)

    def give_up(self) -> None:
        """Cancel the current send, and wait until its end is recorded."""
        self._loop.call_soon_threadsafe(self._cancel)
        self._over.wait(GIVE_UP_S)

    def write_output(self, said: GuestOutput) -> None:
        """Forward what the guest logs or prints."""
        self._loop.call_soon_threadsafe(self._on_output, said)

    def _start_send(self, ask: Ask) -> None:
        self._task = self._loop.create_task(self._serve(ask), name="treadle-guest-send")

    async def _serve(self, ask: Ask) -> None:
        try:
            self._inbox.put(await self._conversations.serve(ask, self._call_guest_tool, self._conversation))
        finally:
            self._over.set()

    async def _call_guest_tool(self, call: CallItem, context: CallContext) -> Answered:
        self._call = self._loop.create_future()
        self._inbox.put(Wanted(call=call, round=context.round, run_id=context.run_id))
        return await self._call

    def _answer(self, answered: Answered) -> None:
        if self._call is not None and not self._call.done():
            self._is_ending = answered.stop is not None
            self._call.set_result(answered)

    def _cancel(self) -> None:
        if self._task is None or self._task.done():
            self._over.set()
            return
        # If a call ended the guest, the run records that call's outcome and is cancelled by the toolbox.
        if not self._is_ending:
            self._task.cancel()


_OUT_OF_TIME = Stop(code="timeout", message="The guest's time is used up.")
