# ruff: noqa: D102 - the methods are documented in journal_interface
"""The part of a store that is the same on SQLite and PostgreSQL: which steps each read and each deletion consists of.

Starting, claiming and writing runs, connections and transactions belong to the databases.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from treadle.core.events import Status
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import (
    AuditLine,
    Chunk,
    Evidence,
    RunRow,
    RunSearch,
    SessionKind,
    SessionRow,
    StoredTurn,
)
from treadle.journal.keys_store import StoredTickets
from treadle.journal.retention import EXPIRE_RUNS_MAX, Retention
from treadle.journal.run_queries import RunQueries, RunStatements
from treadle.journal.session_queries import SessionQueries
from treadle.journal.sql_steps import Access, RunSteps, SqlDialect, Steps
from treadle.journal.workspaces_store import StoredWorkspaces

T = TypeVar("T")


class StoreFacade(ABC):
    """What `journal_interface.Store` promises, over the five ways in which a database runs steps."""

    def __init__(self, dialect: SqlDialect, statements: RunStatements, clock: Callable[[], float]) -> None:
        self._dialect = dialect
        self._clock = clock
        self._queries = RunQueries(dialect, statements)
        self._retention = Retention(dialect)
        self._sessions = SessionQueries(dialect, self._retention)

    @abstractmethod
    async def _read(self, steps: Callable[[], Steps[T]]) -> T:
        """Run steps that read what is stored, and all that this process has started."""

    @abstractmethod
    async def _read_stored(self, steps: Callable[[], Steps[T]]) -> T:
        """Run steps that read nothing of a run whose start is still to be written."""

    @abstractmethod
    async def _write(self, steps: Callable[[], Steps[T]], settle: Callable[[], Steps[T | None]] | None = None) -> T:
        """Run a statement that writes; see `sql_steps.Access`."""

    @abstractmethod
    async def _transact(self, steps: Callable[[], Steps[T]], settle: Callable[[], Steps[T | None]] | None = None) -> T:
        """Run steps that write, together or not at all."""

    @abstractmethod
    async def _forget(self, steps: Callable[[], Steps[T]]) -> T:
        """Run steps that delete content, together or not at all."""

    @abstractmethod
    async def evidence(self, run_id: str) -> Evidence: ...

    @property
    def tickets(self) -> StoredTickets:
        return StoredTickets(self._access(self._read_stored))

    @property
    def workspaces(self) -> StoredWorkspaces:
        return StoredWorkspaces(self._access())

    def _access(self, read: RunSteps | None = None) -> Access:
        return Access(self._dialect, read or self._read, self._write, self._transact, self._forget)

    async def find_idempotent(self, idempotency_key: str, *, key_id: str) -> RunRow | None:
        return await self._read_stored(partial(self._queries.find_idempotent, idempotency_key, key_id))

    async def cancel_requests(self, owner: str) -> list[str]:
        return await self._read_stored(partial(self._queries.cancel_requests, owner))

    async def chunks(self, run_id: str, *, after: int = 0) -> list[Chunk]:
        return await self._read(partial(self._queries.chunks, run_id, after))

    async def audit(self, run_id: str) -> list[AuditLine]:
        return (await self.evidence(run_id)).lines

    async def find_run(self, run_or_response_id: str, *, key_id: str | None = None) -> RunRow | None:
        return await self._read(partial(self._queries.find_run, run_or_response_id, key_id))

    async def list_runs(
        self,
        *,
        limit: int = 50,
        before: str | None = None,
        status: Status | None = None,
        session_id: str | None = None,
        key_id: str | None = None,
        fingerprint: str | None = None,
    ) -> list[RunRow]:
        wanted = {"status": status, "session_id": session_id, "key_id": key_id, "fingerprint": fingerprint}
        return await self._read(partial(self._queries.list_runs, wanted, limit, before))

    async def search_runs(self, wanted: RunSearch, *, limit: int = 50, before: str | None = None) -> list[RunRow]:
        return await self._read(partial(self._queries.search_runs, wanted, limit, before))

    async def questions(self, run_ids: Sequence[str]) -> dict[str, str]:
        return await self._read(partial(self._queries.questions, run_ids))

    async def entries(
        self, run_id: str, *, after: int = 0, limit: int | None = None, for_next: bool = False
    ) -> list[Entry]:
        return await self._read(partial(self._queries.entries, run_id, after, limit, for_next))

    async def history(self, run_id: str, *, for_next: bool = False) -> list[Entry]:
        return await self._read(partial(self._queries.history, run_id, for_next))

    async def find_item(self, item_id: str, *, key_id: str | None = None) -> list[Entry]:
        return await self._read(partial(self._queries.find_item, item_id, key_id))

    async def find_turns(
        self, call_ids: Sequence[str], questions: Sequence[str], *, key_id: str | None = None
    ) -> list[StoredTurn]:
        return await self._read_stored(partial(self._queries.find_turns, call_ids, questions, key_id))

    async def get_blob(self, sha256: str, offset: int, length: int, *, run_id: str | None = None) -> bytes:
        return await self._read(partial(self._queries.get_blob, sha256, offset, length, run_id))

    async def delete_run(self, run_or_response_id: str) -> bool:
        return await self._forget(partial(self._retention.delete_run, run_or_response_id))

    async def purge_run(self, run_id: str) -> None:
        await self._forget(partial(self._retention.purge_run, run_id))

    async def expire(self, now: float) -> int:
        count = batch = await self._expire_batch(now)
        while batch == EXPIRE_RUNS_MAX:
            batch = await self._expire_batch(now)
            count += batch
        return count

    async def _expire_batch(self, now: float) -> int:
        return await self._forget(partial(self._retention.expire_runs, now))

    async def create_session(self, row: SessionRow) -> None:
        await self._write(partial(self._sessions.create, row), partial(self._sessions.is_created, row))

    async def find_session(self, id_or_name: str, *, key_id: str | None = None) -> SessionRow | None:
        return await self._read(partial(self._sessions.find, id_or_name, key_id))

    async def list_sessions(
        self,
        limit: int = 50,
        *,
        key_id: str | None = None,
        kind: SessionKind = "session",
        before: str | None = None,
        search: str | None = None,
    ) -> list[SessionRow]:
        return await self._read(partial(self._sessions.page, limit, before, kind, key_id, search))

    async def update_session(
        self, session_id: str, *, name: str | None = None, metadata: msgspec.Raw | None = None
    ) -> SessionRow:
        return await self._transact(partial(self._sessions.update, session_id, name, metadata))

    async def delete_session(self, session_id: str, *, with_runs: bool) -> bool:
        return await self._forget(partial(self._sessions.delete, session_id, with_runs))

    async def set_session_head(self, session_id: str, run_id: str | None, *, expected: str | None) -> None:
        move = partial(self._sessions.move_head, session_id, run_id, expected, self._clock())
        await self._transact(move, partial(self._sessions.is_moved, session_id, run_id))
