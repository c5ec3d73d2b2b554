"""Migrations: applied once, in order, by one process at a time, and refused where they do not fit."""

import asyncio
import hashlib
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from typing import Any

import pytest

from postgres import postgres_server
from treadle.core.errors import StoreError
from treadle.journal.postgres.connection import connect
from treadle.journal.postgres.migrations import Migration, inspect_schema, migrate, read_migrations
from treadle.journal.store_url import PostgresAddress

ONE = Migration(version=1, sql="CREATE TABLE one (n bigint); INSERT INTO one VALUES (1);")
TWO = Migration(version=2, sql="CREATE TABLE two (n bigint); INSERT INTO two SELECT n + 1 FROM one;")
WAIT_S = 30.0


@pytest.fixture
def address() -> PostgresAddress:
    """A schema that is not there yet."""
    server = postgres_server()
    return PostgresAddress(server.url(server.new_schema()))


@pytest.fixture
async def connection(address: PostgresAddress) -> AsyncIterator[Any]:
    """A connection of somebody else."""
    made = await connect(address)
    yield made
    await made.close()


async def rows(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    """Read something as tuples."""
    return [tuple(row) for row in await connection.fetch(sql)]


def test_our_own_migrations_are_numbered_from_one_without_a_gap() -> None:
    """The files' numbers are their places."""
    assert [step.version for step in read_migrations()] == list(range(1, len(read_migrations()) + 1))


def test_a_migration_is_known_by_the_hash_of_its_text() -> None:
    """Line endings do not count, because the file is read as text."""
    assert ONE.sha256 == hashlib.sha256(ONE.sql.encode()).hexdigest()
    assert all("\r" not in step.sql for step in read_migrations())


async def test_only_what_is_missing_is_applied(address: PostgresAddress, connection: Any) -> None:
    """An older schema is brought up to date; doing it again changes nothing."""
    await migrate(address, [ONE], 1.0)
    await migrate(address, [ONE, TWO], 2.0)
    await migrate(address, [ONE, TWO], 3.0)
    ledger = await rows(connection, "SELECT version, sha256, applied_at FROM schema_migrations ORDER BY version")
    assert ledger == [(1, ONE.sha256, 1.0), (2, TWO.sha256, 2.0)]
    assert await rows(connection, "SELECT n FROM two") == [(2,)]


async def test_types_that_an_older_copy_left_behind_do_not_stop_a_migration(
    address: PostgresAddress, connection: Any
) -> None:
    """Putting back a copy from before them takes the tables' place, and not that of types and functions."""
    older = [step for step in read_migrations() if step.version < 7]
    await migrate(address, older, 1.0)
    await connection.execute("CREATE TYPE entry AS (n bigint); CREATE TYPE telling AS (n bigint)")
    await connection.execute("CREATE FUNCTION forget_events() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'")
    await migrate(address, read_migrations(), 2.0)
    assert await connection.fetchval("SELECT count(*) FROM schema_migrations") == len(read_migrations())


async def test_a_step_that_fails_leaves_the_database_as_it_was(address: PostgresAddress, connection: Any) -> None:
    """All steps are one transaction, the schema itself included."""
    broken = Migration(version=2, sql="CREATE TABLE two (n bigint); INSERT INTO nowhere VALUES (1);")
    with pytest.raises(StoreError, match="nowhere"):
        await migrate(address, [ONE, broken], 1.0)
    assert await connection.fetchval("SELECT to_regnamespace($1)::text", address.quoted_schema) is None
    await migrate(address, [ONE, TWO], 1.0)


async def test_a_newer_schema_is_refused(address: PostgresAddress) -> None:
    """It says both versions, the place, and what to do."""
    await migrate(address, [ONE, TWO], 1.0)
    with pytest.raises(StoreError, match="has schema version 2, this Treadle knows up to 1") as caught:
        await migrate(address, [ONE], 2.0)
    assert (caught.value.info.code, "newer Treadle" in str(caught.value.hint)) == ("store_too_new", True)


async def test_a_changed_migration_is_refused(address: PostgresAddress, connection: Any) -> None:
    """The schema was made by another text of the same number."""
    await migrate(address, [ONE], 1.0)
    with pytest.raises(StoreError, match="another text of schema version 1") as caught:
        await migrate(address, [Migration(version=1, sql=ONE.sql + " "), TWO], 2.0)
    assert caught.value.info.code == "store_schema_changed"
    assert await rows(connection, "SELECT version FROM schema_migrations") == [(1,)]


async def test_the_schema_of_another_program_is_refused(address: PostgresAddress, connection: Any) -> None:
    """Nothing is added to tables that are not ours."""
    await connection.execute(f"CREATE SCHEMA {address.quoted_schema}; CREATE TABLE bookmarks (url text)")
    with pytest.raises(StoreError, match=r"another program.*bookmarks") as caught:
        await migrate(address, [ONE], 1.0)
    assert caught.value.info.code == "store_foreign"
    tables = await rows(connection, f"SELECT tablename FROM pg_tables WHERE schemaname = '{address.schema}'")
    assert tables == [("bookmarks",)]


async def test_a_database_that_is_not_utf8_is_refused(connection: Any) -> None:
    """It could not hold every text."""
    await connection.execute("DROP DATABASE IF EXISTS narrow")
    await connection.execute("CREATE DATABASE narrow ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'")
    url = postgres_server().url("s0").replace("/postgres?", "/narrow?")
    with pytest.raises(StoreError, match="SQL_ASCII") as caught:
        await migrate(PostgresAddress(url), [ONE], 1.0)
    assert caught.value.info.code == "store_wrong_encoding"


async def test_looking_changes_nothing_and_tells_the_state(address: PostgresAddress) -> None:
    """What doctor says before and after, and that a newer schema is found."""
    assert [(await inspect_schema(address)).state, (await inspect_schema(address)).state] == ["will be made"] * 2
    await migrate(address, read_migrations(), 1.0)
    seen = await inspect_schema(address)
    assert (seen.state, seen.runs) == (f"at version {len(read_migrations())}", 0)
    assert seen.engine.startswith("PostgreSQL ")
    assert seen.size_bytes > 0
    assert abs(seen.skew_s) < 1
    assert (seen.connections_left or 0) > 0
    await migrate(address, [*read_migrations(), Migration(version=99, sql="SELECT 1")], 1.0)
    with pytest.raises(StoreError, match="99"):
        await inspect_schema(address)


PROGRAM = """
import asyncio, sys
from treadle.journal.open_store import open_store
async def main():
    store = open_store(sys.argv[1])
    await store.open()
    await store.close()
asyncio.run(main())
"""


async def test_four_processes_migrate_one_database_at_once(address: PostgresAddress, connection: Any) -> None:
    """Each finds the schema ready, whoever made it, and it was made once."""
    host, _, _ = address.dsn.partition("?")
    url = f"{host}?host={postgres_server().socket_folder}&schema={address.schema}"
    command = [sys.executable, "-c", PROGRAM, url]
    processes = [await asyncio.create_subprocess_exec(*command, stderr=PIPE) for _ in range(4)]
    outcomes = [await asyncio.wait_for(process.communicate(), WAIT_S) for process in processes]
    assert [errors for _, errors in outcomes] == [b""] * 4
    assert [process.returncode for process in processes] == [0] * 4
    assert len(await rows(connection, "SELECT version FROM schema_migrations")) == len(read_migrations())


async def test_a_role_that_may_not_create_is_told_what_it_needs(connection: Any) -> None:
    """The right, and how to give it."""
    if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = 'reader'"):
        await connection.execute("CREATE ROLE reader LOGIN")
    server = postgres_server()
    with pytest.raises(StoreError, match="lacks a right") as caught:
        await migrate(PostgresAddress(server.url(server.new_schema(), user="reader")), [ONE], 1.0)
    assert "grant CREATE" in str(caught.value.hint)
