"""Locks that let one run at a time continue a session, and the session's head: the run that the next one continues."""

import asyncio

from treadle.core.errors import Conflict, NotFound
from treadle.core.events import ENDED
from treadle.core.journal_entries import ITEM_KINDS
from treadle.journal.journal_interface import RunRow, SessionRow, Store, busy


class SessionLock:
    """The exclusive right to continue a session; held by one run from before its start until its end is processed."""

    def __init__(self, session_id: str, key_id: str) -> None:
        self.session_id = session_id
        self.key_id = key_id
        self.head: str | None = None
        self.run_id: str | None = None
        self.has_ended = False
        self.released = asyncio.Event()


class SessionLocks:
    """The session locks of this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._locks: dict[tuple[str, str], SessionLock] = {}

    async def enter(self, session_id: str, key_id: str) -> SessionLock:
        """Lock a session; if the run that holds the lock has ended, wait until it has advanced the session.

        Raises: Conflict while another run is active; NotFound.
        """
        key = (key_id, session_id)
        while (holder := self._locks.get(key)) is not None:
            if not (holder.has_ended or await self._has_ended(holder)):
                raise busy(session_id)
            await holder.released.wait()
        lock = self._locks[key] = SessionLock(session_id, key_id)
        try:
            session = await self._store.find_session(session_id, key_id=key_id)
            if session is None:
                raise NotFound(f"No session {session_id!r}.", param="session")
            lock.head = await self._head(session)
        except BaseException:
            self.leave(lock)
            raise
        return lock

    async def _has_ended(self, lock: SessionLock) -> bool:
        """Return whether the run that holds the lock has ended: another process may know that before this one does."""
        row = None if lock.run_id is None else await self._store.find_run(lock.run_id)
        return row is not None and row.status in ENDED

    async def _head(self, session: SessionRow) -> str | None:
        """Return the head of a session; it is advanced now if a process died between the end of its run and that.

        A run that ended before the session's last change is on an abandoned branch.
        """
        head = session.head_run_id
        for run in await self._store.list_runs(session_id=session.id, limit=1):
            is_newer = run.status in ENDED and (run.ended_at or 0.0) >= session.updated_at
            if run.previous_id == head and is_newer and await self._has_output(run):
                return await self.advance(session.id, run.id, head)
        return head

    async def advance(self, session_id: str, run_id: str, expected: str | None) -> str | None:
        """Make a run the head of a session, unless the head has changed; return the head.

        The process that drove the run and the one that starts the next may do so at the same time.
        Raises: NotFound, StoreError.
        """
        try:
            await self._store.set_session_head(session_id, run_id, expected=expected)
        except Conflict:
            moved = await self._store.find_session(session_id)
            return expected if moved is None else moved.head_run_id
        return run_id

    async def _has_output(self, run: RunRow) -> bool:
        """Return whether a run produced any item, so that the session continues from it."""
        entries = await self._store.entries(run.id)
        return any(not entry.is_input and entry.kind in ITEM_KINDS for entry in entries)

    def leave(self, lock: SessionLock | None) -> None:
        """Release a lock."""
        if lock is None:
            return
        self._locks.pop((lock.key_id, lock.session_id), None)
        lock.released.set()
