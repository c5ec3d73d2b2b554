"""`python -m bench.cast [FILE]`: records the conversation of docs/terminal.md as a cast (asciicast v2).

The demo model answers, a person's pauses are played, and what the terminal showed is written down as it came.
"""

import codecs
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import time
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pyte

COLUMNS, ROWS = 96, 30
KEY_S, THOUGHT_S, BOUND_S = 0.04, 0.8, 60.0
IDLE_MAX_S = 1.5
TURN_ENDS = "demo · 2 rounds"
TARGET = Path(__file__).parents[1] / "docs" / "images" / "terminal.cast"
SCENES: tuple[tuple[str, str], ...] = (
    ("", "ask · sandbox L"),
    ("What is the weather in Lyon?\r", TURN_ENDS),
    ("Use file_write notes.md with `Lyon by train`\r", "[y] once"),
    ("y", TURN_ENDS),
    ("Use bash `ls && git status --short`\r", TURN_ENDS),
    ("Use file_write notes.md with `Lyon by train, Friday`\r", "[y] once"),
    ("y", TURN_ENDS),
    ("/cost\r", "the last turn took"),
    ("\x04", ""),
)
"""What is typed, and what is then waited for."""


class Recorder:
    """A program in a pseudo-terminal, and everything that it shows with its time."""

    def __init__(self, command: list[str], folder: str, home: str) -> None:
        self._master, slave = pty.openpty()
        ioctl(self._master, TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
        env = {**kept, "HOME": home, "TERM": "xterm-256color", "PYTHONUTF8": "1"}
        self._process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=folder)
        os.close(slave)
        self._began = time.monotonic()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._screen = pyte.HistoryScreen(COLUMNS, ROWS, history=2_000)
        self._stream = pyte.Stream(self._screen)
        self.events: list[tuple[float, str, str]] = []

    def play(self, keys: str, wanted: str) -> None:
        """Press keys as a person does, record until a text is there once more, and think for a moment."""
        times = self._text.count(wanted)
        for key in keys:
            os.write(self._master, key.encode())
            self._read(KEY_S)
        end = time.monotonic() + BOUND_S
        while self._text.count(wanted) <= times and self._read(KEY_S):
            assert time.monotonic() < end, f"never saw {wanted!r} in:\n{self._text}"
        self._read(THOUGHT_S)

    @property
    def _text(self) -> str:
        """Return the scrollback and the screen."""
        top = ["".join(row[column].data for column in range(COLUMNS)) for row in self._screen.history.top]
        return "\n".join([*top, *self._screen.display])

    def close(self) -> None:
        """End what is left."""
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def _read(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._master], [], [], left)[0]:
                continue
            try:
                data = os.read(self._master, 65536)
            except OSError:  # Linux says EIO when the other side is closed
                return False
            text = self._decoder.decode(data)
            self._stream.feed(text)
            self.events.append((round(time.monotonic() - self._began, 3), "o", text))
        return True


def main() -> None:
    """Play the scenes and write the cast."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    with (
        tempfile.TemporaryDirectory(prefix="treadle-cast-") as folder,
        tempfile.TemporaryDirectory(prefix="treadle-cast-") as home,
    ):
        subprocess.run(["git", "init", "--quiet", folder], check=True)
        recorder = Recorder([sys.executable, "-m", "treadle.cli.main"], folder, home)
        try:
            for keys, wanted in SCENES:
                recorder.play(keys, wanted)
        finally:
            recorder.close()
        assert folder not in "".join(text for _, _, text in recorder.events), "the cast names a folder of this machine"
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "idle_time_limit": IDLE_MAX_S, "title": "treadle"}
    lines = [head, *recorder.events]
    target.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
