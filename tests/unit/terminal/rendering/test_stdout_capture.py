"""What tools print does not reach standard output."""

import asyncio
import contextlib
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from treadle.terminal.rendering import stdout_capture as prints
from treadle.terminal.rendering.stdout_capture import PrintedLines, own_stdout

PROGRAM = """
import os, sys
from treadle.terminal.rendering.stdout_capture import own_stdout
with own_stdout() as out:
    print("printed")
    os.system("echo child")
    out.write("answer\\n")
print("after")
"""


def test_only_the_caller_writes_to_standard_output() -> None:
    """Prints and child processes end up on standard error; afterwards everything is as before."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, sorted(done.stderr.split())) == ("answer\nafter\n", ["child", "printed"])


def test_a_stream_without_a_file_is_lent_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Inside another program that took standard output over, prints are still kept apart."""
    with own_stdout() as out:
        print("printed")
        out.write("answer")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("answer", "printed\n")


async def test_lines_are_told_to_the_loop_from_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole lines as they are complete, one without an end when it is too long, the last one when all is over."""
    monkeypatch.setattr(prints, "LINE_CHARS_MAX", 10)
    told: list[tuple[str, int]] = []
    shown = PrintedLines(lambda line: told.append((line, threading.get_ident())))
    with contextlib.redirect_stdout(shown):
        await asyncio.to_thread(print, "one\ntwo")
        print("x" * 11, end="")
        print("open", end="")
    await asyncio.sleep(0)
    shown.finish()
    assert told == [(line, threading.get_ident()) for line in ("one", "two", "x" * 11, "open")]
    shown.finish()
    assert len(told) == 4


async def test_a_program_started_with_it_writes_to_standard_error(tmp_path: Path, monkeypatch) -> None:
    """`subprocess.run(..., stdout=sys.stdout)` needs a descriptor."""
    with (tmp_path / "err").open("w+") as errors:
        monkeypatch.setattr(sys, "stderr", errors)
        assert PrintedLines(print).fileno() == errors.fileno()


def test_a_loop_that_is_gone_is_told_nothing() -> None:
    """A thread that outlives the program's work must not fail by printing."""

    async def make() -> PrintedLines:
        return PrintedLines(lambda line: None)

    left = asyncio.run(make())
    assert left.write("late\n") == 5


SCREEN = """
import asyncio, os, subprocess, sys
from treadle.terminal.rendering.stdout_capture import capture_prints, own_stdout

async def main():
    told = []
    with own_stdout() as out:
        with capture_prints(told.append):
            print("printed")
            print("moaned", file=sys.stderr)
            os.write(2, b"raw \\x1b]0;title\\x07\\n")
            subprocess.run(["sh", "-c", "echo child; printf 'open' >&2"])
            out.write("ours\\n")
            out.flush()
            while len(told) < 4:
                await asyncio.sleep(0.01)
        out.write(repr(sorted(told)) + "\\n")
    print("after", file=sys.stderr)

asyncio.run(main())
"""


def test_nobody_else_writes_to_the_screen() -> None:
    """Prints, errors and whatever a program of a tool writes are told as lines; afterwards all is as before."""
    master, slave = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", SCREEN], stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):  # Linux says EIO when the other side is closed
        while data := os.read(master, 65536):
            seen += data
    os.close(master)
    assert process.wait(30) == 0
    told = ["child", "moaned", "open", "printed", "raw \x1b]0;title\x07"]
    assert seen.decode().split("\r\n") == ["ours", repr(told), "after", ""]
