"""Buffers a run's steps until they are durable, then publishes them in order.

Steps before the first one with a journal entry are published at once: they wait for nothing.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from treadle.core.errors import StoreError, TreadleError
from treadle.core.events import Numbered, RunEnded
from treadle.core.journal_entries import Entry
from treadle.engine.journal_steps import Step
from treadle.engine.ports import Journal

WRITE_DELAY_S = 0.005
"""How long writing a read-only tool's call is delayed, so that a quick result shares its commit."""

Publish = Callable[[list[Numbered]], None]
"""Publishes a batch of events, which is never empty."""


class WriteBuffer:
    """The steps of one run that are not yet written, and the journal and publisher that they go to.

    A private run (`is_private`) is read at its end only, so its last write holds back the leading events too. While
    `steps` is empty, the caller may `publish` events without entries directly; a delayed write keeps its own steps.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._journal: Journal | None = None
        self.publish: Publish = _drop_events
        self._is_private = False
        self._timer: asyncio.TimerHandle | None = None
        self._delayed: tuple[list[Step], int, asyncio.Future[int]] | None = None

    def attach(self, journal: Journal, publish: Publish, *, is_private: bool = False) -> None:
        """Set the journal and the publisher."""
        self._journal, self.publish, self._is_private = journal, publish, is_private

    def detach(self) -> None:
        """Drop the journal and publisher references, and cancel the timer of a delayed write."""
        # They reference the run: without this the reference cycle waits for the garbage collector.
        if self._timer is not None:
            self._cancel_timer(self._timer)
        self._journal, self.publish = None, _drop_events

    def write_soon(self) -> None:
        """Start a write after a short delay, unless `write` is called before.

        For calls that may run before they are durable: a quick result then shares the commit of its call.
        """
        self._timer = asyncio.get_running_loop().call_later(WRITE_DELAY_S, self._start_write)

    async def write(self, ended: RunEnded | None = None) -> None:
        """Publish the leading steps without entries, make the rest durable, then publish it, in order.

        A cancellation during the write is raised after it, except during the last write: then the run has ended.
        Raises: StoreError.
        """
        if self._timer is not None:
            self._cancel_timer(self._timer)
        cancelled = None
        if self._delayed is not None:
            (taken, entry_count, write), self._delayed = self._delayed, None
            cancelled = await wait_uninterrupted(write)
            self._publish_written(taken, _last_seq(write) - entry_count)
        if self.steps:
            taken, entries = self._take_steps(holds_leading=self._is_private and ended is not None)
            if entries:
                assert self._journal is not None
                write = self._journal.append(entries, ended)
                cancelled = await wait_uninterrupted(write) or cancelled
                self._publish_written(taken, _last_seq(write) - len(entries))
        if cancelled is not None and ended is None:
            try:
                raise cancelled
            finally:
                del cancelled  # it holds this frame through its traceback, see `wait_uninterrupted`

    def _cancel_timer(self, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._timer = None

    def _start_write(self) -> None:
        self._timer = None
        taken, entries = self._take_steps()
        if entries:
            assert self._journal is not None
            write = self._journal.append(entries)
            self._delayed = taken, len(entries), write
            write.add_done_callback(partial(self._write_done, taken, len(entries)))

    def _write_done(self, taken: list[Step], entry_count: int, write: "asyncio.Future[int]") -> None:
        """Publish what was written, unless `write` has; what could not be written is never published."""
        if not write.cancelled() and write.exception() is None:
            self._publish_written(taken, write.result() - entry_count)

    def _take_steps(self, *, holds_leading: bool = False) -> tuple[list[Step], list[Entry]]:
        """Publish the leading steps without entries, unless held; take the rest, and the entries in it."""
        taken = self.steps.copy()
        self.steps.clear()
        if not holds_leading:
            leading: list[Numbered] = []
            for event, entry in taken:
                if entry is not None or event is None:
                    break
                leading.append(Numbered(event=event))
            if leading:
                del taken[: len(leading)]
                self.publish(leading)
        return taken, [entry for _, entry in taken if entry is not None]

    def _publish_written(self, taken: list[Step], seq: int) -> None:
        """Publish the steps whose entries follow sequence number `seq`."""
        batch: list[Numbered] = []
        for event, entry in taken:
            if entry is None:
                if event is not None:
                    batch.append(Numbered(event=event))
                continue
            seq += 1
            if event is not None:
                batch.append(Numbered(event=event, seq=seq))
        # Emptied, because both `write` and `_write_done` may come here with the same list.
        taken.clear()
        if batch:
            self.publish(batch)


async def wait_uninterrupted(work: "asyncio.Future[Any]") -> asyncio.CancelledError | None:
    """Wait for work that must not be abandoned half done; return the cancellation that arrived during the wait."""
    cancelled = None
    while not work.done():
        waiter: asyncio.Future[None] = work.get_loop().create_future()
        work.add_done_callback(partial(_wake, waiter))
        try:
            await waiter
        except asyncio.CancelledError as error:
            # Its traceback holds this frame, which holds the error: a cycle around the whole run.
            cancelled = error.with_traceback(None)
    return cancelled


def _wake(waiter: "asyncio.Future[None]", _: "asyncio.Future[Any]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def _last_seq(write: "asyncio.Future[int]") -> int:
    """Return the last entry number; raise the error of the write, as a StoreError if an entry was refused."""
    error = write.exception()
    if error is None:
        return write.result()
    if isinstance(error, TreadleError) and not isinstance(error, StoreError):
        raise StoreError(f"The journal refused the entry: {error.message}", code=error.info.code) from error
    raise error


def _drop_events(_: list[Numbered]) -> None:
    """Drop events: no publisher is attached."""
