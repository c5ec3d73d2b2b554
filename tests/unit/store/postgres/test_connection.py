"""Failures of PostgreSQL in words, and never with the password."""

import asyncpg
import pytest

from treadle.store.address import PostgresAddress
from treadle.store.postgres.connection import constraint_error, store_error

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
        (asyncpg.UndefinedTableError("x"), "store_unavailable"),
        (ConnectionRefusedError("x"), "store_unavailable"),
        (TimeoutError(), "store_unavailable"),
    ],
)
def test_failures_have_a_code_the_address_and_a_hint(error: Exception, code: str) -> None:
    """Every failure is told in words, as a 503 that may be tried again."""
    info = store_error(error, ADDRESS).info
    assert (info.code, info.status, info.retryable) == (code, 503, True)
    assert "postgresql://me:***@db.example/x" in info.message
    assert info.hint


def test_a_password_in_the_servers_words_is_not_repeated() -> None:
    """Whoever quotes it, the message has stars."""
    info = store_error(asyncpg.InvalidPasswordError("no user me with hidden-word"), ADDRESS).info
    assert "hidden-word" not in str(info)


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
