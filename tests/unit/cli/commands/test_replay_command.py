"""`treadle replay`: the proof, the fork, and the tools run again."""

import asyncio
from pathlib import Path

import apsw
import msgspec
import pytest

from treadle.cli.main import main
from unit.cli.own_journal import here as here
from unit.cli.stored import run_script

Capture = pytest.CaptureFixture[str]

TOOLS = '''
from treadle import tool


@tool(effect="read")
def get_price(article: str) -> float:
    """Tell a price.

    Args:
        article: Its number.
    """
    return 99.0
'''


def test_a_run_is_proved(here: Path, capsys: Capture) -> None:
    """Without any of its tools and without its model: the journal is enough."""
    [run_id] = asyncio.run(run_script(here))
    assert main(["replay", run_id]) == 0
    proved, ran = capsys.readouterr().out.splitlines()
    assert proved.startswith(f"{run_id}: the same way again, byte for byte: 2 rounds, 1 calls")
    assert ran == "tools ran in: none (1)"


def test_the_newest_run_is_meant_by_last(here: Path, capsys: Capture) -> None:
    """For programs the numbers come as JSON."""
    ids = asyncio.run(run_script(here, prompts=("What is A7?", "And B8?")))
    assert main(["replay", "last", "--json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert (told["run"], told["same"], told["problem"]) == (ids[-1], True, None)
    assert isinstance(told["sandboxes"], dict)


def test_a_journal_that_was_changed_does_not_prove(here: Path, capsys: Capture) -> None:
    """What the person asked is part of the plan, whose fingerprint is journalled."""
    [run_id] = asyncio.run(run_script(here))
    connection = apsw.Connection(str(here / "treadle.db"))
    connection.execute("UPDATE events SET content = 'What is Z0?' WHERE kind = 'user'")
    connection.close()
    assert main(["replay", run_id]) == 1
    assert f"{run_id}: another way: Entry" in capsys.readouterr().out


def test_the_tools_run_again_in_a_new_run(here: Path, capsys: Capture) -> None:
    """The model says what it said, and the new result is the tool's of today."""
    [run_id] = asyncio.run(run_script(here))
    (here / "tools.py").write_text(TOOLS, encoding="utf-8")
    assert main(["replay", run_id, "--live-tools", "--tools", "tools.py", "--json"]) == 0
    captured = capsys.readouterr()
    told = msgspec.json.decode(captured.out)
    assert told["result"].endswith("It costs 12.5 €.")
    assert told["run"] != run_id
    assert f"new run: {told['run']}" in captured.err
    assert main(["diff", run_id, told["run"], "--json"]) == 1
    steps = msgspec.json.decode(capsys.readouterr().out)["steps"]
    assert "tool_result" in {step["kind"] for step in steps if step["op"] != "equal"}


def test_a_fork_goes_on_from_a_round_with_another_model(here: Path, capsys: Capture) -> None:
    """What was said and done before that round is not done again."""
    [run_id] = asyncio.run(run_script(here))
    assert main(["replay", run_id, "--model", "demo", "--from-round", "2", "--json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert told["run"] != run_id
    assert main(["export", told["run"]]) == 0
    lines = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines if line.get("kind") == "tool_result"] == ["get_price"]
    assert not any(line.get("kind") == "tool_start" for line in lines)
    notes = [line["content"] for line in lines if line.get("kind") == "note"]
    assert f"This run goes on from round 2 of {run_id}." in notes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", "nope"], "there is no run 'nope'"),
        (["replay", "last"], "there is no run yet"),
        (["replay", "last", "--live-tools", "--model", "demo"], "a fork runs tools anyway"),
    ],
)
def test_what_cannot_be_replayed_is_said(here: Path, capsys: Capture, arguments: list[str], words: str) -> None:
    """One line, and an exit code that is not 0."""
    assert main(arguments) != 0
    assert words in capsys.readouterr().err


def test_a_round_that_is_not_there_is_said(here: Path, capsys: Capture) -> None:
    """Rounds are counted from 1."""
    [run_id] = asyncio.run(run_script(here))
    for wrong in ("0", "9"):
        assert main(["replay", run_id, "--from-round", wrong]) == 1
        assert f"There is no round {wrong}: the run has 2." in capsys.readouterr().err
