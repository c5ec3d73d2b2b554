"""The plain face: lines, numbered choices, and no answer from a pipe."""

import asyncio
import io
import os
import pty

import pytest

from treadle.terminal.editor.plain_mode import PlainScreen
from treadle.terminal.rendering.approval_card import CardChoice

CHOICES = [CardChoice(key="y", word="yes", meaning="once"), CardChoice(key="n", word="no", meaning="not this")]


async def test_lines_of_a_pipe_are_read_until_its_end() -> None:
    """In whatever pieces they come; the last one may lack its end."""
    source, sink = os.pipe()
    face = PlainScreen(source, io.StringIO())
    os.write(sink, b"one\ntw")
    assert await face.read() == "one"
    os.write(sink, b"o\xff\r\nthree")
    os.close(sink)
    assert [await face.read(), await face.read(), await face.read()] == ["two\N{REPLACEMENT CHARACTER}", "three", None]
    os.close(source)


async def test_a_pipe_is_never_asked() -> None:
    """Its lines are prompts."""
    source, sink = os.pipe()
    os.write(sink, b"y\n")
    face = PlainScreen(source, io.StringIO())
    assert (face.can_ask, await face.choose(CHOICES), await face.line("why:")) == (False, None, None)
    assert await face.read() == "y"
    os.close(sink)
    os.close(source)


@pytest.mark.parametrize(("typed", "key"), [("1", "y"), ("2", "n"), ("no", "n"), ("y", "y")])
async def test_choices_are_numbers(typed: str, key: str) -> None:
    """The key and the word are understood too; anything else is asked again."""
    master, slave = pty.openpty()
    out = io.StringIO()
    face = PlainScreen(slave, out)
    os.write(master, f"7\n\n{typed}\n".encode())
    assert await asyncio.wait_for(face.choose(CHOICES), 10) == key
    assert out.getvalue().startswith("1. yes: once\n2. no: not this\nnumber: 1 to 2, please\n")
    os.close(master)
    os.close(slave)


async def test_a_question_that_is_taken_away_loses_no_line() -> None:
    """What is typed then is the next thing read."""
    master, slave = pty.openpty()
    face = PlainScreen(slave, io.StringIO())
    asked = asyncio.ensure_future(face.choose(CHOICES))
    await asyncio.sleep(0.01)
    asked.cancel()
    os.write(master, b"hello\n")
    assert await asyncio.wait_for(face.read(), 10) == "hello"
    os.close(master)
    os.close(slave)
