"""After ten thousand streamed tokens the scrollback of a real terminal is the canonical rendering, line by line."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.streaming import document
from places import socket_folder
from treadle.core.events import RunEnded, TextDelta
from treadle.terminal.rendering.drawing_surface import Painter
from treadle.terminal.rendering.run_renderer import RunRenderer
from treadle.terminal.rendering.styles import TextStyle

COLUMNS, ROWS = 100, 30
TOKENS = 10_000
BOUND_S = 120.0
TESTS = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux on this machine"),
]


class Paper:
    """A surface of fixed width."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        """Keep it."""
        self.text += text

    def paint(self, painter: Painter | None) -> None:
        """Leave it."""

    def size(self) -> tuple[int, int]:
        """Return the size."""
        return COLUMNS, ROWS


def canonical(text: str) -> list[str]:
    """Return the lines of a text that came in one piece."""
    paper = Paper()
    screen = RunRenderer(paper, TextStyle(rich=True))
    screen.show(TextDelta(index=0, text=text))
    screen.show(RunEnded(status="completed"))
    return [line.rstrip() for line in paper.text.splitlines()]


class Tmux:
    """A terminal multiplexer of its own."""

    def __init__(self, folder: Path) -> None:
        self._socket = str(socket_folder(folder) / "tmux")

    def run(self, *words: str) -> str:
        """Ask it something."""
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=True).stdout

    def scrollback(self) -> list[str]:
        """Return all lines, those that scrolled away first; lines that the terminal broke are whole."""
        return [line.rstrip() for line in self.run("capture-pane", "-p", "-J", "-S", "-").splitlines()]

    def wait_for(self, name: str) -> None:
        """Wait until the program in it says so."""
        self.run("wait-for", name)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    """Start a terminal in which the answer streams."""
    multiplexer = Tmux(tmp_path)
    env = "PYTHONPATH=" + shlex.quote(f"{TESTS}:{os.environ.get('PYTHONPATH', '')}")
    program = f"cd {shlex.quote(str(tmp_path))} && {env} {shlex.quote(sys.executable)} -m gateway.streaming {TOKENS}"
    first = ("start-server", ";", "set-option", "-g", "history-limit", "20000", ";")
    multiplexer.run(*first, "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), program)
    yield multiplexer
    multiplexer.run("kill-server")


def test_the_scrollback_is_exact_after_ten_thousand_tokens(tmux: Tmux) -> None:
    """Nothing is doubled, lost or left over, and what was typed meanwhile is still there."""
    tmux.wait_for("began")
    tmux.run("send-keys", "-l", "typed meanwhile")
    tmux.wait_for("ended")
    lines = tmux.scrollback()
    first, last = lines.index("> stream") + 1, lines.index("streamed to its end") - 1
    wanted = canonical(document(TOKENS))
    assert len(wanted) > 500
    assert lines[first:last] == wanted
    assert any(line.startswith("> typed meanwhile") for line in lines)
