"""Sessions: where a conversation goes on, and that only one run at a time carries it further."""

import asyncio

from treadle.core.errors import Conflict, NotFound
from treadle.core.events import ENDED
from treadle.core.journal_entries import ITEM_KINDS
from treadle.journal.journal_interface import RunRow, SessionRow, Store, busy


class SessionLock:
    """The right to carry a session further; held by one run from before it starts until its end is tidied up."""

    def __init__(self, session_id: str, key_id: str) -> None:
        self.session_id = session_id
        self.key_id = key_id
        self.head: str | None = None
        self.run_id: str | None = None
        self.has_ended = False
        self.released = asyncio.Event()


class SessionLocks:
    """Hands out the seats of the sessions that runs of this process use."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._locks: dict[tuple[str, str], SessionLock] = {}

    async def enter(self, session_id: str, key_id: str) -> SessionLock:
        """Take the session's seat; after a run that has told its end this waits until it has moved the session on.

        Raises: Conflict while another run is going on; NotFound.
        """
        place = (key_id, session_id)
        while (taken := self._locks.get(place)) is not None:
            if not (taken.has_ended or await self._has_ended(taken)):
                raise busy(session_id)
            await taken.released.wait()
        seat = self._locks[place] = SessionLock(session_id, key_id)
        try:
            session = await self._store.find_session(session_id, key_id=key_id)
            if session is None:
                raise NotFound(f"No session {session_id!r}.", param="session")
            seat.head = await self._head(session)
        except BaseException:
            self.leave(seat)
            raise
        return seat

    async def _has_ended(self, seat: SessionLock) -> bool:
        """Return whether the run that holds the lock has ended: another process may know that before this one does."""
        row = None if seat.run_id is None else await self._store.find_run(seat.run_id)
        return row is not None and row.status in ENDED

    async def _head(self, session: SessionRow) -> str | None:
        """Return where a session goes on; it is moved on now if a process died between the end of a run and that.

        A run that ended before the session was last moved stands on a branch that somebody left.
        """
        head = session.head_run_id
        for run in await self._store.list_runs(session_id=session.id, limit=1):
            is_newer = run.status in ENDED and (run.ended_at or 0.0) >= session.updated_at
            if run.previous_id == head and is_newer and await self._has_output(run):
                return await self.advance(session.id, run.id, head)
        return head

    async def advance(self, session_id: str, run_id: str, expected: str | None) -> str | None:
        """Let a session go on from a run, unless somebody else has moved it meanwhile; return where it stands.

        Who drove the run and who begins the next one may do so at the same moment, in two processes.
        Raises: NotFound, StoreError.
        """
        try:
            await self._store.set_session_head(session_id, run_id, expected=expected)
        except Conflict:
            moved = await self._store.find_session(session_id)
            return expected if moved is None else moved.head_run_id
        return run_id

    async def _has_output(self, run: RunRow) -> bool:
        """Return whether anything was said or done in a run, so that the session goes on from it."""
        entries = await self._store.entries(run.id)
        return any(not entry.is_input and entry.kind in ITEM_KINDS for entry in entries)

    def leave(self, seat: SessionLock | None) -> None:
        """Give the seat back."""
        if seat is None:
            return
        self._locks.pop((seat.key_id, seat.session_id), None)
        seat.released.set()
