"""Guests as threads of this process: a thread with a stack that is large enough, and a line to the event loop."""

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
from treadle.wasm.execution.thread_messages import Answered, Ask, Hear, Said, Sent, Wanted

T = TypeVar("T")
GIVE_UP_S = 10.0
"""How long a guest that gave up waits for the end of its run to be written down."""

_stack_lock = threading.Lock()


async def run_in_thread(work: Callable[[], T], name: str) -> T:
    """Run blocking work in a thread of its own whose stack no guest can overrun.

    Cancelling this does not end the work: whoever cancels stops the guest too.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(value: T | None, error: BaseException | None) -> None:
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
            # The loop may be gone by the time a guest that was left behind ends.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(tell, value, error)

    with _stack_lock:
        before = threading.stack_size(THREAD_STACK_BYTES)
        try:
            threading.Thread(target=run, name=name, daemon=True).start()
        finally:
            threading.stack_size(before)
    return await done


class ThreadLine:
    """The line of a guest that is a thread. Fits `Line`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        desk: ConversationRuns,
        visit: GuestConversation,
        control: Control,
        hear: Hear,
    ) -> None:
        self._loop = loop
        self._desk = desk
        self._control = control
        self._hear = hear
        self._visit = visit
        self._is_ending = False
        self._inbox: queue.SimpleQueue[Wanted | Sent | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._call: asyncio.Future[Answered] | None = None
        control.on_cancel(lambda: self._inbox.put(None))

    def ask(self, ask: Ask) -> None:
        """Begin a send."""
        self._over.clear()
        self._loop.call_soon_threadsafe(self._begin, ask)

    def next(self) -> Wanted | Sent:
        """Wait for what the send wants next, or its end.

        Raises: Stopped.
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
        """Answer the call that was wanted last."""
        self._loop.call_soon_threadsafe(self._answer, answered)

    def give_up(self) -> None:
        """End the send that is going on, and wait until that is written down."""
        self._loop.call_soon_threadsafe(self._cancel)
        self._over.wait(GIVE_UP_S)

    def say(self, said: Said) -> None:
        """Pass on what the guest logs or prints."""
        self._loop.call_soon_threadsafe(self._hear, said)

    def _begin(self, ask: Ask) -> None:
        self._task = self._loop.create_task(self._serve(ask), name="treadle-guest-send")

    async def _serve(self, ask: Ask) -> None:
        try:
            self._inbox.put(await self._desk.serve(ask, self._want, self._visit))
        finally:
            self._over.set()

    async def _want(self, call: CallItem, context: CallContext) -> Answered:
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
        # Where a call ended the guest, its run takes that call's result and ends by itself.
        if not self._is_ending:
            self._task.cancel()


_OUT_OF_TIME = Stop(code="timeout", message="The guest's time is used up.")
