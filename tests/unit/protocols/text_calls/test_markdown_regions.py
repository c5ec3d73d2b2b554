"""Where text is code or a quotation, line by line, however the text is cut."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.protocols.text_calls.markdown_regions import MarkdownLines, inline_end, unpaired
from treadle.protocols.text_calls.resumable_reader import ResumableReader

_TOKENS = re.compile(r"`+|\n|[^`\n]+")


def read(*chunks: str, lines: MarkdownLines | None = None) -> MarkdownLines:
    """Pass text as the scanner does: runs of backticks may go on in the next chunk."""
    lines = lines or MarkdownLines()
    for chunk in chunks:
        for found in _TOKENS.finditer(chunk):
            if found[0] == "\n":
                lines.newline()
            elif found[0][0] == "`":
                lines.ticks(len(found[0]), may_grow=found.end() == len(chunk))
            else:
                lines.feed(found[0])
    return lines


@pytest.mark.parametrize(
    ("text", "is_code"),
    [
        ("", False),
        ("plain", False),
        ("```", True),
        ("```\ninside", True),
        ("```py\ninside", True),
        ("~~~ any `info` here\ninside", True),
        ("``` no `fence`\noutside", False),
        ("``\noutside", False),
        ("```\ninside\n```\noutside", False),
        ("```\ninside\n```  \noutside", False),
        ("```\ninside\n``` more\nstill inside", True),
        ("````\ninside\n```\nstill inside", True),
        ("````\ninside\n`````\noutside", False),
        ("```\ninside\n~~~\nstill inside", True),
        ("~~~\ninside\n~~~\noutside", False),
        ("      ```\ninside", True),
        ("\t```\ninside", True),
        ("- ```\n  inside", True),
        ("12. * ```\n  inside", True),
        ("1234567890. ```\noutside", False),
        ("> quoted", True),
        ("> quoted\nnot quoted", False),
        ("- > quoted in a list", True),
        ("a > b", False),
        ("```\n> inside\n```\noutside", False),
        ("text ```\noutside", False),
    ],
)
def test_a_place_is_code_or_it_is_not(text: str, is_code: bool) -> None:
    """Fences, also in lists, are closed by their own mark at least as long; a quotation ends with its line."""
    assert read(text).is_code is is_code


@given(st.text(alphabet="`~> -\na1.", max_size=40), st.lists(st.integers(0, 40), max_size=6))
def test_it_does_not_matter_how_the_text_is_cut(text: str, cuts: list[int]) -> None:
    """Whole or in pieces, the same is known at the end."""
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    whole, cut = read(text), read(*pieces)
    assert (cut.is_code, cut.is_fresh, cut.runs) == (whole.is_code, whole.is_fresh, whole.runs)


@pytest.mark.parametrize(
    ("text", "is_fresh"),
    [
        ("", True),
        ("   ", True),
        ("    ", False),
        ("a", False),
        ("\t", False),
        ("a\n", True),
        ("```\n", False),
        ("-", False),
    ],
)
def test_a_line_is_fresh_while_little_stands_on_it(text: str, is_fresh: bool) -> None:
    """Up to three blanks, outside of any fence."""
    assert read(text).is_fresh is is_fresh


def test_runs_of_backticks_are_kept_apart_by_text_and_ended_by_a_line() -> None:
    """A run that was cut goes on, one with text behind it does not."""
    assert read("`", "``").runs == [3]
    assert read("a``", "b", "``").runs == [2, 2]
    assert read("a``b``").runs == [2, 2]
    assert read("a``\n`").runs == [1]
    assert read("a" + "`b" * 100).runs == [1] * 64


def test_what_was_settled_opens_nothing() -> None:
    """Nor does it go on."""
    lines = read("a``")
    lines.settle()
    assert lines.runs == []
    assert read("`", lines=lines).runs == [1]


def test_after_a_reset_all_is_as_at_the_start() -> None:
    """Fence, quotation and runs are forgotten."""
    lines = read("```\ninside `")
    assert lines.is_code
    lines.reset()
    assert (lines.is_code, lines.is_fresh, lines.runs) == (False, True, [])


def test_a_line_that_is_known_to_be_ordinary_is_idle() -> None:
    """Until a run of backticks might go on, or the next line begins."""
    assert [read(text).is_idle for text in ("", "  ", "word", "word`", "word`a", "word\n", "1" * 256)] == [
        False,
        False,
        True,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("runs", "is_unpaired"),
    [
        ((), False),
        ((1,), True),
        ((1, 1), False),
        ((2, 1), True),
        ((1, 2, 1), False),
        ((1, 1, 3), True),
        ((2, 1, 2, 1), True),
    ],
)
def test_a_run_may_be_left_for_another_to_close(runs: tuple[int, ...], is_unpaired: bool) -> None:
    """What stands between two that close each other opens nothing."""
    assert unpaired(runs) is is_unpaired


@pytest.mark.parametrize(
    ("runs", "rest", "reach"),
    [
        ((), "a`b`", 0),
        ((1,), "code` after", 5),
        ((1,), "code`` more` after", 12),
        ((2,), "code` more\n``", 0),
        ((1, 1), "a`", 0),
        ((1, 2), "a``", 3),
        ((3, 1), "a`b", 2),
        ((1,), "never", 0),
        ((1,), "ends with`", 10),
    ],
)
@pytest.mark.parametrize("is_cut", [False, True])
def test_inline_code_reaches_to_the_run_that_closes_it(
    runs: tuple[int, ...], rest: str, reach: int, is_cut: bool
) -> None:
    """Within its line, whatever the pieces in which the rest of it comes."""
    assert _reach(runs, list(rest) if is_cut else [rest]) == reach


def _reach(runs: tuple[int, ...], pieces: list[str]) -> int:
    reader = ResumableReader("")
    reading = inline_end(reader, runs)
    try:
        for piece in pieces:
            next(reading)
            reader.add(piece)
        next(reading)
        reader.is_ended = True
        next(reading)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits for more than there is")
