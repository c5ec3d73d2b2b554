"""What the commands find out about a journal's file that a server would not: lost files, and damage below the runs."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

from treadle.cli.doctor.journal_file_checks import file_problems
from treadle.cli.doctor.store_checks import check_store
from treadle.cli.main import main
from treadle.config import Settings, StoreSection
from treadle.runtime import Parts, Runtime
from warm.start import Popen

USER = """
import asyncio, sys
from treadle.journal.sqlite.store import SqliteStore

async def use():
    store = SqliteStore(sys.argv[1])
    await store.open()
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(use())
"""
LINUX = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux says which files a process has open")
INDEX = "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema WHERE name = 'runs_conversation'"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder whose treadle.toml names the store, which holds a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREADLE_CONFIG", "treadle.toml")
    (tmp_path / "treadle.toml").write_text(f'[store]\nurl = "sqlite:///{tmp_path}/treadle.db"\n', encoding="utf-8")
    asyncio.run(_run(tmp_path))
    return tmp_path


async def _run(folder: Path) -> None:
    settings = Settings(store=StoreSection(url=f"sqlite:///{folder}/treadle.db"))
    async with Runtime(settings, parts=Parts(demo_delay_s=0.0)) as runtime:
        async for _ in runtime.run("hello"):
            pass


@contextmanager
def used(path: Path) -> Iterator[int]:
    """Let another process have the journal open, and give its id."""
    pipe = subprocess.PIPE
    with Popen([sys.executable, "-c", USER, str(path)], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"open\n"
        try:
            yield process.pid
        finally:
            process.kill()


def _shift(path: Path) -> None:
    """Leave one index without the entry of one row, as a write through a lost log did."""
    with closing(apsw.Connection(str(path))) as journal:
        row = next(iter(journal.execute(INDEX)))
        journal.execute("PRAGMA writable_schema = on; DELETE FROM sqlite_schema WHERE name = 'runs_conversation'")
    with closing(apsw.Connection(str(path))) as journal:
        journal.execute("UPDATE runs SET conversation_id = 'conv_of_another'")
        journal.execute("PRAGMA writable_schema = on")
        journal.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)


@LINUX
@pytest.mark.parametrize(
    ("suffix", "what"), [("", "database"), ("-wal", "write-ahead log"), ("-shm", "index of the write-ahead log")]
)
def test_a_process_with_a_deleted_file_is_named(here: Path, suffix: str, what: str) -> None:
    """As long as it lives; one that uses the files that are there is no problem."""
    path = here / "treadle.db"
    with used(path) as pid:
        assert file_problems(path) == []
        Path(f"{path}{suffix}").unlink()
        [problem] = file_problems(path)
    assert problem.startswith(f"process {pid} (")
    assert problem.endswith(f" has a {what} open that was deleted: nothing else sees what it commits")
    assert file_problems(path) == []


@LINUX
def test_a_process_with_another_database_is_named(here: Path) -> None:
    """The one it opened was moved away, and a copy stands in its place."""
    path = here / "treadle.db"
    with used(path) as pid:
        os.rename(path, here / "moved.db")
        path.write_bytes((here / "moved.db").read_bytes())
        [problem] = file_problems(path)
    words = " has another database open than the one there: nothing else sees what it commits"
    assert (problem.startswith(f"process {pid} ("), problem.endswith(words)) == (True, True), problem


@LINUX
def test_each_command_finds_a_log_that_a_living_process_lost(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The doctor, the check of the store and the audit: each names the process and ends with one."""
    path = here / "treadle.db"
    with used(path) as pid:
        Path(f"{path}-wal").unlink()
        found = check_store(Settings(store=StoreSection(url=f"sqlite:///{path}")))
        assert (found.state, found.advice.split(",")[0]) == ("broken", "stop that process")
        assert f"process {pid} (" in found.detail
        for words in (("store", "check"), ("audit", "verify"), ("audit", "verify", "last")):
            assert main([*words]) == 1, words
            assert f"process {pid} (" in capsys.readouterr().out


def test_each_command_finds_an_index_that_lost_an_entry(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each run is as it was written, and yet one of them will not be found: the file is read whole."""
    path = here / "treadle.db"
    _shift(path)
    found = check_store(Settings(store=StoreSection(url=f"sqlite:///{path}")))
    problem = "row 1 missing from index runs_conversation"
    assert (found.state, found.detail.splitlines()) == ("broken", [f"{path} is damaged", problem])
    for words in (("store", "check"), ("audit", "verify")):
        assert main([*words, "--json"]) == 1, words
        document = json.loads(capsys.readouterr().out)
        assert (document["ok"], document["problems"]) == (False, [problem])
