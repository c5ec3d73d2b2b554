"""One way to open a store by its address."""

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from treadle.core.errors import ConfigError, StoreError
from treadle.journal.open_store import inspect_store, open_store
from treadle.journal.postgres.store import PostgresStore
from treadle.journal.sqlite.store import SqliteStore
from treadle.journal.store_url import PostgresAddress


def test_the_address_chooses_the_engine(tmp_path: Path) -> None:
    """A path or `:memory:` is SQLite, an address PostgreSQL; nothing is opened yet."""
    path = str(tmp_path / "a.db")
    assert isinstance(open_store(path), SqliteStore)
    assert isinstance(open_store(":memory:"), SqliteStore)
    assert isinstance(open_store("postgresql://db.example/x"), PostgresStore)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_address_is_refused() -> None:
    """By the key that it comes from."""
    with pytest.raises(ConfigError) as caught:
        open_store("postgresql://db.example/x?schema=pg_a")
    assert caught.value.param == "store.url"


async def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The base install has no driver; nobody sees a traceback, or a password."""
    for name in [name for name in sys.modules if name.startswith(("asyncpg", "treadle.journal.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == "asyncpg":
            raise ModuleNotFoundError(f"No module named {name!r}", name="asyncpg")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    place = "postgresql://me:hidden-word@db.example/x"

    async def make() -> object:
        return open_store(place)

    for use in (make(), inspect_store(PostgresAddress(place))):
        with pytest.raises(StoreError, match="asyncpg") as caught:
            await use
        assert caught.value.info.code == "store_not_installed"
        assert caught.value.hint == "pip install 'treadle[postgres]'"
        assert "hidden-word" not in caught.value.message
