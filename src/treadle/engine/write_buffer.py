"""The minutes of a run: what happens is written down here, made durable, and told once it is, in order."""

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
"""How long the call of a tool that only reads waits for its result, to be written with it."""

Publish = Callable[[list[Numbered]], None]
"""Tells what happened; that is never nothing."""


class WriteBuffer:
    """Keeps the steps of a run until they are written, and tells them to whoever hears the run.

    What has no entry of its own and stands in front of the first that has is told without waiting for a write, unless
    the run `is_private` and ends with it: then nobody hears before the end. While no step waits, whoever has only such
    things to tell may `publish` them.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._journal: Journal | None = None
        self.publish: Publish = _drop_events
        self._is_private = False
        self._timer: asyncio.TimerHandle | None = None
        self._pending: tuple[list[Step], int, asyncio.Future[int]] | None = None

    def attach(self, journal: Journal, publish: Publish, *, is_private: bool = False) -> None:
        """Say where to write and whom to tell."""
        self._journal, self.publish, self._is_private = journal, publish, is_private

    def detach(self) -> None:
        """Let go of both, and of what was not begun: they hold the run too, and such a ring is not freed at once."""
        if self._timer is not None:
            self._cancel_timer(self._timer)
        self._journal, self.publish = None, _drop_events

    def write_soon(self) -> None:
        """Begin to write in a moment, unless `write` comes before and writes this with what it has.

        For what may run before it is durable: an answer that comes at once then shares a commit with its question.
        """
        self._timer = asyncio.get_running_loop().call_later(WRITE_DELAY_S, self._start_write)

    async def write(self, ended: RunEnded | None = None) -> None:
        """Tell what may be told at once, make the rest durable, then tell it, in order.

        A cancellation that comes meanwhile is raised afterwards; one that comes with the end is too late.
        Raises: StoreError.
        """
        if self._timer is not None:
            self._cancel_timer(self._timer)
        cancelled = None
        if self._pending is not None:
            (due, count, write), self._pending = self._pending, None
            cancelled = await wait_uninterrupted(write)
            self._publish_written(due, _last_seq(write) - count)
        if self.steps:
            due, entries = self._take_steps(is_held=self._is_private and ended is not None)
            if entries:
                assert self._journal is not None
                write = self._journal.append(entries, ended)
                cancelled = await wait_uninterrupted(write) or cancelled
                self._publish_written(due, _last_seq(write) - len(entries))
        if cancelled is not None and ended is None:
            try:
                raise cancelled
            finally:
                del cancelled  # as above

    def _cancel_timer(self, soon: asyncio.TimerHandle) -> None:
        soon.cancel()
        self._timer = None

    def _start_write(self) -> None:
        self._timer = None
        due, entries = self._take_steps()
        if entries:
            assert self._journal is not None
            write = self._journal.append(entries)
            self._pending = due, len(entries), write
            write.add_done_callback(partial(self._write_done, due, len(entries)))

    def _write_done(self, due: list[Step], count: int, write: "asyncio.Future[int]") -> None:
        """Tell what was written, unless somebody has; what could not be written is never told."""
        if not write.cancelled() and write.exception() is None:
            self._publish_written(due, write.result() - count)

    def _take_steps(self, *, is_held: bool = False) -> tuple[list[Step], list[Entry]]:
        """Tell what may be told at once, unless it is held; take the rest, and the entries in it."""
        due = self.steps.copy()
        self.steps.clear()
        if not is_held:
            free: list[Numbered] = []
            for event, entry in due:
                if entry is not None or event is None:
                    break
                free.append(Numbered(event=event))
            if free:
                del due[: len(free)]
                self.publish(free)
        return due, [entry for _, entry in due if entry is not None]

    def _publish_written(self, due: list[Step], seq: int) -> None:
        """Tell what was written behind the entry of that number, and take it off the list: whoever comes later tells
        it no more."""
        batch: list[Numbered] = []
        for event, entry in due:
            if entry is None:
                if event is not None:
                    batch.append(Numbered(event=event))
                continue
            seq += 1
            if event is not None:
                batch.append(Numbered(event=event, seq=seq))
        due.clear()
        if batch:
            self.publish(batch)


async def wait_uninterrupted(work: "asyncio.Future[Any]") -> asyncio.CancelledError | None:
    """Wait for something that must not be left half done; return the cancellation that came meanwhile."""
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
    """Return the number of the last entry that was written; raise what was met instead, as a failure of the journal."""
    error = write.exception()
    if error is None:
        return write.result()
    if isinstance(error, TreadleError) and not isinstance(error, StoreError):
        raise StoreError(f"The journal refused the entry: {error.message}", code=error.info.code) from error
    raise error


def _drop_events(_: list[Numbered]) -> None:
    """Drop the events of a run that nobody watches."""
