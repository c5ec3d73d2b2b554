"""The minutes of a run: what happens is written down here, made durable, and told once it is, in order."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from treadle.canon.errors import StoreError, TreadleError
from treadle.canon.events import Numbered, RunEnded
from treadle.engine.ports import Journal
from treadle.engine.steps import Step

SOON_S = 0.005
"""How long the call of a tool that only reads waits for its result, to be written with it."""

Publish = Callable[[list[Numbered]], None]


class Minutes:
    """Keeps the steps of a run until they are written, and tells them to whoever hears the run.

    What has no entry of its own and stands in front of the first that has is told without waiting for a write. While
    no step waits, whoever has only such things to tell may `publish` them.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._journal: Journal | None = None
        self.publish: Publish = _tell_nobody
        self._soon: asyncio.TimerHandle | None = None
        self._behind: tuple[list[Step], asyncio.Future[int]] | None = None

    def attach(self, journal: Journal, publish: Publish) -> None:
        """Say where to write and whom to tell."""
        self._journal, self.publish = journal, publish

    def detach(self) -> None:
        """Let go of both, and of what was not begun: they hold the run too, and such a ring is not freed at once."""
        self._put_off()
        self._journal, self.publish = None, _tell_nobody

    def write_soon(self) -> None:
        """Begin to write in a moment, unless `write` comes before and writes this with what it has.

        For what may run before it is durable: an answer that comes at once then shares a commit with its question.
        """
        self._soon = asyncio.get_running_loop().call_later(SOON_S, self._write_behind)

    async def write(self, ended: RunEnded | None = None) -> None:
        """Tell what may be told at once, make the rest durable, then tell it, in order.

        A cancellation that comes meanwhile is raised afterwards; one that comes with the end is too late.
        Raises: StoreError.
        """
        self._put_off()
        cancelled = None
        if self._behind is not None:
            (due, write), self._behind = self._behind, None
            cancelled = await wait_out(write)
            _check(write)
            self._tell(due, write)
        due = self._take()
        if due:
            assert self._journal is not None
            entries = [entry for _, entry in due if entry is not None]
            write = self._journal.append(entries, ended)
            cancelled = await wait_out(write) or cancelled
            _check(write)
            self._tell(due, write)
        if cancelled is not None and ended is None:
            raise cancelled

    def _put_off(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def _write_behind(self) -> None:
        self._soon = None
        due = self._take()
        if due:
            assert self._journal is not None
            write = self._journal.append([entry for _, entry in due if entry is not None])
            self._behind = due, write
            write.add_done_callback(partial(self._tell, due))

    def _take(self) -> list[Step]:
        """Tell what may be told at once; take the rest."""
        due = self.steps.copy()
        self.steps.clear()
        first = 0
        while first < len(due) and due[first][1] is None:
            first += 1
        if first:
            self.publish([Numbered(event=event) for event, _ in due[:first] if event is not None])
            del due[:first]
        return due

    def _tell(self, written: list[Step], write: "asyncio.Future[int]") -> None:
        """Tell what was written, with its numbers, and take it off the list: whoever comes later tells it no more.

        What could not be written is never told.
        """
        if not written or write.cancelled() or write.exception() is not None:
            return
        seq = write.result() - sum([entry is not None for _, entry in written])
        batch: list[Numbered] = []
        for event, entry in written:
            seq += entry is not None
            if event is not None:
                batch.append(Numbered(event=event, seq=0 if entry is None else seq))
        written.clear()
        self.publish(batch)


async def wait_out(work: "asyncio.Future[Any]") -> asyncio.CancelledError | None:
    """Wait for something that must not be left half done; return the cancellation that came meanwhile."""
    cancelled = None
    while not work.done():
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work.add_done_callback(partial(_wake, waiter))
        try:
            await waiter
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


def _wake(waiter: "asyncio.Future[None]", _: "asyncio.Future[Any]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def _check(write: "asyncio.Future[int]") -> None:
    """Raise what a write has met, as a failure of the journal."""
    error = write.exception()
    if isinstance(error, TreadleError) and not isinstance(error, StoreError):
        raise StoreError(f"The journal refused the entry: {error.message}", code=error.info.code) from error
    if error is not None:
        raise error


def _tell_nobody(_: list[Numbered]) -> None:
    """Drop the events of a run that nobody watches."""
