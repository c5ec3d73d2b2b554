"""Reading lines without a screen."""

import contextlib
import io
import os
import pty
import select
import termios

import pytest

from treadle.cli.terminal import prompt
from treadle.cli.terminal.prompt import PlainPrompt, held_keys


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


def test_keys_are_held_unseen_while_an_answer_is_painted() -> None:
    """Inside, Enter stays Enter and Ctrl-D a key, nothing is echoed, Ctrl-C is a signal; after, all is as before."""
    master, slave = pty.openpty()
    with os.fdopen(slave, encoding="utf-8") as source:
        before = termios.tcgetattr(source.fileno())
        with contextlib.suppress(RuntimeError), held_keys(source):
            assert termios.tcgetattr(source.fileno())[3] & termios.ISIG
            os.write(master, b"hi\r\x04")
            assert os.read(source.fileno(), 10) == b"hi\r\x04"
            assert not select.select([master], [], [], 0)[0]
            raise RuntimeError
        assert termios.tcgetattr(source.fileno()) == before
    os.close(master)


def test_a_pipe_has_no_keys_to_hold() -> None:
    """What comes from a file or a pipe is left alone."""
    with held_keys(io.StringIO("x")) as nothing, PlainPrompt(0, io.StringIO()).between():
        assert nothing is None
