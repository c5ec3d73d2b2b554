"""`treadle audit verify`: a sound journal passes, a changed one does not, in the store and in a file."""

import asyncio
from pathlib import Path

import apsw
import msgspec
import pytest

from treadle.cli.main import main
from unit.cli.own_journal import here as here
from unit.cli.stored import run_script


def tamper(folder: Path, sql: str) -> None:
    """Change the database behind the journal's back."""
    connection = apsw.Connection(str(folder / "treadle.db"))
    list(connection.execute(sql))
    connection.close()


def test_a_sound_journal_passes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each run, and one line that says it of all."""
    ids = asyncio.run(run_script(here))
    assert main(["audit", "verify"]) == 0
    head, row, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "status", "entries", "epochs", "chain"]
    assert row.split()[:2] == [ids[0], "completed"]
    assert row.split()[-2:] == ["sound", "ok"]
    assert last == "1 run, all as written"


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("UPDATE events SET content = 'forged' WHERE kind = 'assistant'", "is not as it was written"),
        ("DELETE FROM events WHERE kind = 'tool_result'", "is lost"),
        ("UPDATE runs SET status = 'failed'", "the run is failed, and its recorded end says completed"),
        ("UPDATE events SET epoch = 9 WHERE kind = 'plan'", "after epoch 9"),
        ("UPDATE runs SET key_id = 'key_other'", "the run's row, or entry 1 (status) is not as it was written"),
        ("UPDATE runs SET model = 'another'", "the run's row, or entry 1 (status) is not as it was written"),
        ("UPDATE runs SET usage = '{'", "the run's usage is not what its recorded end says"),
    ],
)
def test_a_changed_journal_does_not(here: Path, sql: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each change is named, and the exit code is 1."""
    (run_id,) = asyncio.run(run_script(here))
    tamper(here, sql)
    assert main(["audit", "verify", run_id]) == 1
    shown = capsys.readouterr().out
    assert problem in shown
    assert shown.endswith("1 run, 1 not as written\n")


def test_a_run_that_was_taken_away_leaves_what_belongs_to_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A program that minds no foreign keys leaves rows without a run; Treadle itself forgets all of them."""
    asyncio.run(run_script(here))
    tamper(here, "DELETE FROM runs")
    assert main(["audit", "verify"]) == 1
    *strays, last = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in strays] == [
        "rows of events of runs that are not there",
        "row of requests of runs that are not there",
    ]
    assert last == "0 runs, all as written"


def test_an_exported_file_is_checked_without_its_store(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sound as it was written; a single changed letter is found."""
    asyncio.run(run_script(here))
    assert main(["export", "--all", "-o", "x.jsonl"]) == 0
    (here / "treadle.db").unlink()
    assert main(["audit", "verify", "--file", "x.jsonl"]) == 0
    assert capsys.readouterr().out.endswith("1 run, all as written\n")
    text = (here / "x.jsonl").read_text(encoding="utf-8")
    (here / "x.jsonl").write_text(text.replace('"content":"It costs', '"content":"It cost$'), encoding="utf-8")
    assert main(["audit", "verify", "--file", "x.jsonl"]) == 1
    assert "(assistant) is not as it was written" in capsys.readouterr().out


def test_a_file_that_lost_its_end_is_found(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first line says how many entries there are."""
    asyncio.run(run_script(here))
    assert main(["export", "--all", "-o", "x.jsonl"]) == 0
    lines = (here / "x.jsonl").read_bytes().splitlines(keepends=True)
    (here / "x.jsonl").write_bytes(b"".join(lines[:-1]))
    assert main(["audit", "verify", "--file", "x.jsonl"]) == 1
    assert f"entry {len(lines) - 1} is lost" in capsys.readouterr().out


def test_the_findings_are_data_for_programs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a verdict on top."""
    ids = asyncio.run(run_script(here))
    assert main(["audit", "verify", "--json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert told["ok"] is True
    assert [(run["run_id"], run["chain"], run["problems"]) for run in told["runs"]] == [(ids[0], "sound", [])]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--file", "no.jsonl"], "no.jsonl: No such file"),
        (["--file", "bad.jsonl"], "bad.jsonl:1: "),
        (["--file", "bad.jsonl", "run_1"], "a file is checked whole"),
        (["run_x"], "there is no run 'run_x'"),
    ],
)
def test_what_can_not_be_checked_is_said(
    here: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code 1 and one line."""
    (here / "bad.jsonl").write_text('{"type":"entry"}\n', encoding="utf-8")
    asyncio.run(run_script(here))
    assert main(["audit", "verify", *arguments]) == 1
    assert said in capsys.readouterr().err
