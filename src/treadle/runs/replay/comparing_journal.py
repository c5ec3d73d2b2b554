"""The journal of a recovered or replayed run: entries that are recorded already are compared, not written twice."""

from asyncio import Future
from collections.abc import Sequence

import msgspec

from treadle.core.errors import StoreError
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import Chunk, RunJournal
from treadle.journal.write_futures import done


class Diverged(StoreError):
    """A recovered or replayed run produced an entry that differs from the recorded one."""

    code = "replay_diverged"


class EntryComparison:
    """Compares entries with the recorded ones, in order; times are ignored."""

    def __init__(self, recorded: Sequence[Entry]) -> None:
        self._recorded = recorded
        self._position = 0

    @property
    def is_over(self) -> bool:
        """Return whether all recorded entries were compared."""
        return self._position == len(self._recorded)

    @property
    def expected(self) -> Entry | None:
        """Return the next recorded entry."""
        return None if self.is_over else self._recorded[self._position]

    def take(self, entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
        """Return the recorded entries that match, and the entries after the end of the record.

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


class RecoveryJournal:
    """Fits `RunJournal`: writes only what comes after the recorded entries."""

    def __init__(self, journal: RunJournal, recorded: Sequence[Entry]) -> None:
        self._journal = journal
        self._comparison = EntryComparison(recorded)

    @property
    def run_id(self) -> str:
        """Return the id of the run."""
        return self._journal.run_id

    @property
    def epoch(self) -> int:
        """Return the number of this owner, counted from 1."""
        return self._journal.epoch

    @property
    def attempt(self) -> int:
        """Return how many owners have not released the run voluntarily."""
        return self._journal.attempt

    @property
    def inner(self) -> RunJournal:
        """Return the wrapped journal."""
        return self._journal

    def append(self, entries: Sequence[Entry]) -> "Future[int]":
        """Write the entries that are not recorded yet.

        Raises: Diverged, and as `RunJournal.append`.
        """
        known, fresh = self._comparison.take(entries)
        return done(known[-1].seq) if known and not fresh else self._journal.append(fresh)

    def finish(self, entries: Sequence[Entry], ended: RunEnded, *, forget: Sequence[str] = ()) -> "Future[int]":
        """Write the entries that are not recorded yet, and the end.

        Raises: Diverged, and as `RunJournal.finish`.
        """
        _, fresh = self._comparison.take(entries)
        return self._journal.finish(fresh, ended, forget=forget)

    def renew(self) -> "Future[int]":
        """Renew the lease."""
        return self._journal.renew()

    async def release(self) -> None:
        """Release the run."""
        await self._journal.release()

    async def write_chunk(self, chunk: Chunk, *, keep_from: int, is_durable: bool = False) -> None:
        """Write a live chunk for readers in other processes."""
        await self._journal.write_chunk(chunk, keep_from=keep_from, is_durable=is_durable)


def timeless(entry: Entry) -> Entry:
    """Return an entry without its sequence number and its times."""
    data = entry.data
    if entry.kind == "status" and data is not None:
        ended = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        data = msgspec.Raw(msgspec.json.encode({**ended, "ended_at": 0.0}))
    return msgspec.structs.replace(entry, at=0.0, seq=0, data=None if data is None else msgspec.Raw(bytes(data)))


def _difference(expected: Entry, entry: Entry) -> str:
    """Describe where two entries differ, by field names and not by content."""
    if expected.kind != entry.kind:
        return f"Entry {expected.seq} is a {expected.kind!r}, and this time it was a {entry.kind!r}."
    fields = [
        name for name in Entry.__struct_fields__ if getattr(timeless(expected), name) != getattr(timeless(entry), name)
    ]
    return f"Entry {expected.seq} ({expected.kind}) differs in {', '.join(fields)}."
