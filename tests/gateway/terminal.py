"""A program in a pseudo-terminal, seen through a terminal emulator. Everything waits for something to be seen."""

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte

from warm.start import Popen

TREADLE = [sys.executable, "-m", "treadle.cli.main"]
CONTROLLED = [
    sys.executable,
    "-c",
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])",
]
"""Makes the pseudo-terminal the one that sends signals for Ctrl-C, then becomes the program."""

COLUMNS, LINES = 90, 30
BOUND_S = 40.0
TOOLS = '''
import os
import subprocess
import sys
import time
from treadle import tool

@tool(effect="read")
def count_lines(name: str) -> str:
    """Count the lines of a name."""
    return "\\n".join(f"row {number}" for number in range(30)) + "\\x1b]0;owned\\x07"

@tool(effect="read", timeout_s=60)
def wait_short(name: str) -> str:
    """Wait a while for a name."""
    time.sleep(1.5)
    return "done"

@tool(effect="read", timeout_s=60)
def wait_for(name: str) -> str:
    """Wait for a file of that name."""
    print("waiting for", name)
    while not os.path.exists(name):
        time.sleep(0.02)
    return "it came"

@tool(effect="read")
def be_noisy(name: str) -> str:
    """Be noisy for a name, on every stream and through a program."""
    print("moaned", file=sys.stderr)
    subprocess.run(["sh", "-c", "printf 'child \\033]0;owned\\007\\n'; echo failed >&2"], check=True)
    return "done"

@tool(effect="destructive")
def wipe_disk(name: str) -> str:
    """Wipe a disk."""
    return f"wiped {name}"
'''


class Terminal:
    """A program in a pseudo-terminal, and what a person would see of it."""

    def __init__(self, arguments: list[str], env: dict[str, str], cwd: Path) -> None:
        self.master, slave = pty.openpty()
        self.columns, self.rows = COLUMNS, LINES
        self._set_size(COLUMNS, LINES)
        self.screen = pyte.HistoryScreen(COLUMNS, LINES, history=2000)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        is_warm = arguments[0] == sys.executable
        self.process = (Popen if is_warm else subprocess.Popen)(
            arguments if is_warm else [*CONTROLLED, *arguments],
            env=env,
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    @property
    def lines(self) -> list[str]:
        """Return the scrollback and the screen."""
        top = ["".join(row[column].data for column in range(self.columns)) for row in self.screen.history.top]
        return [line.rstrip() for line in (*top, *self.screen.display)]

    @property
    def text(self) -> str:
        """Return everything that can be seen."""
        return "\n".join(self.lines)

    @property
    def live(self) -> str:
        """Return what stands on the screen from the editor down."""
        shown = [line.rstrip() for line in self.screen.display]
        last = max((number for number, line in enumerate(shown) if line.startswith(">")), default=len(shown))
        return "\n".join(shown[last:]).rstrip()

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.master, keys.encode())

    def until(self, wanted: str, times: int = 1) -> None:
        """Read until the text can be seen so many times."""
        end = time.monotonic() + BOUND_S
        while self.text.count(wanted) < times:
            assert self._read(end), f"never saw {wanted!r} {times} times in:\n{self.text}"

    def until_gone(self, unwanted: str) -> None:
        """Read until the text can not be seen any more."""
        end = time.monotonic() + BOUND_S
        while unwanted in self.text:
            assert self._read(end), f"still see {unwanted!r} in:\n{self.text}"

    def until_live(self, wanted: str) -> None:
        """Read until the text stands in the editor or below it."""
        end = time.monotonic() + BOUND_S
        while wanted not in self.live:
            assert self._read(end), f"never saw {wanted!r} below the editor:\n{self.text}"

    def prompt(self, times: int = 1) -> None:
        """Read until a prompt stands there for the so manieth time."""
        end = time.monotonic() + BOUND_S
        while sum(line.startswith(">") for line in self.lines) < times:
            assert self._read(end), f"never saw prompt {times} in:\n{self.text}"

    def wait(self) -> int:
        """Read until the program ends and return its exit code."""
        end = time.monotonic() + BOUND_S
        while self._read(end):
            pass
        return self.process.wait(BOUND_S)

    def resize(self, columns: int, rows: int) -> None:
        """Make the window larger or smaller."""
        self.columns, self.rows = columns, rows
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def close(self) -> None:
        """End what is left."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(BOUND_S)
        with contextlib.suppress(OSError):
            os.close(self.master)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self.master], [], [], max(end - time.monotonic(), 0))
        if not ready:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # Linux says EIO when the other side is closed
            return False
        self.raw += data
        self.stream.feed(data)
        return bool(data)


def person_env(home: Path) -> dict[str, str]:
    """Return the environment of a person at an ordinary terminal, with tools of their own in mine.py."""
    (home / "mine.py").write_text(TOOLS, encoding="utf-8")
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
    folded = {"TREADLE_TERMINAL__FOLD_LINES": "20"}
    return {**kept, **folded, "HOME": str(home), "PYTHONUTF8": "1", "TERM": "xterm-256color"}
