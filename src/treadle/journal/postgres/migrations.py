"""Numbered migrations: `schema/NNNN_name.sql`, each applied once, in order, and remembered with its sha256.

A schema that is newer than this code, was made by another text of a migration, or belongs to another program is
refused rather than guessed at. One process at a time migrates; the others wait for it.
"""

import hashlib
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files

import asyncpg
import msgspec

from treadle.core.errors import StoreError
from treadle.journal.open_store import REPLICAS_S, JournalInspection, skew_s
from treadle.journal.postgres.connection import UNREACHABLE, Connection, connect, store_error, unavailable
from treadle.journal.postgres.pooler_detection import check_session
from treadle.journal.store_url import PostgresAddress

VERSION_MIN = 15
_LOCK = 0x7EAD1E
"""The number of the advisory lock; any one that no other program uses."""
_LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations (
  version    bigint PRIMARY KEY,
  sha256     text NOT NULL,
  applied_at double precision NOT NULL
)
"""


_CONNECTIONS_LEFT = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
  - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
"""
_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')
"""


_REPLICAS = """
SELECT owner, facts FROM replicas WHERE seen_at >= date_part('epoch', clock_timestamp()) - $1::float8
ORDER BY started_at, owner
"""


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the schema."""

    version: int
    sql: str

    @property
    def sha256(self) -> str:
        """Return what identifies this very text."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def read_migrations() -> tuple[Migration, ...]:
    """Return the migrations that come with this code, in order."""
    found = sorted((files("treadle.journal.postgres") / "schema").iterdir(), key=lambda file: file.name)
    texts = [file for file in found if file.name.endswith(".sql")]
    return tuple(Migration(version=int(file.name[:4]), sql=file.read_text("utf-8")) for file in texts)


async def migrate(address: PostgresAddress, migrations: Sequence[Migration], now: float) -> None:
    """Bring the schema to the newest of the migrations, in one transaction.

    Raises: StoreError, when the database cannot be reached or the schema cannot be taken there.
    """
    async with _connected(address) as connection:
        if await _pending(connection, address, migrations):
            async with connection.transaction():
                await _apply(connection, address, migrations, now)


async def inspect_schema(address: PostgresAddress) -> JournalInspection:
    """Return which PostgreSQL answers and what is in the schema, without changing anything.

    Raises: StoreError.
    """
    async with _connected(address) as connection:
        server = await connection.fetchval("SHOW server_version")
        asked_at = time.time()
        skew = skew_s(float(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())")), asked_at)
        left = await connection.fetchval(_CONNECTIONS_LEFT)
        steps = read_migrations()
        pending = await _pending(connection, address, steps)
        is_new = len(pending) == len(steps)
        runs = 0 if is_new else await connection.fetchval(f"SELECT count(*) FROM {address.quoted_schema}.runs")
        size = await connection.fetchval(_SIZE, address.schema)
        replicas = await connection.fetch(_REPLICAS, REPLICAS_S) if not pending else []
        secrets = await connection.fetch("SELECT fingerprint FROM key_secrets") if not pending else []
    return JournalInspection(
        engine=f"PostgreSQL {server}",
        version=len(steps) - len(pending),
        newest=len(steps),
        runs=int(runs),
        size_bytes=int(size),
        skew_s=skew,
        connections_left=int(left),
        replicas=tuple((str(owner), str(facts)) for owner, facts in replicas),
        secrets=frozenset(str(row[0]) for row in secrets),
    )


@asynccontextmanager
async def _connected(address: PostgresAddress) -> AsyncGenerator[Connection, None]:
    """Make a connection to a server that will do, and name what fails."""
    try:
        connection = await connect(address)
    except (*UNREACHABLE, asyncpg.PostgresError) as error:
        raise store_error(error, address) from None
    except ValueError:
        # The text of such an error may quote the address.
        raise unavailable(address, "the address cannot be read") from None
    try:
        await check_session(connection, address)
        await _check_server(connection, connection.get_server_version().major, address)
        yield connection
    except (*UNREACHABLE, asyncpg.PostgresError) as error:
        raise store_error(error, address) from None
    finally:
        connection.terminate()


async def _apply(connection: Connection, address: PostgresAddress, steps: Sequence[Migration], now: float) -> None:
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", address.quoted_schema):
        await connection.execute(f"CREATE SCHEMA {address.quoted_schema}")
    pending = await _pending(connection, address, steps)
    await connection.execute(_LEDGER)
    for step in pending:
        await connection.execute(step.sql)
        await connection.execute(
            "INSERT INTO schema_migrations (version, sha256, applied_at) VALUES ($1, $2, $3)",
            step.version,
            step.sha256,
            now,
        )


async def _check_server(connection: Connection, version: int, address: PostgresAddress) -> None:
    if version < VERSION_MIN:
        raise StoreError(
            f"the store {address.shown} is PostgreSQL {version}, and Treadle needs {VERSION_MIN} or newer",
            code="store_too_old",
            hint="upgrade the server, or name another one",
        )
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"the store {address.shown} is a database in {encoding}, and Treadle needs UTF8",
            code="store_wrong_encoding",
            hint="create a database with ENCODING 'UTF8'",
        )


async def _pending(connection: Connection, address: PostgresAddress, steps: Sequence[Migration]) -> list[Migration]:
    applied = await _applied(connection, address)
    known = {step.version: step.sha256 for step in steps}
    for version, sha256 in applied.items():
        if version not in known:
            raise StoreError(
                f"the store {address.shown} has schema version {version}, this Treadle knows up to {max(known)}",
                code="store_too_new",
                hint="use the newer Treadle that wrote it, or name another database or schema",
            )
        if known[version] != sha256:
            raise StoreError(
                f"the store {address.shown} was made by another text of schema version {version}",
                code="store_schema_changed",
                hint="use the Treadle that made it, or name another database or schema",
            )
    return [step for step in steps if step.version not in applied]


async def _applied(connection: Connection, address: PostgresAddress) -> dict[int, str]:
    sql = "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY tablename"
    tables = [row[0] for row in await connection.fetch(sql, address.schema)]
    if not tables:
        return {}
    if "schema_migrations" not in tables:
        raise StoreError(
            f"the schema {address.schema} of the store {address.shown} belongs to another program "
            f"(it has the table {tables[0]!r})",
            code="store_foreign",
            hint="name another schema: ?schema=NAME",
        )
    rows = await connection.fetch("SELECT version, sha256 FROM schema_migrations ORDER BY version")
    return {row[0]: row[1] for row in rows}
