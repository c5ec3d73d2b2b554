"""The journal may lie in the folder that local tools work in: they do not open it."""

import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from treadle import tool
from treadle.config import LocalSection, Settings, StoreSection, ToolsSection
from treadle.config.settings import ServerSection
from treadle.core.items import ResultItem
from treadle.runtime import Runtime
from warm import start


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("file_read", {"path": "runs.db"}),
        ("file_read", {"path": "runs.db-wal"}),
        ("file_read", {"path": "link"}),
    ],
)
async def test_a_file_tool_does_not_read_everybody_s_runs(tmp_path: Path, name: str, arguments: dict[str, str]) -> None:
    """Neither the database, nor its log, nor a link to it."""
    (tmp_path / "link").symlink_to("runs.db")
    settings = Settings(
        store=StoreSection(url=f"sqlite:///{tmp_path / 'runs.db'}"),
        server=ServerSection(mcp=True),
        tools=ToolsSection(local=LocalSection(root=str(tmp_path), enabled=("file_read", "grep"))),
    )
    async with Runtime(settings) as runtime:
        result = await runtime.call(name, arguments, lambda said: None)
        found = await runtime.call("grep", {"pattern": "SQLite format"}, lambda said: None)
    assert isinstance(result, ResultItem)
    assert result.is_error
    assert "may hold secrets" in repr(result)
    assert "runs.db" not in repr(found.output)


FOREIGN = """
import sqlite3, sys
journal = sqlite3.connect(sys.argv[1])
print(journal.execute("SELECT count(*) FROM runs").fetchone()[0])
journal.close()
"""


@tool(effect="read")
def count_runs(path: str) -> int:
    """Count the runs of a journal.

    Args:
        path: Where it is.
    """
    with closing(sqlite3.connect(path)) as journal:
        return journal.execute("SELECT count(*) FROM runs").fetchone()[0]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("file_read", {"path": "runs.db"}),
        ("file_read", {"path": "link"}),
        ("file_read", {"path": "second name"}),
        ("file_read", {"path": "second name of the index"}),
        ("file_write", {"path": "second name", "content": "nothing"}),
        ("count_runs", {"path": "runs.db"}),
        ("count_runs", {"path": "second name"}),
    ],
)
async def test_no_tool_takes_sqlite_s_locks_away(
    tmp_path: Path, name: str, arguments: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that would open the journal in this process is refused, so another program leaves the log where it is."""
    monkeypatch.chdir(tmp_path)
    journal = tmp_path / "runs.db"
    enabled = ("file_read", "file_write")
    settings = Settings(
        store=StoreSection(url=f"sqlite:///{journal}"),
        server=ServerSection(mcp=True),
        tools=ToolsSection(local=LocalSection(root=str(tmp_path), enabled=enabled, policy="trust")),
    )
    async with Runtime(settings, tools=[count_runs]) as runtime:
        os.symlink("runs.db", "link")
        os.link(journal, "second name")
        os.link(f"{journal}-shm", "second name of the index")
        result = await runtime.call(name, arguments, lambda said: None)
        assert (isinstance(result, ResultItem) and result.is_error) is True
        counted = await asyncio.to_thread(start.run, [sys.executable, "-c", FOREIGN, str(journal)])
        assert (counted.returncode, counted.stdout, counted.stderr) == (0, "1\n", "")
        names = [each for each in os.listdir() if each.startswith("runs.db-")]
        assert sorted(names) == ["runs.db-lock", "runs.db-shm", "runs.db-wal"]
        await runtime.store.ping()
