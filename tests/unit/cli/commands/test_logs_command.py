"""`treadle logs`: find runs."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.cli.main import main
from treadle.providers.fakes.scripted_model import ScriptTurn
from unit.cli.own_journal import here as here
from unit.cli.stored import run_script

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def runs(here: Path) -> list[str]:
    """Return the ids of two runs: one that called a tool, one that was asked to drive the terminal."""
    called = asyncio.run(run_script(here))
    plain = asyncio.run(run_script(here, ScriptTurn(text="No."), prompts=("Please \x1b]0;x\x07\nnow",)))
    return [*called, *plain]


def found(capsys: Capture, *flags: str) -> list[Any]:
    """Return what is found, newest first."""
    assert main(["logs", "--json", *flags]) == 0
    return msgspec.json.decode(capsys.readouterr().out)


def test_the_newest_run_is_listed_first(runs: list[str], capsys: Capture) -> None:
    """With what it was asked, in one harmless line."""
    assert main(["logs"]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "when", "model", "status", "work", "asked"]
    assert (first.split()[0], second.split()[0]) == (runs[1], runs[0])
    assert first.endswith("completed  1 round, 0 calls  Please ␛]0;x␇⏎now")
    assert second.endswith("2 rounds, 1 call  What is A7?")


@pytest.mark.parametrize(
    ("flags", "numbers"),
    [
        ([], [1, 0]),
        (["-n", "1"], [1]),
        (["-q", "it COSTS"], [0]),
        (["--tool", "get_price"], [0]),
        (["--tool", "bash"], []),
        (["--model", "other"], []),
        (["--status", "failed"], []),
        (["--status", "completed", "--since", "1h"], [1, 0]),
    ],
)
def test_runs_are_found_by_what_is_known_of_them(
    runs: list[str], capsys: Capture, flags: list[str], numbers: list[int]
) -> None:
    """Every flag narrows."""
    assert [each["id"] for each in found(capsys, *flags)] == [runs[number] for number in numbers]


def test_a_program_reads_what_there_is(runs: list[str], capsys: Capture) -> None:
    """All fields, and the text as it was."""
    [run] = found(capsys, "-n", "1")
    assert (run["asked"], run["status"], run["rounds"], run["error"]) == (
        "Please \x1b]0;x\x07\nnow",
        "completed",
        1,
        None,
    )


def test_nothing_found_is_said_and_a_wrong_time_refused(runs: list[str], capsys: Capture) -> None:
    """With what would be right."""
    assert main(["logs", "-q", "zzz"]) == 0
    assert capsys.readouterr().out == "no run is like that\n"
    assert main(["logs", "--since", "yesterday"]) == 1
    assert "an age (90m, 12h, 7d)" in capsys.readouterr().err
