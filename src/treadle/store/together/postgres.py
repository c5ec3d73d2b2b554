"""Many writes as one on PostgreSQL: what waits at the same time goes as one statement, and so with one commit.

Each is as if it were alone: it is done only where its run is held and stands where its writer believes, and a group
that fails is taken apart. Nothing here knows how a single write is done, or tried again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import asyncpg

from treadle.canon.errors import TreadleError
from treadle.store.postgres.connection import Connection, Gone, Pool
from treadle.store.postgres.fence import EVENT_COLUMNS, NOW, Batch, Hold, Lease
from treadle.store.postgres.rows import EndColumns, RunColumns, bind_text, read_text
from treadle.store.postgres.statement import Statement

FLYING_MAX = 2
"""How many writes, or groups of them, are under way before others wait and go together."""
TOGETHER_MAX = 256
TOGETHER_WAIT_S = 3.0
"""How long a group waits for the database: little, because each of its writes may have to go alone afterwards."""

W = TypeVar("W")
V = TypeVar("V")

_EVENTS = """
  INSERT INTO events (run, seq, epoch, kind, is_input, at, name, call_id, item_id, content, data, sha256, fingerprint)
  SELECT held.run, e.seq, held.epoch, e.kind, e.is_input, e.at, e.name, e.call_id, e.item_id, e.content, e.data,
         e.sha256, e.fingerprint
  FROM held JOIN unnest({{events_of}}::{type}[], {{seqs}}::bigint[], {{kinds}}::text[], {{are_input}}::bool[],
                        {{ats}}::float8[], {{names}}::text[], {{call_ids}}::text[], {{item_ids}}::text[],
                        {{contents}}::text[], {{datas}}::text[], {{hashes}}::text[], {{fingerprints}}::text[])
                 AS e (of, seq, kind, is_input, at, name, call_id, item_id, content, data, sha256, fingerprint)
            ON e.of = held.{key}
"""
_HELD = "l.run = w.run AND l.owner = w.owner AND l.epoch = w.epoch AND l.head = w.head AND l.sha256 = w.sha256"
_APPEND = Statement(f"""
WITH wanted AS (
  SELECT * FROM unnest({{runs}}::bigint[], {{owners}}::text[], {{epochs}}::bigint[], {{heads}}::bigint[],
                       {{sha256s}}::text[], {{new_heads}}::bigint[], {{new_sha256s}}::text[], {{leases}}::float8[],
                       {{are_ends}}::bool[])
             AS w (run, owner, epoch, head, sha256, new_head, new_sha256, lease_s, is_end)
), moved AS (
  UPDATE leases l SET head = w.new_head, sha256 = w.new_sha256, until = {NOW} + w.lease_s
  FROM wanted w WHERE NOT w.is_end AND {_HELD} RETURNING l.run, l.epoch
), freed AS (
  DELETE FROM leases l USING wanted w WHERE w.is_end AND {_HELD}
  RETURNING l.run, l.epoch, w.new_head, w.new_sha256
), held AS (
  SELECT run, epoch FROM moved UNION ALL SELECT run, epoch FROM freed
), written AS ({_EVENTS.format(type="bigint", key="run")}), ends AS (
  SELECT d.*, freed.epoch, freed.new_head, freed.new_sha256
  FROM freed JOIN unnest({{end_runs}}::bigint[], {{statuses}}::text[], {{ended_ats}}::float8[], {{stops}}::text[],
                         {{limits}}::text[], {{usages}}::text[], {{errors}}::text[], {{rounds}}::bigint[],
                         {{calls}}::bigint[])
                  AS d (run, status, ended_at, stop, limit_name, usage, error, rounds, calls)
             ON d.run = freed.run
), ended AS (
  UPDATE runs r SET status = d.status, ended_at = d.ended_at, stop = d.stop, limit_name = d.limit_name, usage = d.usage,
    error = d.error, rounds = d.rounds, calls = d.calls, epoch = d.epoch, head = d.new_head, sha256 = d.new_sha256
  FROM ends d WHERE r.n = d.run
), owed AS (
  INSERT INTO debts (run_id, key_id, model, ended_at, usage)
  SELECT r.id, r.key_id, r.model, d.ended_at, d.usage FROM ends d JOIN runs r ON r.n = d.run WHERE r.key_id <> ''
  ON CONFLICT DO NOTHING
), silenced AS (
  DELETE FROM chunks c USING freed WHERE c.run = freed.run
)
SELECT run FROM held
""")
_START = Statement(f"""
WITH asked AS (
  SELECT * FROM unnest({{ids}}::text[], {{response_ids}}::text[], {{conversation_ids}}::text[],
                       {{session_ids}}::text[], {{key_ids}}::text[], {{protocols}}::text[], {{models}}::text[],
                       {{statuses}}::text[], {{stores}}::bool[], {{backgrounds}}::bool[], {{created_ats}}::float8[],
                       {{expires_ats}}::float8[], {{idempotency_keys}}::text[], {{request_sha256s}}::text[],
                       {{bodies}}::text[], {{owners}}::text[], {{leases}}::float8[], {{new_heads}}::bigint[],
                       {{new_sha256s}}::text[])
             AS a (id, response_id, conversation_id, session_id, key_id, protocol, model, status, store, background,
                   created_at, expires_at, idempotency_key, request_sha256, body, owner, lease_s, new_head, new_sha256)
), held AS (
  INSERT INTO runs (id, response_id, conversation_id, session_id, key_id, protocol, model, status, store, background,
                    created_at, expires_at, rounds, calls, epoch, idempotency_key, request_sha256)
  SELECT id, response_id, conversation_id, session_id, key_id, protocol, model, status, store, background, created_at,
         expires_at, 0, 0, 1, idempotency_key, request_sha256
  FROM asked RETURNING n AS run, id, epoch
), begun AS (
  SELECT held.run, asked.* FROM held JOIN asked ON asked.id = held.id
), requested AS (
  INSERT INTO requests (run, body) SELECT run, body FROM begun WHERE body IS NOT NULL
), leased AS (
  INSERT INTO leases (run, owner, epoch, until, head, sha256, session_id)
  SELECT run, owner, 1, {NOW} + lease_s, new_head, new_sha256, session_id FROM begun
), written AS ({_EVENTS.format(type="text", key="id")})
SELECT id, run FROM held
""")


_WISHES = ("runs", "owners", "epochs", "heads", "sha256s", "new_heads", "new_sha256s", "leases", "are_ends")
_ENDS = ("end_runs", "statuses", "ended_ats", "stops", "limits", "usages", "errors", "rounds", "calls")


class Told(NamedTuple, Generic[V]):
    """What became of a write in a group: its value, or nothing, and then perhaps nobody knows."""

    value: V | None = None
    in_doubt: bool = False


Land = Callable[[Told[V]], None]


class Group(Generic[W, V]):
    """Lets the writes that wait at the same time go together, as one statement and one commit.

    Whoever is alone goes at once, which is quickest; while there were others lately, everybody waits for those who come
    in the same turn of the loop. A group that fails is not tried again: each of its writes goes alone then, and finds
    out by itself what is wrong, or whether it was done.
    """

    def __init__(self, pool: Pool, send: Callable[[Connection, Sequence[W]], Awaitable[list[V | None]]]) -> None:
        """Take how to do many writes at once; what it gives None for was not done."""
        self._pool = pool
        self._send = send
        self._flying = 0
        self._is_calm = True
        self._is_boarding = False
        self._waiting: list[tuple[W, Land[V]]] = []
        self._tasks: set[asyncio.Task[list[Told[V]]]] = set()

    @property
    def is_idle(self) -> bool:
        """Tell whether a write would go alone, and at once."""
        return self._is_calm and not self._flying and not self._waiting

    async def write(self, wish: W, alone: Callable[[bool], Awaitable[V]]) -> V:
        """Do a write with others, or by `alone`, which is told whether it may have been done already.

        Raises: what `alone` raises.
        """
        if self.is_idle:
            return await self.go(alone(False))
        future: asyncio.Future[Told[V]] = asyncio.get_running_loop().create_future()
        self.join(wish, partial(_settle, future))
        told = await future
        return await self.go(alone(told.in_doubt)) if told.value is None else told.value

    def join(self, wish: W, land: "Land[V]") -> None:
        """Let a write go with others; `land` is called with what became of it, and soon, as all waits have a bound."""
        self._waiting.append((wish, land))
        self._board()

    async def go(self, alone: Awaitable[V]) -> V:
        """Do a write by itself; those who come meanwhile wait for each other.

        Raises: what it raises.
        """
        self._flying += 1
        try:
            return await alone
        finally:
            self._land()

    def _board(self) -> None:
        if self._waiting and not self._is_boarding and self._flying < FLYING_MAX:
            self._is_boarding = True
            asyncio.get_running_loop().call_soon(self._take_off)

    def _take_off(self) -> None:
        self._is_boarding = False
        if not self._waiting or self._flying >= FLYING_MAX:
            return
        group, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
        self._is_calm = len(group) == 1
        if self._is_calm:
            _tell(group, [Told()])
            return
        self._flying += 1
        wishes = [wish for wish, _ in group]
        task = asyncio.create_task(self._write(wishes))
        self._tasks.add(task)
        task.add_done_callback(partial(self._come_back, group))

    def _land(self) -> None:
        """Let those who wait go, now that something has come back."""
        self._flying -= 1
        self._board()

    def _come_back(self, group: "list[tuple[W, Land[V]]]", task: "asyncio.Task[list[Told[V]]]") -> None:
        """Tell everybody, also when the task was cancelled before its first step."""
        self._tasks.discard(task)
        is_known = not task.cancelled() and task.exception() is None
        _tell(group, task.result() if is_known else [Told(in_doubt=True)] * len(group))
        self._land()

    async def _write(self, wishes: list[W]) -> list[Told[V]]:
        try:
            values = await self._pool.run(lambda each: self._send(each, wishes), time.monotonic() + TOGETHER_WAIT_S)
        except Gone:
            return [Told(in_doubt=True)] * len(wishes)
        except (asyncpg.PostgresError, TreadleError):
            return [Told()] * len(wishes)
        return [Told(value) for value in values]


def _tell(group: "list[tuple[W, Land[V]]]", told: list[Told[V]]) -> None:
    for (_, land), each in zip(group, told, strict=True):
        land(each)


def _settle(future: "asyncio.Future[Told[V]]", told: Told[V]) -> None:
    if not future.done():
        future.set_result(told)


class Wish(NamedTuple):
    """A write to a run that is held: entries behind a place, for how long it is held then, or its end."""

    hold: Hold
    batch: Batch
    lease: Lease
    end: EndColumns | None = None


async def append_together(connection: Connection, wishes: Sequence[Wish]) -> list[bool | None]:
    """Do many writes, none of them with blobs; None for each that was not done, and has to go alone.

    That is one whose run stands elsewhere, and all but one of the same run: those are its owners of different times,
    and the statement tells them apart by the run alone.

    Raises: asyncpg.PostgresError, and then none of them was done.
    """
    only = {wish.hold.run: wish for wish in wishes}
    # Everybody locks runs in the same order, so that nobody waits in a circle.
    wanted = sorted(only.values(), key=lambda wish: wish.hold.run)
    rows = [
        (hold.run, bind_text(hold.owner), hold.epoch, *batch.before, *batch.place, lease.seconds, end is not None)
        for hold, batch, lease, end in wanted
    ]
    ends = [(wish.hold.run, *wish.end) for wish in wanted if wish.end is not None]
    values = {
        "now": wishes[0].lease.now,
        **_columns(_WISHES, rows),
        **_columns(_ENDS, ends),
        **_events([(wish.hold.run, wish.batch) for wish in wanted]),
    }
    rows = await connection.fetch(_APPEND.text, *_APPEND.bind(values))
    done = {row[0] for row in rows}
    return [(wish.hold.run in done and only[wish.hold.run] is wish) or None for wish in wishes]


class Beginning(NamedTuple):
    """A run to be begun: its row, its input, and who holds it for how long."""

    columns: RunColumns
    batch: Batch
    owner: str
    lease: Lease


async def start_together(connection: Connection, runs: Sequence[Beginning]) -> list[Hold | None]:
    """Begin many runs, none of which continues another or has blobs.

    Raises: asyncpg.PostgresError, and then none of them was begun.
    """
    columns = [run.columns for run in runs]
    values = {
        **_events([(run.columns.id, run.batch) for run in runs]),
        "now": runs[0].lease.now,
        "ids": [each.id for each in columns],
        "response_ids": [each.response_id for each in columns],
        "conversation_ids": [each.conversation_id for each in columns],
        "session_ids": [each.session_id for each in columns],
        "key_ids": [each.key_id for each in columns],
        "protocols": [each.protocol for each in columns],
        "models": [each.model for each in columns],
        "statuses": [each.status for each in columns],
        "stores": [each.store for each in columns],
        "backgrounds": [each.background for each in columns],
        "created_ats": [each.created_at for each in columns],
        "expires_ats": [each.expires_at for each in columns],
        "idempotency_keys": [each.idempotency_key for each in columns],
        "request_sha256s": [each.request_sha256 for each in columns],
        "bodies": [each.body for each in columns],
        "owners": [bind_text(run.owner) for run in runs],
        "leases": [run.lease.seconds for run in runs],
        "new_heads": [run.batch.place.head for run in runs],
        "new_sha256s": [run.batch.place.sha256 for run in runs],
    }
    rows = await connection.fetch(_START.text, *_START.bind(values))
    numbers = {row[0]: row[1] for row in rows}
    return [Hold(numbers[run.columns.id], run.owner, 1, read_text(run.columns.id) or "") for run in runs]


def _events(batches: Sequence[tuple[int | str, Batch]]) -> dict[str, Sequence[Any]]:
    """Return the columns of the entries of many runs, each with what its run is called here."""
    rows = [(run, seq, *row) for run, batch in batches for seq, row in enumerate(batch.rows, batch.before.head + 1)]
    return _columns(("events_of", "seqs", *EVENT_COLUMNS), rows)


def _columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Sequence[Any]]:
    """Return rows as columns; one without a value is empty, for unnest makes NULLs of what an array lacks."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    # The driver looks at every element of an array, and most entries have few of all the fields.
    return {
        name: () if column.count(None) == len(column) else column for name, column in zip(names, columns, strict=True)
    }
