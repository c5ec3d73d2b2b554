"""Reads, as jobs on any connection: what must fit together is read by one statement, so it is of one state."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import apsw
import msgspec

from treadle.core.errors import NotFound
from treadle.core.events import Status
from treadle.core.journal_entries import ITEM_KINDS, Entry
from treadle.core.request import DIRECT_MODEL
from treadle.journal.journal_interface import QUESTION_CHARS_MAX, Chunk, RunRow, RunSearch, StoredTurn
from treadle.journal.sqlite.connection import Value, select
from treadle.journal.sqlite.row_mapping import (
    ENTRY_FIELDS,
    RUN_FIELDS,
    bind_text,
    read_entry,
    read_run,
    read_text,
)

_INTEGER_MAX = 2**62
TURNS_MAX = 256
"""How many remembered turns one conversation brings back."""
_SHOWN = "(r.store = 1 OR r.ended_at IS NULL)"
"""What a run that is not stored leaves behind is for the run that comes next alone."""
_EVENTS = "events e LEFT JOIN blobs b ON b.sha256 = e.blob"
_ITEMS = "e.kind IN (" + ", ".join(f"'{kind}'" for kind in sorted(ITEM_KINDS)) + ")"

_FIND_RUN = f"SELECT {RUN_FIELDS} FROM runs r WHERE (r.id = ?1 OR r.response_id = ?1) AND (?2 IS NULL OR r.key_id = ?2)"
_LIST_RUNS = f"SELECT {RUN_FIELDS} FROM runs r WHERE {{}} ORDER BY r.n DESC LIMIT ?"
_NARROWED = {
    "status": "r.status = ?",
    "session_id": "r.session_id = ?",
    "key_id": "r.key_id = ?",
    "fingerprint": f"r.n IN (SELECT f.run FROM events f WHERE f.fingerprint = ?) AND {_SHOWN}",
    "model": "r.model = ?",
    "tool": "EXISTS (SELECT 1 FROM events t WHERE t.run = r.n AND t.kind = 'tool_call' AND NOT t.is_input"
    f" AND t.name = ?) AND {_SHOWN}",
    "error": "r.error IS NOT NULL AND ? IN ('', json_extract(r.error, '$.code'))",
    "text": f"EXISTS (SELECT 1 FROM events e WHERE e.run = r.n AND {_ITEMS} AND holds(e.content, ?)) AND {_SHOWN}",
    "since": "r.created_at >= ?",
}
_ENTRIES = f"""
SELECT {ENTRY_FIELDS} FROM {_EVENTS}
WHERE e.run = (SELECT r.n FROM runs r WHERE r.id = ?1 AND ({_SHOWN} OR ?4)) AND e.seq > ?2 ORDER BY e.seq LIMIT ?3
"""
# A run continues only an older one, so the order of their numbers is the order of the chain.
_HISTORY = f"""
WITH RECURSIVE chain (n) AS (
  SELECT n FROM runs WHERE id = ?1
  UNION ALL
  SELECT r.previous FROM runs r JOIN chain c ON r.n = c.n WHERE r.previous IS NOT NULL
), shown (n) AS (
  SELECT r.n FROM chain CROSS JOIN runs r WHERE r.n = chain.n AND ({_SHOWN} OR ?2)
)
SELECT {ENTRY_FIELDS} FROM shown CROSS JOIN {_EVENTS}
WHERE e.run = shown.n AND ({_ITEMS} OR e.kind = 'void') ORDER BY e.run, e.seq
"""
_FIND_ITEM = f"""
WITH found AS (
  SELECT i.run, i.seq, i.kind, i.call_id FROM events i JOIN runs r ON r.n = i.run
  WHERE i.item_id = ?1 AND {_ITEMS.replace("e.kind", "i.kind")} AND (?2 IS NULL OR r.key_id = ?2)
    AND {_SHOWN}
  ORDER BY i.is_input, i.run DESC, i.seq DESC LIMIT 1
)
SELECT {ENTRY_FIELDS} FROM found CROSS JOIN {_EVENTS}
WHERE e.run = found.run AND (e.seq = found.seq OR (
  found.kind = 'tool_call' AND e.kind = 'tool_result' AND e.is_input = 0 AND e.call_id = found.call_id))
ORDER BY e.seq
"""
# What a run was asked, and where its last round begins: a run holds the whole conversation before it, so whatever is
# looked for in many runs must not go through all that they hold.
_QUESTION = """CASE WHEN r.question IS NULL
  THEN (SELECT q.content FROM events q WHERE q.run = r.n AND q.is_input = 1 AND q.kind = 'user'
        ORDER BY q.seq DESC LIMIT 1)
  ELSE (SELECT q.content FROM events q WHERE q.run = r.n AND q.seq = r.question) END"""
_LAST_PLAN = "(SELECT p.seq FROM events p WHERE p.run = r.n AND p.kind = 'plan' ORDER BY p.seq DESC LIMIT 1)"
_CALLED = """SELECT e.run FROM events e
WHERE e.call_id IN (SELECT value FROM json_each(?1)) AND e.kind = 'tool_call' AND e.is_input = 0"""
# Where no run made such a call that is found out by itself, for a tenth of what the search costs.
_IS_CALLED = f"{_CALLED} LIMIT 1"
# Only what a client cannot know is worth remembering: results of the server's own calls, and a provider's opaque state.
# What is too large to be looked into may be that.
_FIND_TURNS = f"""
WITH turns AS MATERIALIZED (
  SELECT r.n, r.id, r.store, {_LAST_PLAN} AS plan FROM runs r
  WHERE r.n IN ({_CALLED}) AND r.status = 'requires_action' AND (?2 IS NULL OR r.key_id = ?2)
    AND EXISTS (SELECT 1 FROM events k WHERE k.run = r.n AND k.seq > {_LAST_PLAN}
                AND (k.kind IN ('tool_result', 'reasoning') OR k.blob IS NOT NULL OR instr(k.data, '"blobs"')))
    AND (r.question = 0 OR coalesce({_QUESTION} IN (SELECT value FROM json_each(?3)), 1))
  ORDER BY r.n DESC LIMIT ?4
)
SELECT t.id, t.store, {ENTRY_FIELDS} FROM turns t CROSS JOIN {_EVENTS}
WHERE e.run = t.n AND e.seq > t.plan AND {_ITEMS} ORDER BY t.n DESC, e.seq
"""
_QUESTIONS = f"""
SELECT r.id, substr({_QUESTION}, 1, {QUESTION_CHARS_MAX}) FROM runs r
WHERE r.id IN (SELECT value FROM json_each(?)) AND {_SHOWN}
"""
_CHUNKS = """
SELECT c.first, c.count, c.data FROM chunks c
WHERE c.run = (SELECT n FROM runs WHERE id = ?1) AND c.first + c.count - 1 > ?2 ORDER BY c.first
"""
_CANCEL_REQUESTS = (
    "SELECT r.id FROM leases l JOIN runs r ON r.n = l.run WHERE l.owner = ? AND l.cancel = 1 ORDER BY l.run"
)
_CHANGES = """
SELECT r.id, l.changes FROM json_each(?) j JOIN runs r ON r.id = j.value JOIN leases l ON l.run = r.n
"""


def search_runs(connection: apsw.Connection, wanted: RunSearch, limit: int, before: str | None) -> list[RunRow]:
    """Return a page of the runs that are looked for, newest first.

    Raises: NotFound.
    """
    given = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value is not None}
    if "text" in given:
        given["text"] = given["text"].casefold()
    return _page(connection, given, limit, before)


def questions(connection: apsw.Connection, run_ids: Sequence[str]) -> dict[str, str]:
    """Return the beginning of what each of the runs was asked."""
    found = select(connection, _QUESTIONS, _text_list(run_ids))
    return {run_id: read_text(text) or "" for run_id, text in found if text is not None}


class RunFilter(NamedTuple):
    """What runs are narrowed to."""

    status: Status | None = None
    session_id: str | None = None
    key_id: str | None = None
    fingerprint: str | None = None


def find_run(connection: apsw.Connection, run_or_response_id: str, key_id: str | None) -> RunRow | None:
    """Return the run of that id or response id."""
    found = select(connection, _FIND_RUN, bind_text(run_or_response_id), bind_text(key_id))
    return read_run(found[0]) if found else None


def find_idempotent(connection: apsw.Connection, idempotency_key: str, key_id: str) -> RunRow | None:
    """Return the run that was started under this idempotency key."""
    sql = f"SELECT {RUN_FIELDS} FROM runs r WHERE r.key_id = ? AND r.idempotency_key = ?"
    found = select(connection, sql, bind_text(key_id), bind_text(idempotency_key))
    return read_run(found[0]) if found else None


def list_runs(connection: apsw.Connection, limit: int, before: str | None, only: RunFilter) -> list[RunRow]:
    """Return a page of runs, newest first.

    Raises: NotFound.
    """
    return _page(
        connection, {name: value for name, value in only._asdict().items() if value is not None}, limit, before
    )


def _page(connection: apsw.Connection, wanted: dict[str, str | float], limit: int, before: str | None) -> list[RunRow]:
    conditions = [_NARROWED[name] for name in wanted]
    values: list[Value] = [bind_text(value) if isinstance(value, str) else value for value in wanted.values()]
    if before is not None:
        conditions.append("r.n < ?")
        values.append(run_number(connection, before))
    sql = _LIST_RUNS.format(" AND ".join(conditions) or "1")
    return [read_run(found) for found in select(connection, sql, *values, within(limit))]


def entries(
    connection: apsw.Connection, run_id: str, after: int, limit: int | None, for_next: bool = False
) -> list[Entry]:
    """Return entries of a run, in order.

    Raises: NotFound.
    """
    most = -1 if limit is None else within(limit)
    return _entries(connection, run_id, select(connection, _ENTRIES, bind_text(run_id), within(after), most, for_next))


def history(connection: apsw.Connection, run_id: str, for_next: bool = False) -> list[Entry]:
    """Return the items of a chain of runs and what voids them, oldest first.

    Raises: NotFound.
    """
    return _entries(connection, run_id, select(connection, _HISTORY, bind_text(run_id), for_next))


def find_item(connection: apsw.Connection, item_id: str, key_id: str | None) -> list[Entry]:
    """Return the item of that id and, for a call, the result that its run gave it."""
    return [read_entry(values) for values in select(connection, _FIND_ITEM, bind_text(item_id), bind_text(key_id))]


def find_turns(
    connection: apsw.Connection, call_ids: Sequence[str], questions: Sequence[str], key_id: str | None
) -> list[StoredTurn]:
    """Return the last rounds that hold such calls and more than a client knows of them, newest first."""
    calls = _text_list(call_ids)
    if not select(connection, _IS_CALLED, calls):
        return []
    bound = (calls, bind_text(key_id), _text_list(questions), TURNS_MAX)
    found = groupby(select(connection, _FIND_TURNS, *bound), key=itemgetter(0, 1))
    return [
        StoredTurn(run_id=run_id, is_kept=bool(store), entries=[read_entry(values[2:]) for values in rows])
        for (run_id, store), rows in found
    ]


def _text_list(texts: Sequence[str]) -> str:
    return msgspec.json.encode([text.encode("utf-8", "replace").decode() for text in texts]).decode()


_BLOB = f"""
SELECT substr(data, ?2 + 1, ?3) FROM blobs WHERE sha256 = ?1 AND (?4 IS NULL OR EXISTS (
  SELECT 1 FROM blob_uses u JOIN runs kept ON kept.n = u.run JOIN runs asks ON asks.id = ?4
  WHERE u.blob = ?1 AND kept.key_id = asks.key_id AND (
    kept.n = asks.n OR kept.conversation_id = asks.conversation_id OR kept.session_id = asks.session_id
    OR (kept.model = '{DIRECT_MODEL}' AND asks.model = '{DIRECT_MODEL}'))))
"""


def get_blob(connection: apsw.Connection, piece: tuple[str, int, int], run_id: str | None) -> bytes:
    """Return a piece of a blob: its sha256, an offset and a length; with a run, only of one that it may read.

    Raises: NotFound.
    """
    sha256, offset, length = piece
    found = select(connection, _BLOB, bind_text(sha256), within(offset), within(length), bind_text(run_id))
    if not found:
        raise NotFound(f"there is no blob {sha256!r}")
    return found[0][0]


def chunks(connection: apsw.Connection, run_id: str, after: int) -> list[Chunk]:
    """Return what a live run said after event `after`, in order."""
    found = select(connection, _CHUNKS, bind_text(run_id), within(after))
    return [Chunk(first=first, count=count, data=data) for first, count, data in found]


def cancel_requests(connection: apsw.Connection, owner: str) -> list[str]:
    """Return the runs of this owner that somebody asked to cancel."""
    return [run_id for (run_id,) in select(connection, _CANCEL_REQUESTS, bind_text(owner))]


def changes(connection: apsw.Connection, run_ids: Sequence[str]) -> dict[str, int]:
    """Return how often each of the runs was written to; one that has ended or is not there has no number."""
    return dict(select(connection, _CHANGES, _text_list(run_ids)))


def run_number(connection: apsw.Connection, run_id: str) -> int:
    """Return the number of a run.

    Raises: NotFound.
    """
    found = select(connection, "SELECT n FROM runs WHERE id = ?", bind_text(run_id))
    if not found:
        raise NotFound(f"there is no run {run_id!r}")
    return found[0][0]


def _entries(connection: apsw.Connection, run_id: str, found: list[tuple[Any, ...]]) -> list[Entry]:
    if not found:
        run_number(connection, run_id)
    return [read_entry(values) for values in found]


def within(number: int) -> int:
    """Return the number, or the nearest one that SQLite can count with: callers pass on what clients asked for."""
    return max(0, min(number, _INTEGER_MAX))
