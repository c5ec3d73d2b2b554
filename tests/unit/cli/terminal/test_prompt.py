"""Reading lines without a screen."""

import contextlib
import io
import os
import pty
import termios

import pytest

from treadle.cli.terminal import prompt
from treadle.cli.terminal.prompt import PlainPrompt, silent_keys


async def read_all(data: bytes) -> list[str]:
    """Return what a plain prompt reads from a pipe."""
    source, sink = os.pipe()
    os.write(sink, data)
    os.close(sink)
    plain = PlainPrompt(source, io.StringIO())
    lines: list[str] = []
    while (line := await plain.read()) is not None:
        lines.append(line)
    os.close(source)
    return lines


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\n\ntwo", ["one", "", "two"]),
        ("é\n".encode(), ["é"]),
        (b"\xff\n", ["\N{REPLACEMENT CHARACTER}"]),
    ],
)
async def test_lines_come_one_by_one(data: bytes, lines: list[str]) -> None:
    """Empty lines, a missing last newline and bytes that are no text are all fine."""
    assert await read_all(data) == lines


async def test_a_line_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line without end is cut instead of filling the memory."""
    monkeypatch.setattr(prompt, "LINE_BYTES_MAX", 4)
    monkeypatch.setattr(prompt, "READ_BYTES", 4)
    assert (await read_all(b"abcdefgh"))[0] == "abcd"


async def test_a_dumb_terminal_is_asked_with_a_sign() -> None:
    """A person sees that it is their turn; a pipe is not written to."""
    master, slave = pty.openpty()
    os.write(master, b"hi\n")
    out = io.StringIO()
    assert await PlainPrompt(slave, out).read() == "hi"
    assert out.getvalue() == "> "
    os.close(master)
    os.close(slave)


def test_keys_are_silent_while_an_answer_is_painted() -> None:
    """Echo is off inside and on again after, whatever happens."""
    master, slave = pty.openpty()
    with os.fdopen(slave, encoding="utf-8") as source:
        with contextlib.suppress(RuntimeError), silent_keys(source):
            assert not termios.tcgetattr(source.fileno())[3] & termios.ECHO
            assert termios.tcgetattr(source.fileno())[3] & termios.ISIG
            raise RuntimeError
        assert termios.tcgetattr(source.fileno())[3] & termios.ECHO
    os.close(master)
