"""`treadle mcp list` and `accept`: what servers have, what is left out and why, and taking changes."""

import json
import os
import sys
from pathlib import Path

import pytest

from peers.visit import HERE
from treadle.cli.doctor.check_list import check_mcp
from treadle.cli.main import main
from treadle.config import load_settings


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Configure a server whose tool says what a file says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREADLE_CONFIG", "treadle.toml")
    file = tmp_path / "words"
    file.write_text("does good")
    command = json.dumps([sys.executable, str(HERE / "hostile.py"), "changing", str(file)])
    (tmp_path / "treadle.toml").write_text(f'[[mcp]]\nname = "bad"\ncommand = {command}\n')
    return file


def test_the_list_shows_what_servers_have(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names as a model calls them."""
    assert main(["mcp", "list"]) == 0
    assert capsys.readouterr().out == "bad: 2 tools\n  mcp__bad__steady\n  mcp__bad__shifty\n"


def test_a_changed_tool_is_shown_and_accepted(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is left out until somebody takes it as it is."""
    assert main(["mcp", "list"]) == 0
    words.write_text("does evil")
    capsys.readouterr()
    assert main(["mcp", "list", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["tools"] == ["mcp__bad__steady"]
    assert row["left_out"] == {"shifty": "it changed since it was agreed to"}
    assert main(["mcp", "accept", "bad", "steady"]) == 1
    assert "has no new or changed tool 'steady'" in capsys.readouterr().err
    assert main(["mcp", "accept", "bad"]) == 0
    assert capsys.readouterr().out == "accepted: shifty\n"
    assert main(["mcp", "accept", "bad"]) == 0
    assert capsys.readouterr().out == "nothing waits at bad\n"
    assert main(["mcp", "list"]) == 0
    assert "mcp__bad__shifty" in capsys.readouterr().out


def test_a_review_shows_old_and_new_side_by_side(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was agreed to stands left, what it is now right; control characters are shown and not obeyed."""
    assert main(["mcp", "list"]) == 0
    words.write_text("does evil \x1b[2J")
    assert main(["mcp", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("treadle mcp review shows the new and changed tools")
    assert main(["mcp", "review"]) == 0
    head, _, first, *_, last = capsys.readouterr().out.splitlines()
    assert last == "to decide: treadle mcp accept SERVER TOOL, or treadle mcp refuse SERVER TOOL"
    assert head == "bad: shifty changed since it was agreed to"
    assert [half.strip() for half in first.split(" | ")] == ["does good", "does evil [2J"]
    assert main(["mcp", "review", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["server"], row["tool"], row["kind"]) == ("bad", "shifty", "changed")
    assert row["before"].startswith("does good\n")


def test_a_refused_tool_stays_out_and_may_be_taken_later(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not asked about again while it looks the same."""
    assert main(["mcp", "list"]) == 0
    words.write_text("does evil")
    assert main(["mcp", "list"]) == 0
    capsys.readouterr()
    assert main(["mcp", "refuse", "bad", "shifty"]) == 0
    assert capsys.readouterr().out == "refused: shifty\n"
    assert main(["mcp", "review"]) == 0
    assert capsys.readouterr().out == "no tool waits: as the servers were last seen\n"
    assert main(["mcp", "accept", "bad"]) == 0
    assert capsys.readouterr().out == "nothing waits at bad\n"
    assert main(["mcp", "accept", "bad", "shifty"]) == 0
    assert capsys.readouterr().out == "accepted: shifty\n"


def test_the_doctor_names_tools_that_wait(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As they were last seen: no server is started for it."""
    settings = load_settings("treadle.toml", env=os.environ)
    (check,) = check_mcp(settings, os.environ)
    assert (check.state, check.detail) == ("ok", "bad: no tool waits")
    assert main(["mcp", "list"]) == 0
    words.write_text("does evil")
    assert main(["mcp", "list"]) == 0
    (check,) = check_mcp(settings, os.environ)
    assert (check.state, check.detail) == ("note", "bad: shifty is left out: it changed since it was agreed to")
    assert "treadle mcp review" in check.advice
    assert main(["mcp", "refuse", "bad", "shifty"]) == 0
    assert [each.state for each in check_mcp(settings, os.environ)] == ["ok"]


def test_a_server_that_is_down_is_said(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason, and an exit code for scripts; `treadle tools` says it beside its list."""
    Path("treadle.toml").write_text('[[mcp]]\nname = "gone"\ncommand = ["/no/such/program"]\n')
    assert main(["mcp", "list"]) == 1
    assert "gone: [Errno 2] No such file" in capsys.readouterr().out
    assert main(["tools"]) == 0
    assert "MCP server gone: " in capsys.readouterr().err


def test_tools_of_servers_are_among_the_tools(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`treadle tools` shows how they may run."""
    assert main(["tools"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["mcp__bad__shifty", "mcp__bad__steady"]
    assert "mcp:bad" in lines[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["accept", "no"], "there is no MCP server 'no'"),
        (["accept"], "no MCP server None"),
        (["list", "x"], "takes no server"),
    ],
)
def test_what_cannot_be_is_said(
    words: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """The hint names the servers there are."""
    assert main(["mcp", *arguments]) != 0
    assert message in capsys.readouterr().err
