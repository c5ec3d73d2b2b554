"""Text that comes in pieces, read by coroutines: the same is read however it is cut."""

from collections.abc import Callable
from typing import Any

import pytest

from treadle.protocols.text_calls.resumable_reader import ResumableReader, Wait, json_span, python_span

Work = Callable[[ResumableReader], Wait[Any]]


def play(work: Work, text: str, chunk: int, *, is_ended: bool = True) -> tuple[Any, str] | None:
    """Return what a reading gave and what it left, or None if it waits for more."""
    reader = ResumableReader("")
    reading = work(reader)
    pieces = [text[at : at + chunk] for at in range(0, len(text), chunk)]
    try:
        next(reading)
        for piece in pieces:
            reader.add(piece)
            next(reading)
        if not is_ended:
            return None
        reader.is_ended = True
        next(reading)
    except StopIteration as done:
        left = "".join(pieces)[reader.mark :]
        return done.value, left
    raise AssertionError("it waits though the text has ended")


CHUNKS = pytest.mark.parametrize("chunk", [1, 2, 3, 5, 1000])


@CHUNKS
@pytest.mark.parametrize(
    ("work", "text", "value", "left"),
    [
        (lambda r: r.literal("call"), "call:x", True, ":x"),
        (lambda r: r.literal("call"), "cal", False, "cal"),
        (lambda r: r.literal("call"), "calm", False, "calm"),
        (lambda r: r.literal("call"), "", False, ""),
        (lambda r: r.any_of(("<a", "<ab>", "<c")), "<ab>x", "<ab>", "x"),
        (lambda r: r.any_of(("<a", "<ab>", "<c")), "<abx", "<a", "bx"),
        (lambda r: r.any_of(("<a", "<ab>", "<c")), "<a", "<a", ""),
        (lambda r: r.any_of(("<a", "<ab>", "<c")), "<d", "", "<d"),
        (lambda r: r.until(":=", 4), "abcd:x", "abcd", ":x"),
        (lambda r: r.until(":=", 4), "abcde:", None, "abcde:"),
        (lambda r: r.until(":=", 4), "ab", "ab", ""),
        (lambda r: r.until(":=", 4), "=", "", "="),
        (lambda r: r.up_to(("</x>", "</xy>")), "a</xb</xy>c", ("a</xb", "</xy>"), "c"),
        (lambda r: r.up_to(("</x>", "</xy>")), "a</x", None, ""),
        (lambda r: r.up_to(("</x>",)), "</x>", ("", "</x>"), ""),
        (lambda r: r.space(), " \n\tĠĊx ", None, "x "),
        (lambda r: r.peek(), "xy", "x", "xy"),
        (lambda r: r.peek(), "", "", ""),
    ],
)
def test_a_word_is_read_whole_or_not_at_all(work: Work, text: str, value: object, left: str, chunk: int) -> None:
    """Literals, the longest of several, text up to a stop or a word, white space."""
    assert play(work, text, chunk) == (value, left)


@CHUNKS
@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("{}x", "{}"),
        ('{"a": [1, {"b": "}"}]} rest', '{"a": [1, {"b": "}"}]}'),
        ('{"a": "say "hi" now"}', '{"a": "say "hi" now"}'),
        ('{"a": "x\\"}"}', '{"a": "x\\"}"}'),
        ("{'a': '}'}", "{'a': '}'}"),
        ('{"a": ""}', '{"a": ""}'),
        ('{"a": "b"   \n }', '{"a": "b"   \n }'),
        ('{"a": "b" }', '{"a": "b" }'),
        ('{"a": """x"}", y"""}', '{"a": """x"}", y"""}'),
        ("{'a': '''it's, '}' fine'''}.", "{'a': '''it's, '}' fine'''}"),
        ('{"a": "b', None),
        ('{"a": [1}', None),
        ("{<tag>}", None),
        ('{"a": "\\', None),
    ],
)
def test_a_json_value_ends_where_its_brackets_close(text: str, span: str | None, chunk: int) -> None:
    """Not inside its strings, whatever quotes and brackets stand there; never where it is cut or a tag comes first."""
    done = play(json_span, text, chunk)
    assert done is not None
    assert done[0] == span
    if span is not None:
        assert done[1] == text[len(span) :]


@CHUNKS
@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("(a='x', b=[1])rest", "(a='x', b=[1])"),
        ("(a='''one's, (two)''', b=1)", "(a='''one's, (two)''', b=1)"),
        ('(a="""x", )""")', '(a="""x", )""")'),
        ("(a='')", "(a='')"),
        ("(a=1 # no\n)", None),
        ("(a=`x`)", None),
        ("(a=1", None),
    ],
)
def test_a_python_expression_ends_where_its_brackets_close(text: str, span: str | None, chunk: int) -> None:
    """Strings of one and of three quotes; comments and backticks are no arguments."""
    done = play(python_span, text, chunk)
    assert done is not None
    assert done[0] == span


def test_a_quote_is_not_waited_for_without_end() -> None:
    """White space behind a quote decides nothing, but a lot of it ends the string."""
    near, far = '{"a": "b"' + " " * 63, '{"a": "b"' + " " * 65
    assert play(json_span, f"{near}x", 1, is_ended=False) is None
    assert play(json_span, f'{near}x"}}', 1) == (f'{near}x"}}', "")
    assert play(json_span, f"{far}}}", 1) == (f"{far}}}", "")
    assert play(json_span, f'{far}x"}}', 1) != (f'{far}x"}}', "")


def test_what_was_read_can_be_read_again() -> None:
    """Going back over what has left the window costs nothing of the text, and is remembered as read."""
    reader = ResumableReader("abc")
    for piece in ("def", "ghi"):
        reader.at = len(reader.text)
        reader.add(piece)
    reader.at = 2
    assert (reader.mark, reader.peak, reader.size, reader.rest()) == (8, 8, 9, "i")
    assert [reader.since(mark) for mark in (0, 1, 3, 5, 6, 7, 8)] == [
        "abcdefgh",
        "bcdefgh",
        "defgh",
        "fgh",
        "gh",
        "h",
        "",
    ]
    reader.back(2)
    assert (reader.mark, reader.peak, reader.size, reader.rest(), reader.has_more) == (2, 8, 9, "cdefghi", True)
    reader.back(1)
    assert (reader.mark, reader.since(0), reader.rest()) == (1, "a", "bcdefghi")
    reader.at = len(reader.text)
    assert not reader.has_more
