"""Copies of a journal in PostgreSQL, by its own programs: made, taken back, and refused with a reason."""

import asyncio
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from postgres import postgres_programs, postgres_server
from store.sample import COMPLETED, LEASE_S, OWNER, run_row, said
from treadle.core.errors import NotFound, StoreError
from treadle.journal.open_store import inspect_store, open_store
from treadle.journal.postgres import backup
from treadle.journal.store_url import PostgresAddress


def env() -> dict[str, str]:
    """An environment in which the programs of the server's own version are found."""
    return {**os.environ, "PATH": f"{postgres_programs()}{os.pathsep}{os.environ['PATH']}"}


async def fill(url: str) -> None:
    """Make a journal with one run."""
    store = open_store(url)
    await store.open()
    journal = await store.start_run(run_row("1"), [said("hello")], owner=OWNER, lease_s=LEASE_S)
    await journal.finish([], COMPLETED)
    await store.close()


async def entries(url: str) -> list[str]:
    """Return what is in the journal."""
    store = open_store(url)
    await store.open()
    try:
        return [entry.content for entry in await store.entries("run_1")]
    finally:
        await store.close()


@pytest.mark.parametrize("schema", ["", "Copy-1", "select", 'a "b" c', "*.?|(x)", "naïve 表"])
def test_a_copy_is_made_and_taken_back(tmp_path: Path, schema: str) -> None:
    """Over a journal that has changed since, whatever its schema is called; the file is its owner's alone."""
    schema = schema or postgres_server().new_schema()
    url = postgres_server().url(quote(schema, safe=""))
    address = PostgresAddress(url)
    asyncio.run(fill(url))
    backup.back_up(address, tmp_path / "copy.dump", env())
    assert (tmp_path / "copy.dump").stat().st_mode & 0o777 == 0o600
    assert backup.schema_in(tmp_path / "copy.dump", env()) == schema
    seen = asyncio.run(inspect_store(address))
    assert (seen.state, seen.runs, seen.size_bytes > 0) == (f"at version {seen.newest}", 1, True)

    async def forget() -> None:
        store = open_store(url)
        await store.open()
        await store.delete_run("run_1")
        await store.close()

    asyncio.run(forget())
    backup.restore(address, tmp_path / "copy.dump", env())
    assert asyncio.run(entries(url)) == ["hello"]


def test_a_copy_that_is_none_is_refused(tmp_path: Path) -> None:
    """Missing, or something else."""
    address = PostgresAddress(postgres_server().url("s0"))
    with pytest.raises(NotFound):
        backup.restore(address, tmp_path / "none", env())
    (tmp_path / "text").write_text("no dump", encoding="utf-8")
    with pytest.raises(StoreError, match="no copy that pg_restore can read"):
        backup.schema_in(tmp_path / "text", env())


def test_without_the_programs_it_says_what_to_install(tmp_path: Path) -> None:
    """And leaves no file."""
    address = PostgresAddress("postgresql://a@127.0.0.1:1/b")
    with pytest.raises(StoreError, match="pg_dump, which is not on the PATH") as caught:
        backup.back_up(address, tmp_path / "x.dump", {"PATH": str(tmp_path)})
    assert "postgresql-client" in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_a_password_is_given_by_the_environment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody on a machine can read command lines; also the error does not show it."""
    called: list[tuple[list[str], dict[str, str]]] = []

    def fail(command: list[str], **options: Any) -> Any:
        called.append((command, options["env"]))
        return backup.subprocess.CompletedProcess(command, 1, "", "pg_dump: error: no connection\n")

    monkeypatch.setattr(backup.subprocess, "run", fail)
    monkeypatch.setattr(backup.shutil, "which", lambda name, path: f"/usr/bin/{name}")
    for url, given in (
        ("postgresql://ada:ge%20heim@db/t?sslmode=require", ""),
        ("postgresql://ada@db/t?password=ge heim", ""),
        ("postgresql://ada@db/t", "ge heim"),
    ):
        with pytest.raises(StoreError, match="no connection") as caught:
            backup.back_up(PostgresAddress(url, password=given), tmp_path / "x", {})
        command, environment = called.pop()
        assert environment["PGPASSWORD"] == "ge heim"
        assert "heim" not in f"{command} {caught.value.message}"
        assert any(word.startswith("--dbname=postgresql://ada@db/t") for word in command)
