"""`treadle approvals`: what waits is listed, read, approved, denied and remembered from a terminal, on the store."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from store.sample import run_row
from treadle.cli.main import main
from treadle.journal.approvals_interface import ApprovalQuestion, ApprovalRow
from treadle.journal.journal_interface import SessionRow
from treadle.journal.sqlite.store import SqliteStore

LATER = 4_000_000_000.0


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store in which two calls wait."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREADLE_CONFIG", "treadle.toml")
    (tmp_path / "treadle.toml").write_text(f'[store]\nurl = "sqlite:///{tmp_path}/treadle.db"\n', encoding="utf-8")
    asyncio.run(with_store(tmp_path, fill))
    return tmp_path


async def with_store(folder: Path, work: Callable[[SqliteStore], Coroutine[Any, Any, Any]]) -> Any:
    """Do something with the store of the folder."""
    store = SqliteStore(f"{folder}/treadle.db")
    await store.open()
    try:
        return await work(store)
    finally:
        await store.close()


async def fill(store: SqliteStore) -> None:
    """Let two calls of a run wait."""
    await store.create_session(SessionRow(id="sess_1", created_at=1.0, updated_at=1.0))
    await store.start_run(run_row("1"), [], owner="me", lease_s=60)
    for name in ("a", "b"):
        question = ApprovalQuestion(
            tool="wipe",
            source="python",
            arguments=f'{{"path":"/tmp/{name}"}}',
            digest=f"digest-{name}",
            reasons=("wipe is destructive",),
            session_id="sess_1",
        )
        row = ApprovalRow(
            id=f"apr_{name}", run_id="run_1", call_id=name, created_at=1.0, expires_at=LATER, question=question
        )
        await store.approvals.file(row)


def kept(folder: Path, approval_id: str) -> ApprovalRow:
    """Return an approval as the store has it."""
    return asyncio.run(with_store(folder, lambda store: store.approvals.find(approval_id)))


def rules(folder: Path) -> list[Any]:
    """Return the rules of the store."""
    return asyncio.run(with_store(folder, lambda store: store.approvals.rules()))


def test_what_waits_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Newest first, with the call; without an action too, and as JSON."""
    assert main(["approvals"]) == 0
    head, first, second, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["approval", "status", "left", "call"]
    assert (first.split()[0], second.split()[0]) == ("apr_b", "apr_a")
    assert '{"path":"/tmp/a"}' in second
    assert last == "2 calls waiting"
    assert main(["approvals", "list", "--json", "--run", "run_1"]) == 0
    listed = msgspec.json.decode(capsys.readouterr().out)["approvals"]
    assert [each["id"] for each in listed] == ["apr_b", "apr_a"]


def test_one_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Why, with which arguments, in which run."""
    assert main(["approvals", "show", "apr_a"]) == 0
    shown = capsys.readouterr().out
    for words in ("apr_a  pending", "wipe (python)", '{"path":"/tmp/a"}', "wipe is destructive", "run_1", "digest-a"):
        assert words in shown


def test_what_is_left_is_shown_in_one_way(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the list and with one of them, which has its end as well; a decided one has neither."""
    monkeypatch.setattr("treadle.runtime.database_clock.SharedClock.now", lambda _: LATER - 899.5)
    assert main(["approvals"]) == 0
    assert "  pending  14m 59s  wipe" in capsys.readouterr().out
    assert main(["approvals", "show", "apr_a"]) == 0
    [line] = [each for each in capsys.readouterr().out.splitlines() if each.startswith("expires ")]
    assert line.startswith("expires    2096-10-0")
    assert line.endswith(", in 14m 59s")
    assert main(["approvals", "deny", "apr_a"]) == 0
    assert "expires" not in capsys.readouterr().out


def test_a_call_is_approved_with_other_arguments_and_remembered(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the person at the terminal; the second decision is refused, and all are found with --all."""
    (here / "args.json").write_text('{"path": "/tmp/z"}', encoding="utf-8")
    flags = ["--arguments", "@args.json", "--digest", "digest-a", "--remember", "pattern", "--pattern", "path=/tmp/*"]
    assert main(["approvals", "approve", "apr_a", *flags]) == 0
    assert 'runs with  {"path":"/tmp/z"}' in capsys.readouterr().out
    row = kept(here, "apr_a")
    assert row.decision is not None
    assert (row.status, row.decision.by, row.decision.arguments) == ("approved", "ann", '{"path":"/tmp/z"}')
    [rule] = rules(here)
    assert (rule.rule.patterns, rule.session_id) == ({"path": "/tmp/*"}, "sess_1")
    assert main(["approvals", "deny", "apr_a"]) != 0
    assert "approved already" in capsys.readouterr().err
    assert main(["approvals", "list", "--all"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 approvals"


def test_a_call_is_denied_with_a_reason(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON for a program."""
    assert main(["approvals", "deny", "apr_b", "--reason", "not today", "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["decision"]["reason"] == "not today"
    assert kept(here, "apr_b").status == "denied"


def test_rules_are_listed_and_forgotten(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One for every call of the tool in its session."""
    assert main(["approvals", "approve", "apr_a", "--remember", "tool"]) == 0
    capsys.readouterr()
    assert main(["approvals", "rules"]) == 0
    line, count = capsys.readouterr().out.splitlines()
    assert line.endswith("wipe: every call, in session sess_1")
    assert count == "1 rule"
    assert main(["approvals", "forget", line.split()[0]]) == 0
    assert rules(here) == []
    assert main(["approvals", "forget", line.split()[0]]) != 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["approve", "apr_none"], "`treadle approvals`"),
        (["approve", "apr_a", "--arguments", "[]"], "JSON object"),
        (["approve", "apr_a", "--arguments", "@none.json"], "no file"),
        (["approve", "apr_a", "--digest", "x"], "digest"),
        (["approve", "apr_a", "--pattern", "path=x"], "--remember pattern"),
        (["approve", "apr_a", "--remember", "pattern", "--pattern", "path"], "NAME=GLOB"),
        (["approve", "apr_a", "--remember", "pattern"], "at least one argument"),
    ],
)
def test_what_can_not_be_is_refused_and_nothing_is_decided(
    here: Path, flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a line that says why."""
    assert main(["approvals", *flags]) != 0
    assert words in capsys.readouterr().err
    assert kept(here, "apr_a").status == "pending"
