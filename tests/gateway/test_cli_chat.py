"""`treadle chat` in a real pseudo-terminal, seen through a terminal emulator; and as a plain loop in a pipe."""

import contextlib
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.terminal import TREADLE, Terminal, person_env
from warm.start import run


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a person at an ordinary terminal."""
    return person_env(tmp_path)


@pytest.fixture
def chat(tmp_path: Path, env: dict[str, str]) -> Iterator[Terminal]:
    """Open a chat with tools of its own."""
    terminal = Terminal([*TREADLE, "--tools", "mine.py"], env, tmp_path)
    terminal.until("/help lists")
    terminal.prompt()
    yield terminal
    terminal.close()


def test_a_turn_is_typed_streamed_and_counted(chat: Terminal) -> None:
    """The prompt, the call with its arguments, the result, the answer and the status stand in order; Ctrl-D leaves."""
    chat.type("Use count_lines `ada`\r")
    chat.until("tokens")
    text = chat.text
    places = [
        text.index(part)
        for part in (
            *("> Use count_lines", '● count_lines(name="ada")', "row 0", "row 19", "… 10 more lines"),
            *("count_lines answered", "demo ·"),
        )
    ]
    assert places == sorted(places)
    chat.prompt(2)
    chat.type("\x04")
    assert chat.wait() == 0


def test_a_folded_result_can_be_seen_whole(chat: Terminal) -> None:
    """Ctrl-O shows what was left out, and so does /full; then nothing is folded."""
    chat.type("Use count_lines `ada`\r")
    chat.until("tokens")
    before = chat.text.index("… 10 more lines (Ctrl-O or /full shows them)")
    assert "row 20" not in chat.text[:before]
    chat.prompt(2)
    chat.type("\x0f")
    chat.until("● count_lines", 2)
    chat.until("row 29", 2)
    shown = chat.text[chat.text.rindex("● count_lines") :].splitlines()
    assert [line.strip() for line in shown[1:4]] == ["row 20", "row 21", "row 22"]
    chat.type("/full\r")
    chat.until("nothing is folded")


def test_what_is_typed_during_a_turn_is_sent_after_it(chat: Terminal, tmp_path: Path) -> None:
    """Each Enter sends, a line that is not finished waits in the editor, and Ctrl-D leaves when its turn comes."""
    chat.type("Use wait_for `ada`\r")
    chat.until("● wait_for")
    chat.type("Use count_lines `bob`\rUse count_lines `eve`\r\x04")
    chat.until("leaving after this turn")
    (tmp_path / "ada").touch()
    assert chat.wait() == 0
    places = [
        chat.text.index(part)
        for part in ("wait_for answered", "> Use count_lines `bob`", '(name="bob")', "> Use count_lines `eve`")
    ]
    assert places == sorted(places)
    assert chat.text.count("demo ·") == 3


def test_a_silent_turn_says_that_it_is_not_dead(chat: Terminal, tmp_path: Path) -> None:
    """While a slow tool runs its name and the seconds are shown, and what it prints; then the line is gone."""
    chat.type("Use wait_for `ada`\r")
    chat.until("… wait_for runs, ")
    chat.until("printed: waiting for ada")
    (tmp_path / "ada").touch()
    chat.until("tokens")
    assert "wait_for runs" not in chat.text


def test_what_a_tool_says_can_not_drive_the_terminal(chat: Terminal) -> None:
    """The escape sequence in the result is shown, not obeyed."""
    chat.type("Use count_lines `ada`\r")
    chat.until("tokens")
    chat.prompt(2)
    chat.type("/full\r")
    chat.until("owned", 2)
    assert chat.screen.title != "owned"
    assert b"\x1b]0;owned" not in chat.raw
    assert "␛]0;owned␇" in chat.text


def test_ctrl_c_stops_the_turn_and_not_the_program(chat: Terminal) -> None:
    """The run is cancelled, its call gets a result, and the next turn works."""
    chat.type("Use wait_for `ada`\r")
    chat.until("● wait_for")
    chat.type("\x03")
    chat.until("cancelled")
    chat.prompt(2)
    chat.type("Use count_lines `bob`\r")
    chat.until('● count_lines(name="bob")')
    chat.prompt(3)
    chat.type("\x04")
    assert chat.wait() == 0


def test_ctrl_c_clears_the_line_and_leaves_when_pressed_twice(chat: Terminal) -> None:
    """What was typed is dropped first; on an empty line the second press leaves."""
    chat.type("half a thought\x03")
    chat.type("\x03")
    chat.until("Ctrl-C again to quit")
    chat.type("\x03")
    assert chat.wait() == 0
    assert "you said" not in chat.text


def test_several_lines_are_one_prompt(chat: Terminal) -> None:
    """Ctrl-J, Alt-Enter and a backslash start a new line; Enter sends all of them."""
    chat.type("Use count_lines\x0a`ada`\x1b\rplease\\\rnow\r")
    chat.until("tokens")
    assert chat.text.count("● count_lines") == 1
    assert "  now" in chat.text


def test_the_live_part_follows_the_size_of_the_window(chat: Terminal) -> None:
    """What is typed stays, and neither the editor nor the status line is left behind."""
    chat.type("half a thought")
    chat.until_live("> half a thought")
    for number, size in enumerate(((60, 20), (110, 35), (40, 10)), 1):
        chat.resize(*size)
        chat.type("!")
        chat.until_live("> half a thought" + "!" * number)
    assert sum(line.startswith(">") for line in chat.lines) == 1
    assert chat.text.count("ask ·") == 1


def test_slash_commands_are_completed(chat: Terminal) -> None:
    """Tab completes, Enter runs."""
    chat.type("/too\t")
    chat.until("/tools")
    chat.type("\r")
    chat.until("count_lines (read): Count the lines of a name.")
    chat.prompt(2)
    chat.type("/quit\r")
    assert chat.wait() == 0


def test_history_outlives_the_program(chat: Terminal, env: dict[str, str], tmp_path: Path) -> None:
    """Up brings back what was typed in an earlier chat; only its owner can read the file."""
    chat.type("/model\r")
    chat.until("known:")
    chat.prompt(2)
    chat.type("\x04")
    chat.wait()
    file = tmp_path / ".local/share/treadle/chat_history"
    assert file.stat().st_mode & 0o777 == 0o600
    again = Terminal([*TREADLE, "chat"], env, tmp_path)
    try:
        again.prompt()
        again.type("\x1b[A\r")
        again.until("known:")
    finally:
        again.close()


def test_a_terminate_signal_puts_the_terminal_right(chat: Terminal) -> None:
    """SIGTERM while idle ends the chat in good order, with its code."""
    chat.process.send_signal(signal.SIGTERM)
    assert chat.wait() == 143
    assert b"Traceback" not in chat.raw


@pytest.mark.parametrize("change", [{"TERM": "dumb"}, {"TERM": ""}])
def test_a_dumb_terminal_gets_plain_lines(env: dict[str, str], tmp_path: Path, change: dict[str, str]) -> None:
    """No escape sequence at all, and the same conversation."""
    terminal = Terminal([*TREADLE, "--tools", "mine.py"], {**env, **change}, tmp_path)
    try:
        terminal.prompt()
        terminal.type("Use count_lines `ada`\n")
        terminal.until("tokens")
        terminal.type("\x04")
        assert terminal.wait() == 0
        assert b"\x1b" not in terminal.raw
        assert terminal.raw.endswith(b"\r\n")
    finally:
        terminal.close()


def test_ctrl_c_leaves_an_idle_plain_loop(env: dict[str, str], tmp_path: Path) -> None:
    """Without an editor there is no line to clear: the first one warns, the second leaves."""
    terminal = Terminal([*TREADLE], {**env, "TERM": "dumb"}, tmp_path)
    try:
        terminal.prompt()
        terminal.process.send_signal(signal.SIGINT)
        terminal.until("Ctrl-C again to quit")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.wait() == 130
        assert b"Traceback" not in terminal.raw
        assert b"Fatal" not in terminal.raw
    finally:
        terminal.close()


def test_no_color_is_honoured(env: dict[str, str], tmp_path: Path) -> None:
    """The answer is painted without a colour."""
    terminal = Terminal([*TREADLE, "--tools", "mine.py"], {**env, "NO_COLOR": "1"}, tmp_path)
    try:
        terminal.prompt()
        before = len(terminal.raw)
        terminal.type("Use count_lines `ada`\r")
        terminal.until("tokens")
        shown = terminal.raw[terminal.raw.index("●".encode(), before) :]
        assert b"\x1b[36m" not in shown
        assert b"\x1b[2m" not in shown
    finally:
        terminal.close()


def test_a_pipe_is_a_conversation_too(env: dict[str, str], tmp_path: Path) -> None:
    """Lines on stdin are turns of one conversation, and the end of the pipe ends it."""
    said = "what is the weather in Rome?\n/tools\n"
    done = run([*TREADLE, "chat"], env=env, cwd=tmp_path, input=said)
    assert (done.returncode, done.stderr) == (0, "")
    assert '● get_weather(city="Rome")' in done.stdout
    assert "  glob (read)" in done.stdout


def test_the_conversation_goes_on_from_turn_to_turn(env: dict[str, str], tmp_path: Path) -> None:
    """Each turn continues the response before it: the store has one chain."""
    done = run(
        [*TREADLE, "chat", "--store", "sqlite:///chat.db"],
        env=env,
        cwd=tmp_path,
        input="weather in Rome?\nweather in Paris?\n/new\nweather in Oslo?\n",
    )
    assert done.returncode == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "chat.db")) as store:
        rows = store.execute("select previous is not null from runs order by n").fetchall()
    assert [bool(row[0]) for row in rows] == [False, True, False]
