"""`treadle store`: a copy is made and taken back on both stores, damage is told, and the old is forgotten."""

import asyncio
import os
from pathlib import Path

import apsw
import msgspec
import pytest

from postgres import postgres_programs, postgres_server
from treadle.cli.main import main
from treadle.config import Settings, StoreSection
from treadle.runtime import Parts, Runtime
from unit.cli.stored import run_script


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder whose treadle.toml names the store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREADLE_CONFIG", "treadle.toml")
    monkeypatch.setenv("PATH", f"{postgres_programs()}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "treadle.toml").write_text(f'[store]\nurl = "sqlite:///{tmp_path}/treadle.db"\n', encoding="utf-8")
    return tmp_path


async def say_hello(url: str) -> None:
    """Make one run with the demo model."""
    settings = Settings(store=StoreSection(url=url))
    async with Runtime(settings, parts=Parts(env={}, demo_delay_s=0.0)) as runtime:
        async for _ in runtime.run("hello"):
            pass


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Run the command and return what it printed, output and errors."""
    assert main(["store", *arguments]) == code
    shown = capsys.readouterr()
    return shown.out + shown.err


def test_a_sqlite_journal_is_copied_and_restored(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was said after the copy is gone, what was said before is there and proved."""
    asyncio.run(run_script(here))
    assert printed(capsys, "backup", "copy.db").startswith("copy.db: 1 run, ")
    asyncio.run(run_script(here))
    assert "2 runs" in printed(capsys, "info")
    assert "hint: --replace" in printed(capsys, "restore", "copy.db", code=1)
    shown = printed(capsys, "restore", "copy.db", "--replace")
    assert f"{here}/treadle.db: 1 run, schema at version" in shown
    assert "what was there is now" in shown
    assert main(["audit", "verify"]) == 0
    assert capsys.readouterr().out.endswith("1 run, all as written\n")


def test_a_postgres_journal_is_copied_and_restored(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the same words."""
    store = ("--store", postgres_server().url(postgres_server().new_schema()))
    assert printed(capsys, "backup", "copy.dump", *store, code=1).startswith("treadle: there is no journal")
    printed(capsys, "migrate", *store)
    asyncio.run(say_hello(store[1]))
    assert "copy.dump: 1 run, " in printed(capsys, "backup", "copy.dump", *store)
    printed(capsys, "prune", "--older-than", "0s", *store)
    assert "--replace drops it" in printed(capsys, "restore", "copy.dump", *store, code=1)
    assert ": 1 run, schema at version" in printed(capsys, "restore", "copy.dump", "--replace", *store)
    other = ("--store", postgres_server().url(postgres_server().new_schema()))
    assert "the copy holds the schema" in printed(capsys, "restore", "copy.dump", *other, code=1)


def test_a_copy_names_the_secret_that_is_not_in_it(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it clients' keys are lost, and in it they would be in danger."""
    monkeypatch.delenv("TREADLE_SECRET")
    assert main(["keys", "create", "ci"]) == 0
    capsys.readouterr()
    assert f"not in it: {here}/secret.key" in printed(capsys, "backup", "copy.db")


def test_damage_is_told_and_ends_with_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the way out."""
    asyncio.run(run_script(here))
    assert "treadle.db: sound, 1 run" in printed(capsys, "check")
    connection = apsw.Connection(str(here / "treadle.db"))
    connection.execute("PRAGMA foreign_keys = off; DELETE FROM runs")
    connection.close()
    shown = printed(capsys, "check", code=1)
    assert "refers to one that is missing in runs" in shown
    assert "damaged" in shown
    assert "hint: restore a copy" in shown


def test_a_dry_prune_forgets_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then a real one does, and an age that nothing has does not."""
    asyncio.run(run_script(here))
    assert printed(capsys, "prune", "--older-than", "90d") == "0 conversations (0 runs) are forgotten\n"
    assert "1 conversation (1 run)" in printed(capsys, "prune", "--older-than", "0s", "--dry-run")
    assert "would be forgotten" in printed(capsys, "prune", "--older-than", "0s", "--dry-run")
    assert "are forgotten" in printed(capsys, "prune", "--older-than", "0s")
    assert "0 runs" in printed(capsys, "info")


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (("info",), 1, "there is no journal at"),
        (("backup", "x.db"), 1, "there is no journal at"),
        (("check",), 1, "there is no journal at"),
        (("restore", "none.db"), 1, "there is no file none.db"),
        (("prune", "--older-than", "soon"), 1, "--older-than 'soon' is no time"),
        (("prune", "--older-than", "1d"), 1, "there is no journal at"),
    ],
)
def test_what_can_not_be_done_is_said(
    arguments: tuple[str, ...], code: int, what: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and no journal is made."""
    assert f"treadle: {what}" in printed(capsys, *arguments, code=code)
    assert [path.name for path in here.iterdir()] == ["treadle.toml"]


def test_every_answer_is_also_for_programs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON and nothing else on standard output."""
    asyncio.run(run_script(here))
    for arguments in (
        ("info",),
        ("check",),
        ("migrate",),
        ("backup", "c.db"),
        ("restore", "c.db", "--replace"),
        ("prune", "--older-than", "1d"),
    ):
        assert main(["store", *arguments, "--json"]) == 0
        assert isinstance(msgspec.json.decode(capsys.readouterr().out), dict)


def test_nothing_kept_is_nothing_to_look_after(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The key that says so is named."""
    (here / "treadle.toml").write_text('[store]\npersistence = "off"\n', encoding="utf-8")
    assert "store.persistence is off" in printed(capsys, "info", code=2)
