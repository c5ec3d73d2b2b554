"""Failures of PostgreSQL in words, and never with the password; connections that are kept."""

import time
from typing import Any

import asyncpg
import pytest

from postgres import postgres_server
from treadle.core.errors import STORE_MESSAGES
from treadle.journal.postgres import connection as connections
from treadle.journal.postgres.connection import Connection, Gone, PostgresPool, constraint_error, store_error
from treadle.journal.store_url import POOL_SIZE, PostgresAddress

ADDRESS = PostgresAddress("postgresql://me:hidden-word@db.example/x")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (asyncpg.DiskFullError("x"), "store_full"),
        (asyncpg.ReadOnlySQLTransactionError("x"), "store_read_only"),
        (asyncpg.InvalidPasswordError("x"), "store_refused"),
        (asyncpg.InvalidCatalogNameError("x"), "store_cannot_open"),
        (asyncpg.InsufficientPrivilegeError("x"), "store_read_only"),
        (asyncpg.DataCorruptedError("x"), "store_corrupt"),
        (asyncpg.TooManyConnectionsError("x"), "store_unavailable"),
        (asyncpg.UndefinedTableError("x"), "store_schema_missing"),
        (ConnectionRefusedError("x"), "store_unavailable"),
        (TimeoutError(), "store_unavailable"),
    ],
)
def test_failures_have_a_code_the_address_and_a_hint(error: Exception, code: str) -> None:
    """Every failure is a 503; operators are told where and what to do, clients neither."""
    found = store_error(error, ADDRESS)
    assert (found.info.code, found.info.status, found.info.retryable) == (code, 503, code != "store_corrupt")
    assert "postgresql://me:***@db.example/x" in found.message
    assert found.hint
    assert found.info.message == STORE_MESSAGES[code]
    assert "db.example" not in str(found.info)


def test_a_password_in_the_servers_words_is_not_repeated() -> None:
    """Whoever quotes it, the message has stars."""
    found = store_error(asyncpg.InvalidPasswordError("no user me with hidden-word"), ADDRESS)
    assert "hidden-word" not in f"{found.message} {found.info}"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (asyncpg.ForeignKeyViolationError("x"), "not_found"),
        (asyncpg.UniqueViolationError("x"), "conflict"),
        (asyncpg.ProgramLimitExceededError("x"), "invalid_value"),
        (asyncpg.NotNullViolationError("x"), "invalid_value"),
        (asyncpg.DataError("x"), "invalid_value"),
        (asyncpg.DiskFullError("x"), None),
    ],
)
def test_broken_rules_become_errors_for_the_caller(error: Exception, code: str | None) -> None:
    """A taken key is a conflict, a missing parent not found, a text too long for an index a wrong value."""
    found = constraint_error(error)
    assert (None if found is None else found.info.code) == code


async def pid(connection: Any, within_s: float) -> int:
    """Tell which connection it is."""
    return await connection.fetchval("SELECT pg_backend_pid()", timeout=within_s)


async def test_a_line_keeps_its_connection() -> None:
    """Whatever others do meanwhile; closing the pool takes it back."""
    pool = PostgresPool(PostgresAddress(postgres_server().url("s0")))
    await pool.open()
    line, other = pool.line(), pool.line()
    first = await line.run(pid, 9.0)
    assert await other.run(pid, 9.0) != first
    assert [await line.run(pid, 9.0) for _ in range(2)] == [first, first]
    assert pool.shared_size == POOL_SIZE - 2
    await pool.close()
    assert not pool.is_open


@pytest.mark.parametrize(
    "query", ["SELECT 1 / 0", "SELECT pg_terminate_backend(pg_backend_pid())", "SELECT pg_sleep(9)"]
)
async def test_a_line_goes_on_after_a_failure(query: str) -> None:
    """A mistake is told as it is; a connection that was lost, or does not answer in time, as gone."""
    pool = PostgresPool(PostgresAddress(postgres_server().url("s0")))
    await pool.open()
    line = pool.line()

    async def fail(connection: Connection, within_s: float) -> None:
        await connection.fetch(query, timeout=min(within_s, 0.05))

    first = await line.run(pid, 9.0)
    is_mistake = "/" in query
    with pytest.raises(asyncpg.DivisionByZeroError if is_mistake else Gone):
        await line.run(fail, 9.0)
    assert (await line.run(pid, 9.0) == first) is is_mistake
    await pool.close()


async def test_only_lines_plan_once_and_by_indexes() -> None:
    """Nobody else gets a connection that was told so, also not after something unforeseen."""
    pool = PostgresPool(PostgresAddress(postgres_server().url("s0")))
    await pool.open()

    async def plans(connection: Connection, _: float = 0.0) -> tuple[str, str]:
        found = [await connection.fetchval(f"SHOW {name}") for name in ("enable_seqscan", "plan_cache_mode")]
        return found[0], found[1]

    async def stumble(connection: Connection, _: float) -> None:
        raise LookupError

    line = pool.line()
    assert await line.run(plans, 9.0) == ("off", "force_generic_plan")
    with pytest.raises(LookupError):
        await line.run(stumble, 9.0)
    assert await pool.run(plans, time.monotonic() + 9.0) == ("on", "auto")
    assert await line.run(plans, 9.0) == ("off", "force_generic_plan")
    await pool.close()


async def test_a_line_that_rested_for_long_takes_another_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies between may have forgotten the old one and not said so."""
    pool = PostgresPool(PostgresAddress(postgres_server().url("s0")))
    await pool.open()
    line = pool.line()
    first = await line.run(pid, 9.0)
    monkeypatch.setattr(connections, "KEPT_S", 0.0)
    assert await line.run(pid, 9.0) != first
    await pool.close()


async def test_the_lines_of_a_small_pool_keep_nothing() -> None:
    """One connection serves them all."""
    pool = PostgresPool(PostgresAddress(postgres_server().url("s0") + "&pool_size=1"))
    await pool.open()
    pids = [await line.run(pid, 9.0) for line in (pool.line(), pool.line())]
    assert pids[0] == pids[1]
    assert pool.shared_size == 1
    await pool.close()
