"""Writes to a run: each is one statement that checks owner and epoch, so that the fence is part of the write.

A statement renews the lease, moves the head and the chain on, and inserts the entries, together or not at all. It also
asks that the chain ends where the writer believes; so the same write sent twice is done once.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from treadle.core.errors import Conflict, NotFound, StoreError, TreadleError
from treadle.core.journal_entries import Entry
from treadle.journal.hash_chain import link_entries, plan_fingerprint
from treadle.journal.journal_interface import IDEMPOTENCY_KEY_TAKEN, LEASE_LOST, RUN_ENDED, Chunk, is_inline
from treadle.journal.postgres.connection import Connection
from treadle.journal.postgres.named_parameters import Statement
from treadle.journal.postgres.row_mapping import RUN_FIELDS, EndColumns, RunColumns, bind_data, bind_text, read_text

# The database's clock, unless a test brings its own: those of the replicas differ.
NOW = "coalesce({now}::float8, date_part('epoch', clock_timestamp()))"
_HELD = "run = {run}::bigint AND owner = {owner}::text AND epoch = {epoch}::bigint"
# After a restore under a living process another run may have the number. What names no hash asks for the id.
_OURS = f"{_HELD} AND (SELECT id FROM runs WHERE n = run) = {{run_id}}::text"
_AT_HEAD = "head = {head}::bigint AND sha256 = {sha256}::text"

EVENTS = """
  INSERT INTO events (run, seq, epoch, kind, is_input, at, name, call_id, item_id, content, data, blob, sha256,
                      fingerprint)
  SELECT held.run, e.seq, held.epoch, e.kind, e.is_input, e.at, e.name, e.call_id, e.item_id, e.content, e.data,
         e.blob, e.sha256, e.fingerprint
  FROM held JOIN unnest({entries}::entry[]) AS e ON """
"""Writes entries to the runs in `held`; ends where it has to be said which are whose."""
_EVENTS = EVENTS + "true"
# A blob that is there already is locked, so that whoever forgets its last use meanwhile waits and sees the new one. It
# is not written anew: of a conversation that comes again most are there.
_BLOBS = """, there AS (
  SELECT b.sha256 FROM blobs b WHERE b.sha256 = ANY({blob_names}::text[]) ORDER BY b.sha256 FOR KEY SHARE
), kept AS (
  INSERT INTO blobs (sha256, data)
  SELECT b.sha256, b.data FROM held, unnest({blob_names}::text[], {blob_datas}::bytea[]) AS b (sha256, data)
  WHERE b.sha256 NOT IN (SELECT sha256 FROM there)
  ON CONFLICT (sha256) DO UPDATE SET sha256 = excluded.sha256 RETURNING sha256
), used AS (
  INSERT INTO blob_uses (run, blob)
  SELECT held.run, named.sha256 FROM held, (SELECT sha256 FROM there UNION ALL SELECT sha256 FROM kept) AS named
  ON CONFLICT DO NOTHING
)"""
_APPEND = f"""
WITH held AS (
  UPDATE leases SET head = {{new_head}}::bigint, sha256 = {{new_sha256}}::text, until = {NOW} + {{lease_s}}::float8
  WHERE {_HELD} AND {_AT_HEAD} RETURNING run, epoch
), written AS ({_EVENTS}){{}}
SELECT run FROM held
"""
_FINISH = f"""
WITH held AS (
  DELETE FROM leases WHERE {_HELD} AND {_AT_HEAD} RETURNING run, epoch
), written AS ({_EVENTS}){{}}, ended AS (
  UPDATE runs SET status = {{status}}::text, ended_at = {{ended_at}}::float8, stop = {{stop}}::text,
    limit_name = {{limit}}::text, usage = {{usage}}::text, error = {{error}}::text, rounds = {{rounds}}::bigint,
    calls = {{calls}}::bigint, epoch = {{epoch}}::bigint, head = {{new_head}}::bigint, sha256 = {{new_sha256}}::text
  FROM held WHERE n = held.run
), owed AS (
  INSERT INTO debts (run_id, key_id, model, ended_at, usage)
  SELECT r.id, r.key_id, r.model, {{ended_at}}::float8, {{usage}}::text
  FROM runs r, held WHERE r.n = held.run AND r.key_id <> '' ON CONFLICT DO NOTHING
), silenced AS (
  DELETE FROM chunks USING held WHERE chunks.run = held.run
)
SELECT run FROM held
"""
_START = f"""
WITH earlier AS (
  SELECT n FROM runs WHERE id = {{previous_id}}::text AND conversation_id = {{conversation_id}}::text FOR KEY SHARE
), held AS (
  INSERT INTO runs (id, response_id, conversation_id, previous, session_id, key_id, protocol, model, status, store,
                    background, created_at, expires_at, rounds, calls, epoch, idempotency_key, request_sha256,
                    question)
  SELECT {{id}}::text, {{response_id}}::text, {{conversation_id}}::text, (SELECT n FROM earlier), {{session_id}}::text,
         {{key_id}}::text, {{protocol}}::text, {{model}}::text, {{status}}::text, {{store}}::bool, {{background}}::bool,
         {{created_at}}::float8, {{expires_at}}::float8, 0, 0, 1, {{idempotency_key}}::text, {{request_sha256}}::text,
         {{question}}::bigint
  WHERE {{previous_id}}::text IS NULL OR EXISTS (SELECT 1 FROM earlier)
  RETURNING n AS run, epoch
), asked AS (
  INSERT INTO requests (run, body) SELECT run, {{body}}::text FROM held WHERE {{body}}::text IS NOT NULL
), leased AS (
  INSERT INTO leases (run, owner, epoch, until, head, sha256, session_id)
  SELECT run, {{owner}}::text, epoch, {NOW} + {{lease_s}}::float8, {{new_head}}::bigint, {{new_sha256}}::text,
         {{session_id}}::text
  FROM held
), written AS ({_EVENTS}){{}}
SELECT run FROM held
"""
_CLAIM = Statement(f"""
WITH free AS (
  SELECT l.run FROM leases l JOIN runs r ON r.n = l.run
  WHERE l.until <= {NOW} AND ({{run_id}}::text IS NULL OR r.id = {{run_id}}::text)
    AND ({{background}}::bool IS NULL OR r.background = {{background}}::bool)
    AND r.id <> ALL({{besides}}::text[])
  ORDER BY l.until, l.run LIMIT {{limit}}::bigint FOR UPDATE OF l SKIP LOCKED
), taken AS (
  UPDATE leases l SET owner = {{owner}}::text, epoch = l.epoch + 1, until = {NOW} + {{lease_s}}::float8
  FROM free WHERE l.run = free.run RETURNING l.run, l.epoch, l.head, l.sha256, l.handed
)
SELECT {RUN_FIELDS}, taken.run, taken.epoch, taken.head, taken.sha256, taken.handed
FROM taken JOIN runs r ON r.n = taken.run ORDER BY taken.run
""")
_ABANDONED = Statement(f"""
SELECT r.id FROM leases l JOIN runs r ON r.n = l.run
WHERE r.id = ANY({{run_ids}}::text[]) AND l.until <= {NOW} ORDER BY l.until, l.run
""")
RUN_FIELD_COUNT = 23
# What no client was promised need not survive the database: its commit does not wait for the disk.
_TELL = Statement(f"""
WITH quick AS (
  SELECT set_config('synchronous_commit', {{commit}}::text, true)
), held AS (
  UPDATE leases SET until = {NOW} + {{lease_s}}::float8 FROM quick WHERE {_OURS} RETURNING run
), dropped AS (
  DELETE FROM chunks c USING held WHERE c.run = held.run
    AND (c.first + c.count <= {{keep_from}}::bigint OR c.first + c.count > ({{firsts}}::bigint[])[1]) RETURNING c.first
), told AS (
  INSERT INTO chunks (run, first, count, data)
  SELECT held.run, t.first, t.count, t.data
  FROM held, (SELECT count(*) FROM dropped) AS d,
       unnest({{firsts}}::bigint[], {{counts}}::bigint[], {{datas}}::bytea[]) AS t (first, count, data)
)
SELECT (SELECT count(*) FROM chunks c WHERE c.run = held.run AND c.first + c.count > {{keep_from}}::bigint
        AND c.first + c.count <= ({{firsts}}::bigint[])[1]) FROM held
""")
COMMITS = {True: "on", False: "off"}
"""The values of `synchronous_commit`, by whether a write must survive the database."""

_RELEASE = Statement(f"UPDATE leases SET owner = '', until = 0, handed = handed + 1 WHERE {_OURS}")
_END_LEASES = """
WITH ended AS (UPDATE leases SET owner = '', until = 0 WHERE owner = $1 RETURNING run), gone AS (
  DELETE FROM replicas WHERE owner = $1
)
SELECT r.id FROM ended JOIN runs r ON r.n = ended.run
"""
_STATE = """
SELECT r.ended_at, r.epoch, r.head, r.sha256, l.owner, l.epoch, l.head, l.sha256
FROM runs r LEFT JOIN leases l ON l.run = r.n WHERE r.n = $1 AND r.id = $2
"""
_PUT_BLOB = Statement(f"""
WITH held AS (
  SELECT n AS run FROM runs WHERE id = {{run_id}}::text FOR KEY SHARE
){_BLOBS}
SELECT run FROM held
""")


def _with_and_without_blobs(template: str) -> dict[bool, Statement]:
    first, last = template.split("{}")
    return {True: Statement(first + _BLOBS + last), False: Statement(first + last)}


_APPENDS = _with_and_without_blobs(_APPEND)
_FINISHES = _with_and_without_blobs(_FINISH)
_STARTS = _with_and_without_blobs(_START)


class PostgresChainHead(NamedTuple):
    """Where a run's chain ends: the number and the hash of its last entry."""

    head: int = 0
    sha256: str = ""


class PostgresHold(NamedTuple):
    """Who writes to which run: the run's number, the owner, the owner's epoch, and the run's id.

    `handed` is how often earlier owners gave it up of their own will.
    """

    run: int
    owner: str
    epoch: int
    run_id: str
    handed: int = 0


class Batch(NamedTuple):
    """Entries ready to be written behind a place: that place, the one after them, their rows, and large data by name.

    A row has the values of the type `entry` behind the run's number.
    """

    before: PostgresChainHead
    place: PostgresChainHead
    rows: list[tuple[Any, ...]]
    blobs: dict[str, bytes]

    def numbered(self, run: int) -> Iterable[tuple[Any, ...]]:
        """Return the rows with a number by which the statement tells runs apart."""
        return map((run,).__add__, self.rows)

    @property
    def columns(self) -> dict[str, Any]:
        """Return the values that the statements for a single run take."""
        return {
            "head": self.before.head,
            "sha256": self.before.sha256,
            "new_head": self.place.head,
            "new_sha256": self.place.sha256,
            "entries": list(self.numbered(0)),
            "blob_names": list(self.blobs),
            "blob_datas": list(self.blobs.values()),
        }


class RunLease(NamedTuple):
    """For how long a run is held; `now` only where a test brings its own clock."""

    seconds: float
    now: float | None = None


def make_batch(
    entries: Sequence[Entry], hold: PostgresHold, place: PostgresChainHead, *, shares_input: bool = False
) -> Batch:
    """Chain entries to a place and write them as rows; input that is shared with other runs stands in few of these."""
    if not entries:
        return Batch(place, place, [], {})
    _, _, epoch, run_id, _ = hold
    rows: list[tuple[Any, ...]] = []
    blobs: dict[str, bytes] = {}
    sha256 = place.sha256
    for entry, link, sha256 in link_entries(entries, run_id, epoch, *place):
        view = link[-1]
        data = blob = fingerprint = None
        if view is not None:
            if is_inline(len(view), shares_input and entry.is_input):
                data = bind_data(view)
            else:
                blob = hashlib.sha256(view).hexdigest()
                blobs[blob] = bytes(view)
            if entry.kind == "plan":
                fingerprint = bind_text(plan_fingerprint(entry))
        texts = (entry.name, entry.call_id, entry.item_id, entry.content)
        rows.append((link[2], *link[4:7], *map(bind_text, texts), data, blob, sha256, fingerprint))
    # Everybody locks blobs in the same order, so that nobody waits in a circle.
    return Batch(
        place, PostgresChainHead(place.head + len(rows), sha256), rows, dict(sorted(blobs.items())) if blobs else blobs
    )


class Beginning(NamedTuple):
    """A run to be begun: its row, its input and the place of its question there, and who holds it for how long."""

    columns: RunColumns
    batch: Batch
    question: int
    owner: str
    lease: RunLease


async def start_run(connection: Connection, run: Beginning) -> PostgresHold:
    """Insert a run's row, its request, its lease and its input.

    Raises: NotFound, Conflict, asyncpg.PostgresError.
    """
    columns, batch, question, owner, lease = run
    statement = _STARTS[bool(batch.blobs)]
    given = {"owner": bind_text(owner), "question": question}
    values = {**columns._asdict(), **batch.columns, **_lease(lease), **given}
    number = await connection.fetchval(statement.text, *statement.bind(values))
    if number is None:
        raise await _not_started(connection, columns)
    return PostgresHold(number, owner, 1, read_text(columns.id) or "")


async def find_started(
    connection: Connection, columns: RunColumns, place: PostgresChainHead, owner: str
) -> PostgresHold | None:
    """Return the hold on a run that was started just so, by this owner, as far as anybody can see."""
    found = await connection.fetchrow("SELECT n FROM runs WHERE id = $1", columns.id)
    if found is None:
        return None
    state = await connection.fetchrow(_STATE, found[0], columns.id)
    is_ours = state is not None and tuple(state)[4:] == (bind_text(owner), 1, *place)
    return PostgresHold(found[0], owner, 1, read_text(columns.id) or "") if is_ours else None


async def append(
    connection: Connection, hold: PostgresHold, batch: Batch, lease: RunLease, end: EndColumns | None
) -> None:
    """Renew the lease and insert the entries; with an end, end the run instead of renewing.

    Raises: Moved, StoreError (lease lost), Conflict (the run has ended), NotFound (it was deleted).
    """
    if not await write(connection, hold, batch, lease, end):
        raise await _lost(connection, hold)


async def write(
    connection: Connection,
    hold: PostgresHold,
    batch: Batch,
    lease: RunLease,
    end: EndColumns | None,
    timeout_s: float | None = None,
) -> bool:
    """Do what `append` does, and tell whether it was done: not if the run is not held, or stands elsewhere."""
    statement = (_APPENDS if end is None else _FINISHES)[bool(batch.blobs)]
    ending = {} if end is None else end._asdict()
    values = {**_fence(hold), **_lease(lease), **batch.columns, **ending}
    return await connection.fetchval(statement.text, *statement.bind(values), timeout=timeout_s) is not None


async def find_appended(connection: Connection, hold: PostgresHold, batch: Batch, is_end: bool) -> bool:
    """Tell whether these entries, or this end, are there."""
    state = await connection.fetchrow(_STATE, hold.run, bind_text(hold.run_id))
    if state is None:
        return False
    ended_at, epoch, head, sha256, *held = state
    if is_end:
        # One that was purged with its end stands nowhere any more; nobody else ends a run under this epoch.
        purged = PostgresChainHead(batch.place.head, "")
        return (
            ended_at is not None
            and epoch == hold.epoch
            and (head, sha256) in (batch.place, purged, PostgresChainHead())
        )
    return tuple(held) == (bind_text(hold.owner), hold.epoch, *batch.place)


async def tell(
    connection: Connection,
    hold: PostgresHold,
    chunks: Sequence[Chunk],
    keep_from: int,
    lease: RunLease,
    *,
    is_durable: bool = False,
) -> int:
    """Renew the lease and keep what the run says, in the place of what it said from there on before.

    Return how many earlier chunks are still there.
    Raises: as `append`.
    """
    values = {
        **_fence(hold),
        **_lease(lease),
        "commit": COMMITS[is_durable],
        "keep_from": keep_from,
        "firsts": [chunk.first for chunk in chunks],
        "counts": [chunk.count for chunk in chunks],
        "datas": [chunk.data for chunk in chunks],
    }
    kept: int | None = await connection.fetchval(_TELL.text, *_TELL.bind(values))
    if kept is None:
        raise await _lost(connection, hold)
    return kept


async def release(connection: Connection, hold: PostgresHold) -> None:
    """Leave the run without an owner and its lease ended."""
    await connection.execute(_RELEASE.text, *_RELEASE.bind(_fence(hold)))


class PostgresWanted(NamedTuple):
    """Which abandoned runs are taken: how many, one of them, those in the background or not, and besides which."""

    limit: int
    run_id: str | None = None
    background: bool | None = None
    besides: Sequence[str | None] = ()


async def claim(
    connection: Connection, owner: str, lease: RunLease, wanted: PostgresWanted
) -> list[tuple[Any, PostgresHold, PostgresChainHead]]:
    """Take the runs whose lease ended, each under a new epoch; return their RUN_FIELDS with where they stand."""
    values = {**_lease(lease), **wanted._asdict(), "owner": bind_text(owner)}
    taken = await connection.fetch(_CLAIM.text, *_CLAIM.bind(values))
    claimed: list[tuple[Any, PostgresHold, PostgresChainHead]] = []
    for row in taken:
        run, epoch, head, sha256, handed = row[RUN_FIELD_COUNT:]
        claimed.append(
            (row, PostgresHold(run, owner, epoch, read_text(row[0]) or "", handed), PostgresChainHead(head, sha256))
        )
    return claimed


async def abandoned(connection: Connection, run_ids: Sequence[str], lease: RunLease) -> list[str]:
    """Return those of the runs whose lease has ended, longest abandoned first."""
    values = {"run_ids": [bind_text(each) for each in run_ids], "now": lease.now}
    return [read_text(row[0]) or "" for row in await connection.fetch(_ABANDONED.text, *_ABANDONED.bind(values))]


async def end_leases(connection: Connection, owner: str) -> list[str]:
    """End the leases of a dead owner and return the runs that it had."""
    return [read_text(row[0]) or "" for row in await connection.fetch(_END_LEASES, bind_text(owner))]


async def request_cancel(connection: Connection, run_id: str) -> bool:
    """Mark a run for whoever drives it; False if it has ended or is not there."""
    sql = "UPDATE leases SET cancel = true WHERE run = (SELECT n FROM runs WHERE id = $1) RETURNING run"
    return await connection.fetchval(sql, bind_text(run_id)) is not None


async def put_blob(connection: Connection, run_id: str, data: bytes) -> str:
    """Keep bytes for a run, once however often they come, and return their sha256.

    Raises: NotFound.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    values = {"run_id": bind_text(run_id), "blob_names": [sha256], "blob_datas": [data]}
    if await connection.fetchval(_PUT_BLOB.text, *_PUT_BLOB.bind(values)) is None:
        raise NotFound(f"there is no run {run_id!r}")
    return sha256


def _fence(hold: PostgresHold) -> dict[str, Any]:
    return {
        "run": hold.run,
        "owner": bind_text(hold.owner),
        "epoch": hold.epoch,
        "run_id": bind_text(hold.run_id),
    }


def _lease(lease: RunLease) -> dict[str, Any]:
    return {"now": lease.now, "lease_s": lease.seconds}


async def _not_started(connection: Connection, columns: RunColumns) -> TreadleError:
    taken = await connection.fetchval(
        "SELECT id FROM runs WHERE key_id = $1 AND key_of(idempotency_key) = key_of($2)",
        columns.key_id,
        columns.idempotency_key,
    )
    if taken is not None:
        return Conflict(f"the idempotency key belongs to the run {taken}", code=IDEMPOTENCY_KEY_TAKEN)
    found = await connection.fetchval("SELECT 1 FROM runs WHERE id = $1", columns.previous_id)
    if found is None:
        return NotFound(f"there is no run {columns.previous_id!r} to continue")
    return Conflict(f"the run {columns.previous_id!r} belongs to another conversation")


class Moved(Exception):
    """The run is held, and its chain ends elsewhere: an earlier write, given up as lost, was done after all."""

    def __init__(self, place: PostgresChainHead) -> None:
        super().__init__(place)
        self.place = place


async def _lost(connection: Connection, hold: PostgresHold) -> Exception:
    state = await connection.fetchrow(_STATE, hold.run, bind_text(hold.run_id))
    if state is None:
        return NotFound("the run was deleted")
    ended_at, epoch, _, _, *held = state
    if ended_at is not None and epoch == hold.epoch:
        return Conflict("the run has ended", code=RUN_ENDED)
    if held[:2] == [bind_text(hold.owner), hold.epoch]:
        return Moved(PostgresChainHead(*held[2:]))
    return StoreError("another owner has taken the run over", code=LEASE_LOST)
