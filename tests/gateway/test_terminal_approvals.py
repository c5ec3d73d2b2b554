"""Approvals, diffs and commands in a real chat: what a person sees, presses and gets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.terminal import TREADLE, Terminal, person_env


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Terminal]:
    """Open a chat in an empty folder."""
    terminal = Terminal([*TREADLE, "--tools", "mine.py"], person_env(tmp_path), tmp_path)
    terminal.until_live("sandbox L")
    yield terminal
    terminal.close()


def level(chat: Terminal) -> int:
    """Return the level of the sandbox that the status line names."""
    return int(chat.live.split("sandbox L")[1][0])


def test_commands_are_asked_about_remembered_changed_and_denied(chat: Terminal, tmp_path: Path) -> None:
    """Each simple command is shown; always holds for exactly that line; the model reads why not."""
    if level(chat) < 2:
        pytest.skip("nothing is remembered below level 2")
    chat.type("Use bash `ls`\r")
    chat.until("bash approved by policy read-only")
    chat.until("read_only: true")
    chat.until("tokens", 2)
    chat.type("Use bash `touch made && ls`\r")
    chat.until("[s] always in this session: exactly `touch made && ls`, sandbox L")
    assert not (tmp_path / "made").exists()
    assert "  1 touch made  NEW" in chat.text
    assert "  2 ls          usually only reads" in chat.text
    chat.type("s")
    chat.until("remembered for this session: exactly `touch made && ls`")
    chat.until("tokens ·", 3)
    assert (tmp_path / "made").exists()
    chat.type("Use bash `touch made && ls`\r")
    chat.until("bash approved by policy: remembered command")
    chat.until("tokens ·", 4)
    chat.type("Use bash `touch other`\r")
    chat.until("[e] change it first")
    chat.type("e")
    chat.until("command: touch other")
    chat.type("2\r")
    chat.until("changed to bash(")
    chat.until("tokens ·", 5)
    assert (tmp_path / "other2").exists()
    chat.type("Use bash `touch $HOME/x`\r")
    chat.until("can not be remembered: a variable is not known before it runs")
    chat.until("[N] no, and say why")
    chat.type("N")
    chat.until("why not:")
    chat.type("too risky\r")
    chat.until("a person denied this call: too risky", 2)
    chat.type("/approve\r")
    chat.until("1  session  bash: exactly `touch made && ls`")


def test_a_write_is_asked_about_with_its_diff_and_a_policy_may_take_the_question_away(
    chat: Terminal, tmp_path: Path
) -> None:
    """Shift-Tab goes to auto-edit; a question is answered once."""
    chat.type("Use file_write note.txt with `first line`\r")
    chat.until("+first line")
    chat.until("[y] once")
    assert not (tmp_path / "note.txt").exists()
    chat.type("y")
    chat.until("tokens ·", 2)
    assert (tmp_path / "note.txt").read_text(encoding="utf-8") == "first line"
    chat.type("\x1b[Z")
    chat.until("policy auto-edit: ")
    chat.type("Use file_write note.txt with `second line`\r")
    chat.until("file_write approved by policy: auto-edit")
    chat.until("-first line")
    chat.until("tokens ·", 3)
    assert (tmp_path / "note.txt").read_text(encoding="utf-8") == "second line"


def test_ctrl_c_at_a_question_stops_the_turn_and_runs_nothing(chat: Terminal, tmp_path: Path) -> None:
    """The next turn works; a tool of the person's own is asked about too."""
    chat.type("Use bash `touch never`\r")
    chat.until("[y] once")
    chat.type("\x03")
    chat.until("cancelled")
    assert "[y] once" not in chat.live
    assert not (tmp_path / "never").exists()
    chat.type("Use wipe_disk `sda`\r")
    chat.until("wipe_disk wants to run")
    chat.until("[n] not this")
    chat.type("n")
    chat.until("a person denied this call")
    assert "wiped sda" not in chat.text


def test_a_screen_reader_gets_numbers(tmp_path: Path) -> None:
    """Plain lines, no escape sequence, and the same questions."""
    terminal = Terminal([*TREADLE, "--plain", "--tools", "mine.py"], person_env(tmp_path), tmp_path)
    try:
        terminal.prompt()
        terminal.type("Use wipe_disk `sda`\n")
        terminal.until("1. yes: once")
        terminal.until("number:")
        terminal.type("1\n")
        terminal.until("wiped sda")
        terminal.until("tokens")
        terminal.type("\x04")
        assert terminal.wait() == 0
        assert b"\x1b" not in terminal.raw
        assert terminal.text.count("> Use wipe_disk") == 1, "what was typed stands there once"
    finally:
        terminal.close()
