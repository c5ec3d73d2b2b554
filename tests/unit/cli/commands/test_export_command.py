"""`treadle export`: which runs, how exactly, and where to."""

import asyncio
import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.cli.main import main
from treadle.cli.open_journal import opened
from treadle.journal.jsonl_export import read_runs
from treadle.terminal.rendering.sanitize import clean
from unit.cli.own_journal import here as here
from unit.cli.stored import TURNS, run_script, settings_in


def lines_of(text: str) -> list[dict[str, Any]]:
    """Read JSON Lines."""
    return [msgspec.json.decode(line) for line in text.splitlines()]


def exported(text: str) -> list[str]:
    """Return the ids of the runs in an export, in order."""
    return [line["run"]["id"] for line in lines_of(text) if line["type"] == "run"]


def test_a_run_is_its_row_and_its_entries_as_they_are_stored(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Read back, the entries are the store's own, hashes included."""
    (run_id,) = asyncio.run(run_script(here))
    assert main(["export", run_id]) == 0
    (read,) = list(read_runs(capsys.readouterr().out.encode().splitlines(keepends=True)))

    async def stored() -> Any:
        async with opened(settings_in(here)) as store:
            return await store.find_run(run_id), await store.entries(run_id), await store.audit(run_id)

    row, entries, audited = asyncio.run(stored())
    assert read.row == row
    assert [each.entry for each in read.stored] == entries
    assert [each.sha256 for each in read.stored] == [line.expected for line in audited]
    assert (read.head, read.sha256) == (len(entries), audited[-1].sha256)


def test_runs_are_chosen_by_name_by_session_by_time_or_all(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oldest first; `last` is the newest."""
    first = asyncio.run(run_script(here))
    talk = asyncio.run(run_script(here, *TURNS, *TURNS, prompts=("a", "b"), session="trip"))
    for arguments, expected in (
        (["last"], talk[-1:]),
        ([talk[1], first[0]], [talk[1], first[0]]),
        (["--session", "trip"], talk),
        (["--all"], [*first, *talk]),
        (["--since", "1h"], [*first, *talk]),
        (["--since", "2999-01-01"], []),
    ):
        assert main(["export", *arguments]) == 0
        assert exported(capsys.readouterr().out) == expected


def test_a_file_is_written_whole(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing on standard output; a failed export leaves no half of one."""
    asyncio.run(run_script(here))
    assert main(["export", "last", "-o", "out.jsonl"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "1 run in out.jsonl\n")
    assert len(exported((here / "out.jsonl").read_text(encoding="utf-8"))) == 1
    assert main(["export", "--session", "nobody", "-o", "no.jsonl"]) == 1
    assert sorted(file.name for file in here.glob("*.jsonl*")) == ["out.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which runs?"),
        (["run_x"], "there is no run 'run_x'"),
        (["--session", "x"], "There is no session 'x'."),
        (["run_x", "--all"], "one by one or all at once"),
        (["--since", "yesterday"], "--since 'yesterday' is no time"),
        (["--all", "--scenario", "x.toml"], "a scenario is made of one run"),
    ],
)
def test_what_can_not_be_is_said(
    here: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, a way out, and code 1."""
    asyncio.run(run_script(here))
    assert main(["export", *arguments]) == 1
    assert said in capsys.readouterr().err


def test_a_journal_that_is_not_there_is_not_made(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reading must not leave an empty database behind."""
    assert main(["export", "--all"]) == 1
    assert "there is no journal at" in capsys.readouterr().err
    assert not (here / "treadle.db").exists()


def test_a_run_becomes_a_scenario_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same as `treadle cassette RUN --as scenario`."""
    asyncio.run(run_script(here))
    assert main(["export", "last", "--scenario", "one.toml"]) == 0
    assert capsys.readouterr().err.startswith("one.toml passes")
    assert main(["eval", "one.toml"]) == 0


class Screen(io.TextIOWrapper):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("command", [["export", "last"], ["logs", "--json"], ["logs"], ["sessions"]])
def test_a_terminal_gets_nothing_that_it_would_obey(
    here: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """What was asked is shown with its control characters escaped; in a file it is as it was."""
    asked = "what is \x9b2J\x1b]0;title\x07 \u202e?"
    asyncio.run(run_script(here, prompts=[asked]))
    kept = io.BytesIO()
    screen = Screen(kept, encoding="utf-8")
    monkeypatch.setattr("sys.stdout", screen)
    assert main(command) == 0
    screen.flush()
    shown = kept.getvalue().decode()
    assert clean(shown) == shown
