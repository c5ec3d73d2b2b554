"""The journal of a run that is driven again: what is written already is compared and not written twice."""

from asyncio import Future
from collections.abc import Sequence

import msgspec

from treadle.core.errors import StoreError
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import Chunk, RunJournal
from treadle.journal.write_futures import done


class Diverged(StoreError):
    """A run that was driven again came to another entry than the one that is written."""

    code = "replay_diverged"


class Comparison:
    """Compares entries with those of a record, in order; times are not compared."""

    def __init__(self, recorded: Sequence[Entry]) -> None:
        self._recorded = recorded
        self._position = 0

    @property
    def is_over(self) -> bool:
        """Tell whether the whole record has come by."""
        return self._position == len(self._recorded)

    @property
    def expected(self) -> Entry | None:
        """Return the next entry of the record."""
        return None if self.is_over else self._recorded[self._position]

    def take(self, entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
        """Return which of the entries the record holds, as it holds them, and those that come after its end.

        Raises: Diverged.
        """
        known: list[Entry] = []
        for entry in entries:
            expected = self.expected
            if expected is None:
                break
            if timeless(entry) != timeless(expected):
                raise Diverged(_difference(expected, entry))
            known.append(expected)
            self._position += 1
        return known, list(entries[len(known) :])


class Continuation:
    """Fits `RunJournal`: goes on after the recorded entries."""

    def __init__(self, journal: RunJournal, recorded: Sequence[Entry]) -> None:
        self._journal = journal
        self._comparison = Comparison(recorded)

    @property
    def run_id(self) -> str:
        """Return the run this journal writes to."""
        return self._journal.run_id

    @property
    def epoch(self) -> int:
        """Return which owner this is, counted from 1."""
        return self._journal.epoch

    @property
    def attempt(self) -> int:
        """Return how many owners there were that did not give the run up of their own will."""
        return self._journal.attempt

    @property
    def inner(self) -> RunJournal:
        """Return the journal that really writes."""
        return self._journal

    def append(self, entries: Sequence[Entry]) -> "Future[int]":
        """Write what is not written yet.

        Raises: Diverged, and as `RunJournal.append`.
        """
        known, fresh = self._comparison.take(entries)
        return done(known[-1].seq) if known and not fresh else self._journal.append(fresh)

    def finish(self, entries: Sequence[Entry], ended: RunEnded, *, forget: Sequence[str] = ()) -> "Future[int]":
        """Write what is not written yet, and the end.

        Raises: Diverged, and as `RunJournal.finish`.
        """
        _, fresh = self._comparison.take(entries)
        return self._journal.finish(fresh, ended, forget=forget)

    def renew(self) -> "Future[int]":
        """Make the lease run from now."""
        return self._journal.renew()

    async def release(self) -> None:
        """Give the run up."""
        await self._journal.release()

    async def write_chunk(self, chunk: Chunk, *, keep_from: int) -> None:
        """Let other processes read what the run says."""
        await self._journal.write_chunk(chunk, keep_from=keep_from)


def timeless(entry: Entry) -> Entry:
    """Return an entry without its number and without what a clock put into it."""
    data = entry.data
    if entry.kind == "status" and data is not None:
        ended = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        data = msgspec.Raw(msgspec.json.encode({**ended, "ended_at": 0.0}))
    return msgspec.structs.replace(entry, at=0.0, seq=0, data=None if data is None else msgspec.Raw(bytes(data)))


def _difference(expected: Entry, entry: Entry) -> str:
    """Say where two entries differ, by names and not by content."""
    if expected.kind != entry.kind:
        return f"Entry {expected.seq} is a {expected.kind!r}, and this time it was a {entry.kind!r}."
    fields = [
        name for name in Entry.__struct_fields__ if getattr(timeless(expected), name) != getattr(timeless(entry), name)
    ]
    return f"Entry {expected.seq} ({expected.kind}) differs in {', '.join(fields)}."
