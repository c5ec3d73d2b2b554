"""Addresses of stores: read strictly, shown without a password."""

import pytest

from treadle.core.errors import ConfigError
from treadle.journal.store_url import PostgresAddress, is_postgres, shown_url

WORD = "hidden-word"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db.example/x", "postgresql://db.example/x"),
        ("postgresql://me@db.example:5433/x", "postgresql://me@db.example:5433/x"),
        (f"postgresql://me:{WORD}@db.example/x", "postgresql://me:***@db.example/x"),
        (f"postgres://me:{WORD}@/x?host=/run", "postgres://me:***@/x?host=/run"),
        (f"postgresql://me:a/{WORD}?#@b@db.example/x", "postgresql://me:***@db.example/x"),
        (f"postgresql://:{WORD}@db.example/x", "postgresql://:***@db.example/x"),
        (f"postgresql://db.example/x?password={WORD}&user=me", "postgresql://db.example/x?password=***&user=me"),
        (f"postgresql://db.example/x?user=me&Password={WORD}", "postgresql://db.example/x?user=me&Password=***"),
        ("sqlite:///data.db", "sqlite:///data.db"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    """Wherever it stands, and also where its signs were not escaped."""
    assert shown_url(url) == shown


def test_schema_and_pool_are_ours_and_the_rest_is_the_drivers() -> None:
    """They are taken out of the address; without them there are defaults."""
    address = PostgresAddress("postgresql://me@db.example/x?schema=mine&sslmode=require&pool_size=4")
    assert (address.dsn, address.schema, address.pool_size) == (
        "postgresql://me@db.example/x?sslmode=require",
        "mine",
        4,
    )
    plain = PostgresAddress("postgresql://me@db.example/x")
    assert (plain.dsn, plain.schema, plain.pool_size, plain.password) == (
        "postgresql://me@db.example/x",
        "treadle",
        16,
        None,
    )


def test_a_password_in_the_address_wins_over_the_environment() -> None:
    """All that is secret is known, and nothing of it is in the object's text."""
    inside = PostgresAddress(f"postgresql://me:{WORD}@db.example/x", password="other")
    outside = PostgresAddress("postgresql://me@db.example/x", password=WORD)
    option = PostgresAddress(f"postgresql://me@db.example/x?password={WORD}", password="other")
    assert (inside.password, outside.password, option.password) == (None, WORD, None)
    for address in (inside, outside, option):
        assert WORD in address.secrets
        assert WORD not in repr(address)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"postgresql://me:{WORD}[@db.example/x", "cannot be read"),
        ("postgresql://db.example/x?schema=", "schema must be"),
        ("postgresql://db.example/x?schema=pg_mine", "schema must be"),
        ("postgresql://db.example/x?schema=$user", "schema must be"),
        ("postgresql://db.example/x?schema=a%00b", "schema must be"),
        (f"postgresql://db.example/x?schema={'%C3%A4' * 32}", "schema must be"),
        ("postgresql://db.example/x?pool_size=0", "pool_size must be"),
        ("postgresql://db.example/x?pool_size=many", "pool_size must be"),
        (f"postgresql://me:{WORD}@:5432/x", "the host is missing"),
    ],
)
def test_a_wrong_address_is_refused_by_its_key(url: str, words: str) -> None:
    """With an example, and without the password."""
    with pytest.raises(ConfigError, match=words) as caught:
        PostgresAddress(url)
    assert caught.value.param == "store.url"
    assert WORD not in f"{caught.value.message} {caught.value.hint}"


def test_two_spellings_name_postgres() -> None:
    """A file is none."""
    assert [is_postgres(url) for url in ("postgres://x", "postgresql://x", "sqlite:///x", "x.db")] == [
        True,
        True,
        False,
        False,
    ]
