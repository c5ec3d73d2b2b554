"""Columns: how wide text is, and where it breaks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.terminal.rendering.column_width import ansi_text, chop, columns, fill, fold


@pytest.mark.parametrize(
    ("text", "wide"), [("", 0), ("abc", 3), ("天地", 4), ("e\u0301", 1), ("👩\u200d👩\u200d👧", 2), ("a\u200bb", 2)]
)
def test_text_is_as_wide_as_it_looks(text: str, wide: int) -> None:
    """By columns, not by characters."""
    assert columns(text) == wide


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("abcdef", ["abcd", "ef"]),
        ("天地玄", ["天地", "玄"]),
        ("a天地b", ["a天", "地b"]),
        ("abc👩\u200d👧x", ["abc", "👩\u200d👧x"]),
    ],
)
def test_a_line_is_chopped_where_the_width_ends(text: str, lines: list[str]) -> None:
    """What belongs together stays together."""
    assert chop(text, 4) == lines


@given(st.lists(st.tuples(st.sampled_from(["", "1"]), st.text(alphabet="ab 天🙂", max_size=12)), max_size=6))
def test_folding_keeps_every_character_and_its_style(spans: list[tuple[str, str]]) -> None:
    """Only the lines are new."""
    folded = fold(spans, 5)
    assert all(sum(columns(text) for _, text in line) <= 5 for line in folded)
    kept = [(style, each) for line in folded for style, text in line for each in text]
    assert kept == [(style, each) for style, text in spans for each in text]


@given(st.lists(st.tuples(st.sampled_from(["", "1"]), st.text(alphabet="ab 天🙂", max_size=12)), max_size=6))
def test_filling_loses_only_blanks(spans: list[tuple[str, str]]) -> None:
    """Those at the breaks."""
    filled = fill(spans, 5)
    assert all(sum(columns(text) for _, text in line) <= 5 for line in filled if "".join(t for _, t in line).strip())
    kept = [(style, each) for line in filled for style, text in line for each in text if each != " "]
    assert kept == [(style, each) for style, text in spans for each in text if each != " "]


def test_words_of_several_styles_are_not_broken_between_them() -> None:
    """`ab**cd**` is one word."""
    assert fill([("", "one ab"), ("1", "cd")], 6) == [[("", "one")], [("", "ab"), ("1", "cd")]]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ([("1", "a"), ("1", "b"), ("", "c")], "\x1b[1mab\x1b[0mc"),
        ([("1", "a "), ("35", "  ")], "\x1b[1ma\x1b[0m"),
        ([("", "")], ""),
    ],
)
def test_a_line_is_painted_without_blanks_at_its_end(line: list[tuple[str, str]], shown: str) -> None:
    """And equal styles are one."""
    assert ansi_text(line, has_colours=True) == shown
