"""The terminal as a place that others use too: signals, job control, windows that change, programs that write."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.streaming import document
from gateway.terminal import TREADLE, Terminal, person_env
from places import socket_folder

TESTS = Path(__file__).parents[1]
TOKENS, RATE = 900, 600
CODE_LINE = re.compile(r"value_(\d+) = call\((\d+), \d+\)")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a person who can also start the streaming chat."""
    return {**person_env(tmp_path), "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}", "PS1": "shell$ "}


def code_lines(text: str) -> list[tuple[str, ...]]:
    """Return the lines of code in a text: each of them is there once, and too short to be broken."""
    return [found.groups() for line in text.splitlines() if (found := CODE_LINE.search(line))]


def test_a_turn_is_ended_with_the_program(env: dict[str, str], tmp_path: Path) -> None:
    """SIGTERM during a turn: its call gets a result, and the chat ends with the code of the signal."""
    chat = Terminal([*TREADLE, "--tools", "mine.py"], env, tmp_path)
    try:
        chat.prompt()
        chat.type("Use wait_for `ada`\r")
        chat.until("● wait_for")
        chat.process.send_signal(signal.SIGTERM)
        assert chat.wait() == 143
        assert "failed (cancelled)" in chat.text
        assert b"Traceback" not in chat.raw
    finally:
        chat.close()


def test_a_chat_that_takes_long_to_open_can_be_left(env: dict[str, str], tmp_path: Path) -> None:
    """Ctrl-D is heard although the server that was asked says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        chat = Terminal([*TREADLE, "--server", f"http://127.0.0.1:{silent.getsockname()[1]}", "-c"], env, tmp_path)
        try:
            chat.until("Treadle at http://127.0.0.1")
            chat.type("\x04")
            assert chat.wait() == 130
            assert b"Traceback" not in chat.raw
        finally:
            chat.close()


def test_what_tools_and_their_programs_write_is_shown_and_not_obeyed(env: dict[str, str], tmp_path: Path) -> None:
    """On standard error and past Python too; the editor below is not touched."""
    chat = Terminal([*TREADLE, "--tools", "mine.py"], env, tmp_path)
    try:
        chat.prompt()
        chat.type("Use be_noisy `ada`\r")
        chat.until("tokens")
        for line in ("moaned", "child ␛]0;owned␇", "failed"):
            chat.until(f"  printed: {line}")
        assert b"\x1b]0;owned" not in chat.raw
        chat.type("still here")
        chat.until_live("> still here")
    finally:
        chat.close()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
def test_a_chat_is_suspended_while_it_streams_and_comes_back(env: dict[str, str], tmp_path: Path) -> None:
    """Ctrl-Z gives the terminal to the shell; fg goes on, and every finished line stands there once."""
    shell = Terminal([shutil.which("bash") or "", "--norc", "-i"], env, tmp_path)
    try:
        shell.until("shell$")
        shell.type(f"{shlex.quote(sys.executable)} -m gateway.streaming {TOKENS} {RATE}\r")
        shell.until("value_3 = call(2, 3)")
        shell.type("\x1a")
        shell.until("Stopped")
        shell.type("echo in the $((40 + 2)) shell\r")
        shell.until("in the 42 shell")
        shell.type("fg\r")
        shell.until("streamed to its end")
        shell.type("typed after it")
        shell.until_live("> typed after it")
        assert code_lines(shell.text) == code_lines(document(TOKENS))
    finally:
        shell.close()


def test_a_window_that_changes_while_it_streams_loses_and_doubles_nothing(env: dict[str, str], tmp_path: Path) -> None:
    """In a terminal that cuts lines rather than breaking them anew; what is typed stays."""
    chat = Terminal([sys.executable, "-m", "gateway.streaming", str(TOKENS), str(RATE)], env, tmp_path)
    try:
        chat.until("value_3 = call(2, 3)")
        chat.type("half a thought")
        for number, size in enumerate([(60, 30), (110, 30), (52, 30), (90, 30)]):
            chat.resize(*size)
            chat.until(f"value_{number + 4} = call(")
        chat.until("streamed to its end")
        chat.until_live("> half a thought")
        assert code_lines(chat.text) == code_lines(document(TOKENS))
        assert sum(line.startswith(">") for line in chat.lines) == 2
    finally:
        chat.close()


class Tmux:
    """A terminal that breaks lines anew when it becomes narrower."""

    def __init__(self, folder: Path, program: str, columns: int, rows: int) -> None:
        self._command = ["tmux", "-S", str(socket_folder(folder) / "tmux"), "-f", "/dev/null"]
        self._program = program
        first = ("start-server", ";", "set-option", "-g", "history-limit", "5000", ";")
        self.run(*first, "new-session", "-d", "-x", str(columns), "-y", str(rows), program)

    def run(self, *words: str) -> str:
        """Ask it something."""
        done = subprocess.run([*self._command, *words], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    def lines(self) -> list[str]:
        """Return the scrollback and the screen; lines that the terminal broke are whole."""
        return [line.rstrip() for line in self.run("capture-pane", "-p", "-J", "-S", "-").splitlines()]


@pytest.fixture
def tmux(tmp_path: Path, env: dict[str, str]) -> Iterator[Tmux]:
    """Start the streaming chat in it."""
    words = f"{shlex.quote(sys.executable)} -m gateway.streaming {TOKENS}"
    terminal = Tmux(
        tmp_path, f"cd {shlex.quote(str(tmp_path))} && PYTHONPATH={shlex.quote(env['PYTHONPATH'])} {words}", 90, 24
    )
    yield terminal
    terminal.run("kill-server")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux on this machine")
def test_a_narrower_window_eats_nothing_and_leaves_nothing_behind(tmux: Tmux) -> None:
    """The live part is found again where the terminal has put it, also with a long line in the editor."""
    tmux.run("wait-for", "ended")
    typed = "a thought that is long enough to take two rows when the window is narrow"
    tmux.run("send-keys", "-l", typed)
    before: list[str] = []
    while not any(line.endswith(typed) for line in before):
        before = tmux.lines()
    for columns in (50, 70, 41, 90):
        tmux.run("resize-window", "-x", str(columns), "-y", "24")
        tmux.run("send-keys", "-l", "x")
        typed += "x"
        # The editor breaks its own lines: they are put together again here.
        while typed not in "".join(line.strip() for line in tmux.lines()[-8:]):
            pass
    after = tmux.lines()
    assert code_lines("\n".join(after)) == code_lines(document(TOKENS))
    assert sum(line.startswith(">") for line in after) == 2
    finished = [line for line in before if line and not line.startswith(("> a thought", " ask"))]
    assert [line for line in after if line in finished] == [line for line in finished if line in after]


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux on this machine")
def test_a_row_that_was_longer_once_leaves_nothing_behind_in_a_narrower_window(tmux: Tmux) -> None:
    """tmux breaks the blanks too where a longer line stood: the rows that this takes are counted."""
    tmux.run("wait-for", "ended")
    for keys in (["-l", "y" * 80], ["C-u"], ["-l", "one"], ["C-j"], ["-l", "two"]):
        tmux.run("send-keys", *keys)
        while keys[0] == "-l" and not any(line.endswith(keys[1]) for line in tmux.lines()):
            pass
    tmux.run("resize-window", "-x", "50", "-y", "24")
    tmux.run("send-keys", "-l", "!")
    while not any(line.strip() == "two!" for line in tmux.lines()):
        pass
    after = tmux.lines()
    assert [line for line in after if line.startswith(">")] == ["> stream", "> one"]
    assert code_lines("\n".join(after)) == code_lines(document(TOKENS))
