"""`treadle sessions`: list, search, show, rename, fork, delete, export."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.cli.main import main
from treadle.providers.fakes.scripted_model import ScriptTurn
from treadle.runtime import SystemClock
from unit.cli.own_journal import here as here
from unit.cli.stored import run_script

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def talks(here: Path) -> list[str]:
    """Two sessions; the ids of the runs of the first."""
    first = asyncio.run(
        run_script(
            here, ScriptTurn(text="The train."), ScriptTurn(text="At nine."), prompts=("How?", "When?"), session="trip"
        )
    )
    asyncio.run(run_script(here, ScriptTurn(text="Of course."), prompts=("Help me.",), session="other"))
    return first


def told(capsys: Capture) -> Any:
    """Read what was printed as JSON."""
    return msgspec.json.decode(capsys.readouterr().out)


def test_they_are_listed_the_last_used_first(talks: list[str], capsys: Capture) -> None:
    """Without an action too; as data with their heads."""
    assert main(["sessions"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "used", "id"]
    assert [row.split()[0] for row in rows] == ["other", "trip"]
    assert main(["sessions", "--json", "list"]) == 0
    assert [(row["name"], row["head_run_id"] == talks[-1]) for row in told(capsys)] == [
        ("other", False),
        ("trip", True),
    ]
    assert main(["sessions", "list", "--limit", "1", "--json"]) == 0
    assert [row["name"] for row in told(capsys)] == ["other"]


def test_a_search_finds_names_and_what_was_said(talks: list[str], capsys: Capture) -> None:
    """Whatever the case; nothing found is said."""
    for text, names in (("TRAIN", ["trip"]), ("oth", ["other"]), ("nine", ["trip"]), ("100%", [])):
        assert main(["sessions", "search", text, "--json"]) == 0
        assert [row["name"] for row in told(capsys)] == names
    assert main(["sessions", "search", "100%"]) == 0
    assert capsys.readouterr().out == "no session holds that\n"


def test_those_of_this_folder_are_told_from_others(
    talks: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a terminal began here; and a text narrows the list."""
    monkeypatch.setattr(SystemClock, "sleep", lambda *_: asyncio.sleep(0))
    assert main(["run", "hello there"]) == 0
    capsys.readouterr()
    assert main(["sessions", "--here", "--json"]) == 0
    assert [row["name"] for row in told(capsys)] == ["hello there"]
    assert main(["sessions", "-q", "TRAIN", "--json"]) == 0
    assert [row["name"] for row in told(capsys)] == ["trip"]


def test_one_is_shown_as_it_went(talks: list[str], capsys: Capture) -> None:
    """For a person, and as the messages themselves."""
    assert main(["sessions", "show", "trip"]) == 0
    assert capsys.readouterr().out == (
        "# trip\n\n## User\n\nHow?\n\n## Model\n\nThe train.\n\n## User\n\nWhen?\n\n## Model\n\nAt nine.\n"
    )
    assert main(["sessions", "show", "trip", "--json"]) == 0
    shown = told(capsys)
    assert [(each["kind"], each["content"]) for each in shown["messages"]] == [
        ("user", "How?"),
        ("assistant", "The train."),
        ("user", "When?"),
        ("assistant", "At nine."),
    ]


def test_a_name_can_be_changed_unless_it_is_taken(talks: list[str], capsys: Capture) -> None:
    """The old name is free again."""
    assert main(["sessions", "rename", "trip", "Trip to Lyon"]) == 0
    assert capsys.readouterr().out.startswith("trip is now Trip to Lyon (sess_")
    assert main(["sessions", "rename", "other", "Trip to Lyon"]) == 1
    assert main(["sessions", "rename", "other", " "]) == 1
    assert "1 to 200 characters" in capsys.readouterr().err
    assert main(["sessions", "rename", "other", "trip"]) == 0


def test_a_fork_stands_where_its_source_stood(talks: list[str], capsys: Capture) -> None:
    """At its end, or at an earlier run; named after it unless told otherwise; the source stays."""
    assert main(["sessions", "fork", "trip", "--json"]) == 0
    whole = told(capsys)
    assert (whole["name"], whole["head_run_id"]) == ("trip (fork)", talks[1])
    assert main(["sessions", "fork", "trip", "--at", talks[0], "--name", "by car", "--json"]) == 0
    assert told(capsys)["head_run_id"] == talks[0]
    assert main(["sessions", "show", "by car"]) == 0
    assert capsys.readouterr().out.count("## User") == 1
    assert main(["sessions", "fork", "trip"]) == 0
    assert "forked as trip (fork 2)" in capsys.readouterr().out


def test_both_go_on_by_themselves(here: Path, talks: list[str], capsys: Capture) -> None:
    """What one adds the other does not see."""
    assert main(["sessions", "fork", "trip", "--at", talks[0], "--name", "by car"]) == 0
    asyncio.run(run_script(here, ScriptTurn(text="By road."), prompts=("And by car?",), session="by car"))
    capsys.readouterr()
    assert main(["sessions", "show", "by car"]) == 0
    forked = capsys.readouterr().out
    assert main(["sessions", "show", "trip"]) == 0
    source = capsys.readouterr().out
    assert ("By road." in forked, "At nine." in forked) == (True, False)
    assert ("By road." in source, "At nine." in source) == (False, True)


def test_forgetting_one_keeps_what_was_said_unless_told(talks: list[str], capsys: Capture) -> None:
    """The name alone, or the runs as well."""
    assert main(["sessions", "delete", "other"]) == 0
    assert capsys.readouterr().out == "other deleted\n"
    assert main(["export", "--all"]) == 0
    assert capsys.readouterr().out.count('"type":"run"') == 3
    assert main(["sessions", "delete", "trip", "--runs"]) == 0
    assert capsys.readouterr().out == "trip and 2 runs deleted\n"
    assert main(["export", "--all"]) == 0
    assert capsys.readouterr().out.count('"type":"run"') == 1
    assert main(["sessions"]) == 0
    assert capsys.readouterr().out == "no sessions yet\n"


def test_what_a_fork_stands_on_is_not_forgotten(talks: list[str], capsys: Capture) -> None:
    """The fork is named, and both stay."""
    assert main(["sessions", "fork", "trip", "--name", "heir"]) == 0
    assert main(["sessions", "delete", "trip", "--runs"]) == 1
    assert "The session 'heir' goes on from what was said in this one." in capsys.readouterr().err
    assert main(["sessions", "show", "heir"]) == 0
    assert "At nine." in capsys.readouterr().out


def test_an_export_is_exact_or_for_people(here: Path, talks: list[str], capsys: Capture) -> None:
    """JSON Lines that the audit accepts, or Markdown."""
    assert main(["sessions", "export", "trip", "-o", "trip.jsonl"]) == 0
    assert main(["audit", "verify", "--file", "trip.jsonl"]) == 0
    assert capsys.readouterr().out.endswith("2 runs, all as written\n")
    assert main(["sessions", "export", "trip", "--format", "md", "-o", "trip.md"]) == 0
    assert (here / "trip.md").read_text(encoding="utf-8").startswith("# trip\n\n## User\n\nHow?")


@pytest.mark.parametrize(
    "arguments", [["show", "x"], ["rename", "x", "y"], ["fork", "x"], ["delete", "x"], ["export", "x"]]
)
def test_a_session_that_is_not_there_is_said(talks: list[str], arguments: list[str], capsys: Capture) -> None:
    """By every action."""
    assert main(["sessions", *arguments]) == 1
    assert "There is no session 'x'." in capsys.readouterr().err


def test_a_run_of_another_session_is_no_place_to_fork_at(talks: list[str], capsys: Capture) -> None:
    """Nor is one that does not exist."""
    assert main(["sessions", "fork", "other", "--at", talks[0]]) == 1
    assert f"The run '{talks[0]}' is not one of the session" in capsys.readouterr().err
