"""`treadle diff`: what counts as a difference, what does not, and how it is shown."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.cli.commands.diff_command import DiffStep, Pair, compare, steps_of, write_pairs
from treadle.cli.main import main
from treadle.core.items import ResultItem, TextPart
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.journal.journal_interface import RunRow
from treadle.providers.fakes.scripted_model import ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.terminal.rendering.styles import TextStyle
from unit.cli.own_journal import here as here
from unit.cli.stored import TURNS, run_script

Capture = pytest.CaptureFixture[str]


def two_runs(here: Path, *turns: ScriptTurn, prompt: str = "What is A7?", **sections: Any) -> list[str]:
    """A run as always, and one with these turns."""
    return [
        *asyncio.run(run_script(here)),
        *asyncio.run(run_script(here, *turns, prompts=(prompt,), **sections)),
    ]


def differences(capsys: Capture, *ids: str) -> list[tuple[str, str]]:
    """Return what differs between two runs, as kinds and operations."""
    code = main(["diff", *ids, "--json"])
    told = msgspec.json.decode(capsys.readouterr().out)
    found = [(step["kind"], step["op"]) for step in told["steps"] if step["op"] != "equal"]
    assert (code, told["equal"]) == (1 if found else 0, not found)
    return [(kind, op) for kind, op in found if kind != "note"]


def test_two_runs_that_went_alike_are_equal(here: Path, capsys: Capture) -> None:
    """Ids and times are others in every run, and do not count."""
    assert differences(capsys, *two_runs(here, *TURNS)) == []


def test_ids_of_calls_do_not_count_but_their_order_does(here: Path, capsys: Capture) -> None:
    """A call is known by its place in the run."""
    named = [ScriptTurn(text="Let me see.", calls=(ReplyCall(name="get_price", args={"article": "A7"}, id="x9"),))]
    assert differences(capsys, *two_runs(here, *named, TURNS[1])) == []


@pytest.mark.parametrize(
    ("turns", "found"),
    [
        ((TURNS[0], ScriptTurn(text="It is dear.")), [("assistant", "changed")]),
        (
            (ScriptTurn(text="Let me see.", calls=(ReplyCall(name="get_price", args={"article": "B8"}),)), TURNS[1]),
            [("tool_call", "changed")],
        ),
        (
            (ScriptTurn(text="Let me see.", calls=(ReplyCall(name="get_price", raw="{"),)), TURNS[1]),
            [("tool_call", "changed"), ("tool_result", "changed")],
        ),
        (
            (TURNS[0], ScriptTurn(faults=Faults(status=500))),
            [("assistant", "left"), ("reply", "changed"), ("end", "changed")],
        ),
        (
            (ScriptTurn(text="It costs 12.5 €."),),
            [
                ("assistant", "left"),
                ("tool_call", "left"),
                ("reply", "left"),
                ("tool_result", "left"),
                ("plan", "left"),
                ("end", "changed"),
            ],
        ),
    ],
)
def test_what_differs_is_named(
    here: Path, turns: tuple[ScriptTurn, ...], found: list[tuple[str, str]], capsys: Capture
) -> None:
    """Replies, calls, arguments, results and endings."""
    assert differences(capsys, *two_runs(here, *turns)) == found


def test_another_question_is_another_input(here: Path, capsys: Capture) -> None:
    """And nothing else, when the model says the same."""
    assert differences(capsys, *two_runs(here, *TURNS, prompt="What is it?")) == [("input user", "changed")]


def test_other_tools_are_another_surface(here: Path, capsys: Capture) -> None:
    """In the frame, and in every plan."""
    ids = two_runs(here, ScriptTurn(text="Hm."), tools=())
    found = differences(capsys, *ids)
    assert ("frame", "changed") in found
    assert ("plan", "changed") in found


def test_a_person_sees_both_sides(here: Path, capsys: Capture) -> None:
    """The old line, the new one, a little around it, and how many are equal."""
    ids = two_runs(here, TURNS[0], ScriptTurn(text="It is dear."))
    assert main(["diff", *ids]) == 1
    shown = capsys.readouterr().out
    assert "- assistant    It costs 12.5 €.\n+ assistant    It is dear.\n" in shown
    assert " equal\n" in shown
    assert shown.endswith(f"{ids[0]} and {ids[1]} differ in 1 place\n")


def test_a_run_that_is_not_there_is_said(here: Path, capsys: Capture) -> None:
    """Code 1, as for a difference, but with an error."""
    asyncio.run(run_script(here))
    assert main(["diff", "last", "run_x"]) == 1
    assert "there is no run 'run_x'" in capsys.readouterr().err


def test_an_entry_that_can_not_be_read_is_compared_as_it_is() -> None:
    """A journal of another version must not end in a traceback."""
    row = RunRow(id="r", response_id="p", conversation_id="c", protocol="chat", model="m", created_at=0.0)
    bad = [Entry(kind="tool_call", at=0.0, seq=1, data=msgspec.Raw(b"7"))]
    worse = [Entry(kind="tool_call", at=0.0, seq=1, data=msgspec.Raw(b"8"))]
    assert [pair.op for pair in compare(steps_of(row, bad), steps_of(row, bad))] == ["equal", "equal"]
    assert [pair.op for pair in compare(steps_of(row, bad), steps_of(row, worse))] == ["equal", "changed"]


def test_another_sandbox_is_a_difference() -> None:
    """The same result from a command that less confined it is not the same run."""
    row = RunRow(id="r", response_id="p", conversation_id="c", protocol="chat", model="m", created_at=0.0)
    result = ResultItem(call_id="c1", name="bash", output=(TextPart(text="hi"),), rc="ok")
    sides = [[entry_of_item(result, at=0.0, extra={"sandbox": level})] for level in ("L3", "L0")]
    equal, changed = compare(*(steps_of(row, side) for side in sides))
    assert (equal.op, changed.op) == ("equal", "changed")
    assert changed.left is not None
    assert changed.left.text == "bash ok [L3]: hi"


def test_colours_and_control_characters() -> None:
    """Red and green where the terminal can, and never what a model could do to it."""
    pair = Pair(
        op="changed",
        left=DiffStep(kind="assistant", key=b"1", text="a\x1b[2J\nb"),
        right=DiffStep(kind="assistant", key=b"2", text="x" * 5_000),
    )
    old, new = write_pairs([pair], TextStyle(colour=True))
    assert old == "\x1b[31m- assistant  a␛[2J⏎b\x1b[0m"
    assert new.startswith("\x1b[32m+ assistant  xxx")
    assert len(new) < 1_000
