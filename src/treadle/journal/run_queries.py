"""Reads runs and their entries, as steps for either database.

What must fit together is read by one statement, so that it is of one state. What a database needs its own plan for is
in its `RunStatements`.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from treadle.core.errors import NotFound
from treadle.core.journal_entries import ITEM_KINDS, Entry
from treadle.core.request import DIRECT_MODEL
from treadle.journal.journal_interface import QUESTION_CHARS_MAX, Chunk, RunRow, RunSearch, StoredTurn
from treadle.journal.sql_steps import SqlDialect, Steps, within

TURNS_MAX = 256
"""How many remembered turns one conversation brings back."""
BLOB_BYTES_MAX = 2**30
SHOWN = "(r.store OR r.ended_at IS NULL)"
"""What a run that is not stored leaves behind is for the run that comes next alone."""
EVENTS = "events e LEFT JOIN blobs b ON b.sha256 = e.blob"
ITEMS = "e.kind IN (" + ", ".join(f"'{kind}'" for kind in sorted(ITEM_KINDS)) + ")"
_RUN_NUMBER = "SELECT n FROM runs WHERE id = $1"

_CHUNKS = f"""
SELECT c.first, c.count, c.data FROM chunks c
WHERE c.run = ({_RUN_NUMBER}) AND c.first + c.count - 1 > $2 ORDER BY c.first
"""
_BLOB = f"""
SELECT substr(data, CAST($2 AS int) + 1, CAST($3 AS int)) FROM blobs WHERE sha256 = $1 AND (
  CAST($4 AS text) IS NULL OR EXISTS (
    SELECT 1 FROM blob_uses u JOIN runs owner ON owner.n = u.run JOIN runs reader ON reader.id = $4
    WHERE u.blob = $1 AND owner.key_id = reader.key_id AND (
      owner.n = reader.n OR owner.conversation_id = reader.conversation_id OR owner.session_id = reader.session_id
      OR (owner.model = '{DIRECT_MODEL}' AND reader.model = '{DIRECT_MODEL}'))))
"""


class RunStatements(msgspec.Struct, frozen=True, kw_only=True):
    """The reads for which each database has its own SQL.

    `is_called`, where there is one, finds out cheaply that `find_turns` would find nothing; `question` is what a run
    was asked, `error_code` a condition on the code of a run's error.
    """

    history: str
    find_item: str
    find_turns: str
    question: str
    error_code: str
    cancel_requests: str
    is_called: str | None = None


class RunQueries:
    """The reads of runs in one database's SQL."""

    def __init__(self, dialect: SqlDialect, statements: RunStatements) -> None:
        self._dialect = dialect
        self._sql = statements
        fields, in_list = dialect.run_fields, dialect.in_list.format("$1")
        self._conditions = {
            "status": "r.status = {}",
            "session_id": "r.session_id = {}",
            "key_id": "r.key_id = {}",
            "fingerprint": f"r.n IN (SELECT f.run FROM events f WHERE f.fingerprint = {{}}) AND {SHOWN}",
            "model": "r.model = {}",
            "tool": "EXISTS (SELECT 1 FROM events t WHERE t.run = r.n AND t.kind = 'tool_call' AND NOT t.is_input"
            f" AND t.name = {{}}) AND {SHOWN}",
            "error": f"r.error IS NOT NULL AND {statements.error_code}",
            "text": f"EXISTS (SELECT 1 FROM events e WHERE e.run = r.n AND {ITEMS}"
            f" AND {dialect.holds.format('e.content', '{}')}) AND {SHOWN}",
            "since": "r.created_at >= CAST({} AS double precision)",
        }
        self._find_run = f"""
SELECT {fields} FROM runs r WHERE (r.id = $1 OR r.response_id = $1) AND (CAST($2 AS text) IS NULL OR r.key_id = $2)
"""
        same_key = dialect.same_key.format("r.idempotency_key", "$2")
        self._find_idempotent = f"SELECT {fields} FROM runs r WHERE r.key_id = $1 AND {same_key}"
        self._entries = f"""
SELECT {dialect.entry_fields} FROM {EVENTS}
WHERE e.run = (SELECT r.n FROM runs r WHERE r.id = $1 AND ({SHOWN} OR CAST($4 AS bool))) AND e.seq > $2
ORDER BY e.seq LIMIT $3
"""
        self._questions = f"""
SELECT r.id, substr({statements.question}, 1, {QUESTION_CHARS_MAX}) FROM runs r WHERE r.id {in_list} AND {SHOWN}
"""

    def find_run(self, run_or_response_id: str, key_id: str | None) -> Steps[RunRow | None]:
        """Return the run of that id or response id."""
        bind = self._dialect.bind_text
        found = yield self._find_run, bind(run_or_response_id), bind(key_id)
        return self._dialect.read_run(found[0]) if found else None

    def find_idempotent(self, idempotency_key: str, key_id: str) -> Steps[RunRow | None]:
        """Return the run that was started under this idempotency key."""
        bind = self._dialect.bind_text
        found = yield self._find_idempotent, bind(key_id), bind(idempotency_key)
        return self._dialect.read_run(found[0]) if found else None

    def list_runs(self, wanted: dict[str, Any], limit: int, before: str | None) -> Steps[list[RunRow]]:
        """Return a page of the runs that have these values, newest first; a value that is None narrows nothing.

        Raises: NotFound.
        """
        bind, read = self._dialect.bind_text, self._dialect.read_run
        values: list[Any] = []
        conditions: list[str] = []
        for name, value in wanted.items():
            if value is not None:
                values.append(bind(value) if isinstance(value, str) else value)
                conditions.append(self._conditions[name].format(f"${len(values)}"))
        if before is not None:
            values.append((yield from run_number(self._dialect, before)))
            conditions.append(f"r.n < ${len(values)}")
        where = " AND ".join(conditions) or "true"
        sql = f"SELECT {self._dialect.run_fields} FROM runs r WHERE {where} ORDER BY r.n DESC LIMIT ${len(values) + 1}"
        found = yield sql, *values, within(limit)
        return [read(row) for row in found]

    def search_runs(self, wanted: RunSearch, limit: int, before: str | None) -> Steps[list[RunRow]]:
        """Return a page of the runs that are searched for, newest first.

        Raises: NotFound.
        """
        given = msgspec.structs.asdict(wanted)
        if wanted.text is not None:
            given["text"] = self._dialect.fold_case(wanted.text)
        return (yield from self.list_runs(given, limit, before))

    def questions(self, run_ids: Sequence[str]) -> Steps[dict[str, str]]:
        """Return the beginning of what each of the runs was asked."""
        dialect = self._dialect
        found = yield self._questions, dialect.bind_list(run_ids)
        return {dialect.text(run_id): dialect.text(text) for run_id, text in found if text is not None}

    def entries(self, run_id: str, after: int, limit: int | None, for_next: bool = False) -> Steps[list[Entry]]:
        """Return entries of a run, in order.

        Raises: NotFound.
        """
        count = self._dialect.all_rows if limit is None else within(limit)
        found = yield self._entries, self._dialect.bind_text(run_id), within(after), count, for_next
        return (yield from self._read_entries(run_id, found))

    def history(self, run_id: str, for_next: bool = False) -> Steps[list[Entry]]:
        """Return the items of a chain of runs and what voids them, oldest first.

        Raises: NotFound.
        """
        found = yield self._sql.history, self._dialect.bind_text(run_id), for_next
        return (yield from self._read_entries(run_id, found))

    def find_item(self, item_id: str, key_id: str | None) -> Steps[list[Entry]]:
        """Return the item of that id and, for a call, the result that its run gave it."""
        bind, read = self._dialect.bind_text, self._dialect.read_entry
        found = yield self._sql.find_item, bind(item_id), bind(key_id)
        return [read(row) for row in found]

    def find_turns(
        self, call_ids: Sequence[str], questions: Sequence[str], key_id: str | None
    ) -> Steps[list[StoredTurn]]:
        """Return the last rounds that hold such calls and more than a client knows of them, newest first."""
        dialect = self._dialect
        calls = dialect.bind_list(call_ids)
        if self._sql.is_called is not None and not (yield self._sql.is_called, calls):
            return []
        found = yield self._sql.find_turns, calls, dialect.bind_text(key_id), dialect.bind_list(questions), TURNS_MAX
        rows: list[tuple[Any, ...]] = [*map(tuple, found)]
        return [
            StoredTurn(
                run_id=dialect.text(run_id),
                is_kept=bool(store),
                entries=[dialect.read_entry(row[2:]) for row in turn],
            )
            for (run_id, store), turn in groupby(rows, key=itemgetter(0, 1))
        ]

    def get_blob(self, sha256: str, offset: int, length: int, run_id: str | None) -> Steps[bytes]:
        """Return a piece of a blob; with a run, only of one that it may read.

        Raises: NotFound.
        """
        bind = self._dialect.bind_text
        # One byte beyond the largest blob reads nothing, and more than that PostgreSQL cannot count.
        start, count = (max(0, min(number, BLOB_BYTES_MAX)) for number in (offset, length))
        found = yield _BLOB, bind(sha256), start, count, bind(run_id)
        if not found:
            raise NotFound(f"there is no blob {sha256!r}")
        return found[0][0]

    def chunks(self, run_id: str, after: int) -> Steps[list[Chunk]]:
        """Return what a live run published after event `after`, in order."""
        found = yield _CHUNKS, self._dialect.bind_text(run_id), within(after)
        return [Chunk(first=first, count=count, data=data) for first, count, data in found]

    def cancel_requests(self, owner: str) -> Steps[list[str]]:
        """Return the runs of this owner for which a cancellation was requested."""
        found = yield self._sql.cancel_requests, self._dialect.bind_text(owner)
        return [self._dialect.text(row[0]) for row in found]

    def _read_entries(self, run_id: str, found: Sequence[Any]) -> Steps[list[Entry]]:
        if not found:
            # A run without entries has none; one that is not there is an error.
            yield from run_number(self._dialect, run_id)
        read = self._dialect.read_entry
        return [read(row) for row in found]


def run_number(dialect: SqlDialect, run_id: str) -> Steps[int]:
    """Return the number of a run.

    Raises: NotFound.
    """
    found = yield _RUN_NUMBER, dialect.bind_text(run_id)
    if not found:
        raise NotFound(f"there is no run {run_id!r}")
    return found[0][0]
