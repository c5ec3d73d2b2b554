"""Several servers on one journal: one leaves in good order, and one is of a newer version."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.server import Server, prepare, servers
from chaos.stores import KINDS, address, rows, violations
from chaos.test_kill import effects
from chaos.test_temporal import ended
from chaos.test_workers import load, stop
from treadle.core.events import ENDED

BOUND_S = 60.0
NEWER = """
import sys
from treadle.journal.{engine} import store
from treadle.journal.{engine}.migrations import Migration
known = store.read_migrations()
more = Migration(version=9_999, sql={sql!r})
store.read_migrations = lambda: (*known, more)
from treadle.cli.main import main
sys.exit(main())
"""
SQL = {
    "sqlite": "ALTER TABLE runs ADD COLUMN later TEXT; ALTER TABLE leases ADD COLUMN later TEXT NOT NULL DEFAULT 'x';"
    "ALTER TABLE events ADD COLUMN later TEXT; CREATE TABLE later (id TEXT) STRICT;",
    "postgresql": "ALTER TABLE runs ADD COLUMN later text; ALTER TABLE leases ADD COLUMN later int NOT NULL DEFAULT 0;"
    "ALTER TABLE events ADD COLUMN later text; CREATE TABLE later (id text);",
}
"""What a newer version may do while older ones run: add columns that have a default, add tables, and nothing else."""


def newer(kind: str) -> str:
    """Return a Treadle of a newer version: it knows one migration more."""
    return NEWER.format(engine="sqlite" if kind == "sqlite" else "postgres", sql=SQL[kind])


def in_its_tool(folder: Path) -> None:
    """Wait until a tool has had its effect and is still busy."""
    deadline = time.monotonic() + BOUND_S
    while not effects(folder):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_leaves_hands_its_background_runs_over(kind: str, tmp_path: Path) -> None:
    """SIGTERM in a tool: the other one goes on within seconds, without waiting for the lease."""
    prepare(tmp_path, 30.0)
    store = address(kind, tmp_path)
    with servers(tmp_path, store, 2) as (first, second):
        response = first.background("Please upsert the amount 7")
        in_its_tool(tmp_path)
        (tmp_path / "pause").write_text("0")
        assert first.leave() == 0
        left = time.monotonic()
        assert ended(second, response) == "completed"
        assert time.monotonic() - left < 12.0
    assert violations(store, tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_version_takes_over_while_the_older_one_serves(kind: str, tmp_path: Path) -> None:
    """The schema grows under the old server: no request fails, the new one ends its run, no old one starts again."""
    prepare(tmp_path, 0.0)
    store = address(kind, tmp_path)
    with servers(tmp_path, store, 1) as [old]:
        clients = load(old, 2)
        with servers(tmp_path, store, 1, program=newer(kind)) as [new]:
            clients += load(new, 2)
            time.sleep(2.0)
            assert stop(clients)[0::2] == ({200}, 0)
            (tmp_path / "pause").write_text("30")
            count = len(effects(tmp_path))
            response = old.background("Please upsert the amount 7")
            deadline = time.monotonic() + BOUND_S
            while len(effects(tmp_path)) == count:
                assert time.monotonic() < deadline
            (tmp_path / "pause").write_text("0")
            assert old.leave() == 0
            assert ended(new, response) == "completed"
            assert refusal(tmp_path, store).count("9999") == 1
            assert {row.status for row in new_rows(kind, store)} <= ENDED
    assert checked(kind, store, tmp_path) == []


def refusal(folder: Path, store: str) -> str:
    """Start a server of the old version and return what it says instead of serving."""
    command = [sys.executable, "-m", "treadle.cli.main", "serve", "--port", "0", "--store", store]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode != 0
    assert "use the newer Treadle" in done.stderr
    return done.stderr


def new_rows(kind: str, store: str) -> list:
    """Read the runs as the newer version does."""
    return _as_newer(kind, lambda: rows(store))


def checked(kind: str, store: str, folder: Path) -> list[str]:
    """Check every run as the newer version does."""
    return _as_newer(kind, lambda: violations(store, folder))


def _as_newer(kind: str, work):
    from treadle.journal.postgres import migrations as in_postgres
    from treadle.journal.postgres import store as postgres
    from treadle.journal.sqlite import migrations as in_sqlite
    from treadle.journal.sqlite import store as sqlite

    room, steps = (sqlite, in_sqlite) if kind == "sqlite" else (postgres, in_postgres)
    known = room.read_migrations
    room.read_migrations = lambda: (*known(), steps.Migration(version=9_999, sql=SQL[kind]))
    try:
        return work()
    finally:
        room.read_migrations = known


def test_a_newer_server_starts_beside_an_older_one_that_is_frozen(tmp_path: Path) -> None:
    """Nothing that an older process holds can keep the schema from growing."""
    prepare(tmp_path, 0.0)
    store = address("postgresql", tmp_path)
    with servers(tmp_path, store, 1) as [old]:
        assert old.ask("GET", "/readyz")[0] == 200
        old.freeze()
        new = Server(tmp_path, store, program=newer("postgresql"))
        try:
            new.open()
            assert new.ask("GET", "/readyz")[0] == 200
        finally:
            new.kill()
            old.thaw()
