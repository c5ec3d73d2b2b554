"""Many writes as one on PostgreSQL: what waits at the same time goes as one statement, and so with one commit.

Each is as if it were alone: it is done only where its run is held and stands where its writer believes, and a group
that fails is taken apart. Nothing here knows how a single write is done, or tried again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import asyncpg

from treadle.core.errors import TreadleError
from treadle.journal.journal_interface import Chunk
from treadle.journal.postgres import leased_writes as fence
from treadle.journal.postgres.connection import Connection, PoolConnection, PostgresPool
from treadle.journal.postgres.leased_writes import EVENTS, NOW, Batch, Beginning, PostgresHold, RunLease
from treadle.journal.postgres.named_parameters import Statement
from treadle.journal.postgres.row_mapping import EndColumns, bind_text, read_text

FLYING_MAX = 2
"""How many groups are under way before others wait and go together."""
TOGETHER_MAX = 256
APPENDS_WAIT_S = TELLS_WAIT_S = 3.0
STARTS_WAIT_S = 2.0
"""How long a group waits for the database: little, because each of its writes may have to go alone afterwards."""

W = TypeVar("W")
V = TypeVar("V")

_HELD = "l.run = w.run AND l.owner = w.owner AND l.epoch = w.epoch AND l.head = w.head AND l.sha256 = w.sha256"
_MOVED = f"""
  UPDATE leases l SET head = w.new_head, sha256 = w.new_sha256, until = {NOW} + w.lease_s
  FROM unnest({{moves}}::move[]) AS w WHERE {_HELD} RETURNING l.run, l.epoch
"""
_WRITTEN = EVENTS + "e.run = held.run"
_APPEND = Statement(f"""
WITH held AS ({_MOVED}), written AS ({_WRITTEN})
SELECT run FROM held
""")
_APPEND_AND_END = Statement(f"""
WITH moved AS ({_MOVED}), freed AS (
  DELETE FROM leases l USING unnest({{endings}}::ending[]) AS w WHERE {_HELD} RETURNING w.*
), held AS (
  SELECT run, epoch FROM moved UNION ALL SELECT run, epoch FROM freed
), written AS ({_WRITTEN}), ended AS (
  UPDATE runs r SET status = d.status, ended_at = d.ended_at, stop = d.stop, limit_name = d.limit_name, usage = d.usage,
    error = d.error, rounds = d.rounds, calls = d.calls, epoch = d.epoch, head = d.new_head, sha256 = d.new_sha256
  FROM freed d WHERE r.n = d.run
), owed AS (
  INSERT INTO debts (run_id, key_id, model, ended_at, usage)
  SELECT r.id, r.key_id, r.model, d.ended_at, d.usage FROM freed d JOIN runs r ON r.n = d.run WHERE r.key_id <> ''
  ON CONFLICT DO NOTHING
), silenced AS (
  DELETE FROM chunks c USING freed WHERE c.run = freed.run
)
SELECT run FROM held
""")
# What no client was promised need not survive the database: its commit does not wait for the disk.
_TELL = Statement(f"""
WITH quick AS (
  SELECT set_config('synchronous_commit', {{commit}}::text, true)
), held AS (
  UPDATE leases l SET until = {NOW} + w.lease_s
  FROM quick, ROWS FROM (unnest({{tellings}}::telling[]), unnest({{ids}}::text[]))
    AS w (run, owner, epoch, keep_from, first, count, data, lease_s, id)
  WHERE l.run = w.run AND l.owner = w.owner AND l.epoch = w.epoch AND (SELECT r.id FROM runs r WHERE r.n = l.run) = w.id
  RETURNING w.*
), dropped AS (
  DELETE FROM chunks c USING held WHERE c.run = held.run
    AND (c.first + c.count <= held.keep_from OR c.first + c.count > held.first) RETURNING c.first
), told AS (
  INSERT INTO chunks (run, first, count, data)
  SELECT held.run, held.first, held.count, held.data FROM held, (SELECT count(*) FROM dropped) AS d
)
SELECT run, (SELECT count(*) FROM chunks c WHERE c.run = held.run AND c.first + c.count > held.keep_from
             AND c.first + c.count <= held.first) FROM held
""")
# The one that a run continues is looked up by its id, never among all of a long conversation.
_START = Statement(f"""
WITH asked AS (
  SELECT *, (SELECT p.n FROM (SELECT n, conversation_id FROM runs WHERE id = a.previous_id LIMIT 1) AS p
             WHERE p.conversation_id = a.conversation_id) AS previous
  FROM unnest({{beginnings}}::beginning[]) AS a
), inserted AS (
  INSERT INTO runs (id, response_id, conversation_id, previous, session_id, key_id, protocol, model, status, store,
                    background, created_at, expires_at, rounds, calls, epoch, idempotency_key, request_sha256, question)
  SELECT id, response_id, conversation_id, previous, session_id, key_id, protocol, model, status, store, background,
         created_at, expires_at, 0, 0, 1, idempotency_key, request_sha256, ({{questions}}::bigint[])[place + 1]
  FROM asked WHERE previous_id IS NULL OR previous IS NOT NULL RETURNING n, id, epoch
), held AS (
  SELECT inserted.n AS run, inserted.epoch, asked.* FROM inserted JOIN asked ON asked.id = inserted.id
), requested AS (
  INSERT INTO requests (run, body) SELECT run, body FROM held WHERE body IS NOT NULL
), leased AS (
  INSERT INTO leases (run, owner, epoch, until, head, sha256, session_id)
  SELECT run, owner, epoch, {NOW} + lease_s, new_head, new_sha256, session_id FROM held
), written AS ({EVENTS} e.run = held.place)
SELECT place, run FROM held
""")


Send = Callable[[Connection, Sequence[W], float], Awaitable[list[V | None]]]
"""Does many writes within some seconds; what it gives None for was not done."""
Land = Callable[[V | None, bool], None]
"""Is called with what became of a write in a group: its value, or None, and then whether it may have been done."""


class Group(Generic[W, V]):
    """Lets the writes that wait at the same time go together, as one statement and one commit.

    A group that fails is not tried again: each of its writes goes alone then, and finds out by itself what is wrong, or
    whether it was done.
    """

    def __init__(self, pool: PostgresPool, send: Send[W, V], wait_s: float, *, flying_max: int = FLYING_MAX) -> None:
        self._send = send
        self._wait_s = wait_s
        self._lines = [pool.line() for _ in range(flying_max)]
        self._is_boarding = False
        self._waiting: list[tuple[W, Land[V]]] = []
        self._flying: dict[asyncio.Task[list[V | None]], tuple[PoolConnection, list[tuple[W, Land[V]]]]] = {}

    async def write(self, wish: W, alone: Callable[[bool], Awaitable[V]]) -> V:
        """Do a write with others; where that fails by `alone`, which is told whether it may have been done already.

        Raises: what `alone` raises.
        """
        future: asyncio.Future[tuple[V | None, bool]] = asyncio.get_running_loop().create_future()
        self.join(wish, partial(_settle, future))
        value, in_doubt = await future
        return await alone(in_doubt) if value is None else value

    def join(self, wish: W, land: "Land[V]") -> None:
        """Let a write go with others; `land` is called with what became of it, and soon, as all waits have a bound."""
        self._waiting.append((wish, land))
        if not self._is_boarding and self._lines:
            self._board()

    def _board(self) -> None:
        """Let those who come in the same turn of the loop come along."""
        self._is_boarding = True
        asyncio.get_running_loop().call_soon(self._take_off)

    def _take_off(self) -> None:
        self._is_boarding = False
        group, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
        line, wishes = self._lines.pop(), [wish for wish, _ in group]
        task = asyncio.create_task(self._write(line, wishes))
        self._flying[task] = line, group
        task.add_done_callback(self._come_back)
        if self._waiting and self._lines:
            self._board()

    def _come_back(self, task: "asyncio.Task[list[V | None]]") -> None:
        """Tell everybody, also when the task was cancelled before its first step; let those who wait go."""
        line, group = self._flying.pop(task)
        self._lines.append(line)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            for (_, land), value in zip(group, task.result(), strict=True):
                land(value, False)
        else:
            in_doubt = not isinstance(error, asyncpg.PostgresError | TreadleError)
            for _, land in group:
                land(None, in_doubt)
        if self._waiting and not self._is_boarding:
            self._board()

    async def _write(self, line: PoolConnection, wishes: list[W]) -> list[V | None]:
        return await line.run(lambda connection, within_s: self._send(connection, wishes, within_s), self._wait_s)


def _settle(future: "asyncio.Future[tuple[V | None, bool]]", value: V | None, in_doubt: bool) -> None:
    if not future.done():
        future.set_result((value, in_doubt))


class Wish(NamedTuple):
    """A write to a run that is held: entries behind a place, for how long it is held then, or its end."""

    hold: PostgresHold
    batch: Batch
    lease: RunLease
    end: EndColumns | None = None


async def append_together(connection: Connection, wishes: Sequence[Wish], within_s: float) -> list[bool | None]:
    """Do many writes, none of them with blobs; None for each that was not done, and has to go alone.

    That is one whose run stands elsewhere, and all but one of the same run: those are its owners of different times,
    and the statement tells them apart by the run alone.

    Raises: asyncpg.PostgresError, and then none of them was done.
    """
    if len(wishes) == 1:
        return [await fence.write(connection, *wishes[0], within_s) or None]
    only = {wish.hold.run: wish for wish in wishes}
    moves: list[tuple[Any, ...]] = []
    endings: list[tuple[Any, ...]] = []
    entries: list[tuple[Any, ...]] = []
    # Everybody locks runs in the same order, so that nobody waits in a circle.
    for run in sorted(only):
        hold, batch, lease, end = only[run]
        held = (run, bind_text(hold.owner), hold.epoch, *batch.before, *batch.place)
        if end is None:
            moves.append((*held, lease.seconds))
        else:
            endings.append((*held, *end))
        entries += batch.numbered(run)
    statement = _APPEND_AND_END if endings else _APPEND
    values = {"now": wishes[0].lease.now, "moves": moves, "endings": endings, "entries": entries}
    found = await connection.fetch(statement.text, *statement.bind(values), timeout=within_s)
    if len(found) == len(wishes):
        return [True] * len(wishes)
    done = {row[0] for row in found}
    return [(wish.hold.run in done and only[wish.hold.run] is wish) or None for wish in wishes]


class ChunkWrite(NamedTuple):
    """What a run that is held says, in the place of what it said from there on before."""

    hold: PostgresHold
    chunk: Chunk
    keep_from: int
    lease: RunLease
    is_durable: bool = False


async def tell_together(connection: Connection, tellings: Sequence[ChunkWrite], within_s: float) -> list[int | None]:
    """Keep what many runs say; return how many earlier chunks of each are still there, None as `append_together`.

    Raises: asyncpg.PostgresError, and then nothing was kept.
    """
    only = {telling.hold.run: telling for telling in tellings}
    rows = [
        (run, bind_text(hold.owner), hold.epoch, keep_from, chunk.first, chunk.count, chunk.data, lease.seconds)
        for run, (hold, chunk, keep_from, lease, _) in sorted(only.items())
    ]
    ids = [bind_text(only[run].hold.run_id) for run in sorted(only)]
    commit = fence.COMMITS[any(telling.is_durable for telling in tellings)]
    values = {"now": tellings[0].lease.now, "commit": commit, "tellings": rows, "ids": ids}
    found = await connection.fetch(_TELL.text, *_TELL.bind(values), timeout=within_s)
    kept: dict[int, int] = {row[0]: row[1] for row in found}
    return [kept.get(telling.hold.run) if only[telling.hold.run] is telling else None for telling in tellings]


async def start_together(
    connection: Connection, runs: Sequence[Beginning], within_s: float
) -> list[PostgresHold | None]:
    """Begin many runs, none of them with blobs; None for each that continues one which is not there.

    Raises: asyncpg.PostgresError, and then none of them was begun.
    """
    beginnings: list[tuple[Any, ...]] = []
    entries: list[tuple[Any, ...]] = []
    for place, (columns, batch, _, owner, lease) in enumerate(runs):
        beginnings.append((place, *columns, bind_text(owner), lease.seconds, *batch.place))
        # A run has no number yet, so its entries have its place.
        entries += batch.numbered(place)
    questions = [run.question for run in runs]
    values = {"now": runs[0].lease.now, "beginnings": beginnings, "entries": entries, "questions": questions}
    found = await connection.fetch(_START.text, *_START.bind(values), timeout=within_s)
    numbers: dict[int, int] = {row[0]: row[1] for row in found}
    return [
        PostgresHold(numbers[n], run.owner, 1, read_text(run.columns.id) or "") if n in numbers else None
        for n, run in enumerate(runs)
    ]
