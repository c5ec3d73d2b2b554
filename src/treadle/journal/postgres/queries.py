"""Reads: what must fit together is read by one statement, so it is of one state."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from treadle.core.errors import NotFound
from treadle.core.events import Status
from treadle.core.journal_entries import ITEM_KINDS, Entry
from treadle.core.request import DIRECT_MODEL
from treadle.journal.journal_interface import QUESTION_CHARS_MAX, Chunk, RunRow, RunSearch, StoredTurn
from treadle.journal.postgres.connection import Connection
from treadle.journal.postgres.row_mapping import ENTRY_FIELDS, RUN_FIELDS, bind_text, read_entry, read_run, read_text

_INTEGER_MAX = 2**62
_BYTES_MAX = 2**30
TURNS_MAX = 256
"""How many remembered turns one conversation brings back."""
_SHOWN = "(r.store OR r.ended_at IS NULL)"
"""What a run that is not stored leaves behind is for the run that comes next alone."""
_EVENTS = "events e LEFT JOIN blobs b ON b.sha256 = e.blob"
_ITEM_KINDS = ", ".join(f"'{kind}'" for kind in sorted(ITEM_KINDS))
_ITEMS = f"e.kind IN ({_ITEM_KINDS})"
_RUN = "(SELECT n FROM runs WHERE id = $1)"

_FIND_RUN = f"""
SELECT {RUN_FIELDS} FROM runs r WHERE (r.id = $1 OR r.response_id = $1) AND ($2::text IS NULL OR r.key_id = $2)
"""
_LIST_RUNS = f"SELECT {RUN_FIELDS} FROM runs r WHERE {{}} ORDER BY r.n DESC LIMIT {{}}"
_NARROWED = {
    "status": "r.status = {}",
    "session_id": "r.session_id = {}",
    "key_id": "r.key_id = {}",
    "fingerprint": f"r.n IN (SELECT f.run FROM events f WHERE f.fingerprint = {{}}) AND {_SHOWN}",
    "model": "r.model = {}",
    "tool": "EXISTS (SELECT 1 FROM events t WHERE t.run = r.n AND t.kind = 'tool_call' AND NOT t.is_input"
    f" AND t.name = {{}}) AND {_SHOWN}",
    # The code is an error's first field; read as JSON, a NUL that is quoted further on would be refused.
    "error": 'r.error IS NOT NULL AND {0}::text IN (\'\', substring(r.error from \'^."code":"([^"]*)"\'))',
    "text": f"EXISTS (SELECT 1 FROM events e WHERE e.run = r.n AND {_ITEMS}"
    f" AND strpos(lower(e.content), lower({{}}::text)) > 0) AND {_SHOWN}",
    "since": "r.created_at >= {}::float8",
}
_ENTRIES = f"""
SELECT {ENTRY_FIELDS} FROM {_EVENTS}
WHERE e.run = (SELECT r.n FROM runs r WHERE r.id = $1 AND ({_SHOWN} OR $4::bool)) AND e.seq > $2
ORDER BY e.seq LIMIT $3
"""
# A run continues only an older one, so the order of their numbers is the order of the chain.
_HISTORY = f"""
WITH RECURSIVE chain (n) AS (
  SELECT n FROM runs WHERE id = $1
  UNION ALL
  SELECT r.previous FROM runs r JOIN chain c ON r.n = c.n WHERE r.previous IS NOT NULL
)
SELECT {ENTRY_FIELDS} FROM chain JOIN runs r ON r.n = chain.n AND ({_SHOWN} OR $2::bool)
JOIN events e ON e.run = chain.n LEFT JOIN blobs b ON b.sha256 = e.blob
WHERE e.kind IN ({_ITEM_KINDS}, 'void') ORDER BY e.run, e.seq
"""
_FIND_ITEM = f"""
WITH found AS (
  SELECT i.run, i.seq, i.kind, i.call_id FROM events i JOIN runs r ON r.n = i.run
  WHERE i.item_id = $1 AND i.kind IN ({_ITEM_KINDS}) AND ($2::text IS NULL OR r.key_id = $2)
    AND {_SHOWN}
  ORDER BY i.is_input, i.run DESC, i.seq DESC LIMIT 1
)
SELECT {ENTRY_FIELDS} FROM found JOIN events e ON e.run = found.run LEFT JOIN blobs b ON b.sha256 = e.blob
WHERE e.seq = found.seq OR (
  found.kind = 'tool_call' AND e.kind = 'tool_result' AND NOT e.is_input AND e.call_id = found.call_id)
ORDER BY e.seq
"""
# What a run was asked, and where its last round begins: a run holds the whole conversation before it, so whatever is
# looked for in many runs must not go through all that they hold.
_QUESTION = """CASE WHEN r.question IS NULL
  THEN (SELECT q.content FROM events q WHERE q.run = r.n AND q.is_input AND q.kind = 'user' ORDER BY q.seq DESC LIMIT 1)
  ELSE (SELECT q.content FROM events q WHERE q.run = r.n AND q.seq = r.question) END"""
# Near the end, as a rule. PostgreSQL would not look there first by itself.
_PLANS = "SELECT max(p.seq) FROM events p WHERE p.run = r.n AND p.kind = 'plan'"
_LAST_PLAN = f"coalesce(({_PLANS} AND p.seq > r.head - 64), ({_PLANS}))"
# Only what a client cannot know is worth remembering: results of the server's own calls, and a provider's opaque state.
# What is too large to be looked into may be that. The limits, and the offsets, let each be looked up by its key: else a
# plan may go through all entries of all runs.
_FIND_TURNS = f"""
WITH called AS (
  SELECT DISTINCT e.run FROM unnest($1::text[]) AS w (call_id), LATERAL (
    SELECT c.run FROM events c WHERE c.call_id = w.call_id AND c.kind = 'tool_call' AND NOT c.is_input OFFSET 0) AS e
), turns AS (
  SELECT r.n, r.id, r.store, {_LAST_PLAN} AS plan
  FROM called, LATERAL (SELECT * FROM runs f WHERE f.n = called.run LIMIT 1) AS r
  WHERE r.status = 'requires_action' AND ($2::text IS NULL OR r.key_id = $2)
    AND (SELECT true FROM events k WHERE k.run = r.n AND k.seq > {_LAST_PLAN}
         AND (k.kind IN ('tool_result', 'reasoning') OR k.blob IS NOT NULL OR strpos(k.data, '"blobs"') > 0) LIMIT 1)
    AND (r.question = 0 OR coalesce({_QUESTION} = ANY($3::text[]), true))
  ORDER BY r.n DESC LIMIT $4
)
SELECT t.id, t.store, said.* FROM turns t, LATERAL (
  SELECT {ENTRY_FIELDS} FROM {_EVENTS} WHERE e.run = t.n AND e.seq > t.plan AND {_ITEMS} OFFSET 0) AS said
ORDER BY t.n DESC, said.seq
"""
_QUESTIONS = f"""
SELECT r.id, left({_QUESTION}, {QUESTION_CHARS_MAX}) FROM runs r
WHERE r.id = ANY($1::text[]) AND {_SHOWN}
"""
_CHUNKS = f"""
SELECT c.first, c.count, c.data FROM chunks c WHERE c.run = {_RUN} AND c.first + c.count - 1 > $2 ORDER BY c.first
"""
_CANCEL_REQUESTS = "SELECT r.id FROM leases l JOIN runs r ON r.n = l.run WHERE l.owner = $1 AND l.cancel ORDER BY l.run"


async def questions(connection: Connection, run_ids: Sequence[str]) -> dict[str, str]:
    """Return the beginning of what each of the runs was asked."""
    found = await connection.fetch(_QUESTIONS, [bind_text(run_id) for run_id in run_ids])
    return {run_id: read_text(text) or "" for run_id, text in found if text is not None}


class RunFilter(NamedTuple):
    """What runs are narrowed to."""

    status: Status | None = None
    session_id: str | None = None
    key_id: str | None = None
    fingerprint: str | None = None


async def find_run(connection: Connection, run_or_response_id: str, key_id: str | None) -> RunRow | None:
    """Return the run of that id or response id."""
    found = await connection.fetchrow(_FIND_RUN, bind_text(run_or_response_id), bind_text(key_id))
    return None if found is None else read_run(found)


async def find_idempotent(connection: Connection, idempotency_key: str, key_id: str) -> RunRow | None:
    """Return the run that was started under this idempotency key."""
    sql = f"SELECT {RUN_FIELDS} FROM runs r WHERE r.key_id = $1 AND key_of(r.idempotency_key) = key_of($2)"
    found = await connection.fetchrow(sql, bind_text(key_id), bind_text(idempotency_key))
    return None if found is None else read_run(found)


async def list_runs(connection: Connection, limit: int, before: str | None, only: RunFilter) -> list[RunRow]:
    """Return a page of runs, newest first.

    Raises: NotFound.
    """
    wanted = {name: value for name, value in only._asdict().items() if value is not None}
    return await _page(connection, wanted, limit, before)


async def search_runs(connection: Connection, wanted: RunSearch, limit: int, before: str | None) -> list[RunRow]:
    """Return a page of the runs that are looked for, newest first.

    Raises: NotFound.
    """
    given = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value is not None}
    return await _page(connection, given, limit, before)


async def _page(connection: Connection, wanted: dict[str, str | float], limit: int, before: str | None) -> list[RunRow]:
    values: list[Any] = []
    conditions: list[str] = []
    for name, value in wanted.items():
        values.append(bind_text(value) if isinstance(value, str) else value)
        conditions.append(_NARROWED[name].format(f"${len(values)}"))
    if before is not None:
        values.append(await run_number(connection, before))
        conditions.append(f"r.n < ${len(values)}")
    sql = _LIST_RUNS.format(" AND ".join(conditions) or "true", f"${len(values) + 1}")
    return [read_run(found) for found in await connection.fetch(sql, *values, within(limit))]


async def entries(
    connection: Connection, run_id: str, after: int, limit: int | None, for_next: bool = False
) -> list[Entry]:
    """Return entries of a run, in order.

    Raises: NotFound.
    """
    most = None if limit is None else within(limit)
    found = await connection.fetch(_ENTRIES, bind_text(run_id), within(after), most, for_next)
    return await _entries(connection, run_id, found)


async def history(connection: Connection, run_id: str, for_next: bool = False) -> list[Entry]:
    """Return the items of a chain of runs and what voids them, oldest first.

    Raises: NotFound.
    """
    return await _entries(connection, run_id, await connection.fetch(_HISTORY, bind_text(run_id), for_next))


async def find_item(connection: Connection, item_id: str, key_id: str | None) -> list[Entry]:
    """Return the item of that id and, for a call, the result that its run gave it."""
    return [read_entry(row) for row in await connection.fetch(_FIND_ITEM, bind_text(item_id), bind_text(key_id))]


async def find_turns(
    connection: Connection, call_ids: Sequence[str], questions: Sequence[str], key_id: str | None
) -> list[StoredTurn]:
    """Return the last rounds that hold such calls and more than a client knows of them, newest first."""
    asked = [bind_text(text) for text in questions]
    wanted = [bind_text(call_id) for call_id in call_ids]
    found = await connection.fetch(_FIND_TURNS, wanted, bind_text(key_id), asked, TURNS_MAX)
    rows: list[tuple[Any, ...]] = [*map(tuple, found)]
    return [
        StoredTurn(run_id=read_text(run_id) or "", is_kept=store, entries=[read_entry(values[2:]) for values in turn])
        for (run_id, store), turn in groupby(rows, key=itemgetter(0, 1))
    ]


_BLOB = f"""
SELECT substr(data, $2::int + 1, $3::int) FROM blobs WHERE sha256 = $1 AND ($4::text IS NULL OR EXISTS (
  SELECT 1 FROM blob_uses u JOIN runs kept ON kept.n = u.run JOIN runs asks ON asks.id = $4
  WHERE u.blob = $1 AND kept.key_id = asks.key_id AND (
    kept.n = asks.n OR kept.conversation_id = asks.conversation_id OR kept.session_id = asks.session_id
    OR (kept.model = '{DIRECT_MODEL}' AND asks.model = '{DIRECT_MODEL}'))))
"""


async def get_blob(connection: Connection, piece: tuple[str, int, int], run_id: str | None) -> bytes:
    """Return a piece of a blob: its sha256, an offset and a length; with a run, only of one that it may read.

    Raises: NotFound.
    """
    sha256, offset, length = piece
    # One past the largest blob reads nothing, and more than that PostgreSQL cannot count.
    start, count = (max(0, min(number, _BYTES_MAX)) for number in (offset, length))
    found = await connection.fetchrow(_BLOB, bind_text(sha256), start, count, bind_text(run_id))
    if found is None:
        raise NotFound(f"there is no blob {sha256!r}")
    return found[0]


async def chunks(connection: Connection, run_id: str, after: int) -> list[Chunk]:
    """Return what a live run said after event `after`, in order."""
    found = await connection.fetch(_CHUNKS, bind_text(run_id), within(after))
    return [Chunk(first=first, count=count, data=data) for first, count, data in found]


async def cancel_requests(connection: Connection, owner: str) -> list[str]:
    """Return the runs of this owner that somebody asked to cancel."""
    return [read_text(row[0]) or "" for row in await connection.fetch(_CANCEL_REQUESTS, bind_text(owner))]


async def run_number(connection: Connection, run_id: str) -> int:
    """Return the number of a run.

    Raises: NotFound.
    """
    found: int | None = await connection.fetchval("SELECT n FROM runs WHERE id = $1", bind_text(run_id))
    if found is None:
        raise _unknown(run_id)
    return found


async def _entries(connection: Connection, run_id: str, found: Sequence[Any]) -> list[Entry]:
    if not found:
        await run_number(connection, run_id)
    return [read_entry(values) for values in found]


def _unknown(run_id: str) -> NotFound:
    return NotFound(f"there is no run {run_id!r}")


def within(number: int) -> int:
    """Return the number, or the nearest that PostgreSQL can count with: callers pass on what clients asked for."""
    return max(0, min(number, _INTEGER_MAX))
