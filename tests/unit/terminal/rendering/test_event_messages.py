"""Errors, limits, notes and counts in a person's words."""

import pytest

from treadle.core.errors import ErrorInfo
from treadle.core.request import Note
from treadle.terminal.rendering.event_messages import error_lines, limit_text, note_text, plural, short_span


def test_an_error_says_when_to_try_again_and_what_to_do() -> None:
    """A provider that is busy said for how long; each line of the hint is one."""
    error = ErrorInfo(code="x", message="too many \x1b[2Jrequests", hint="wait\nor pay", retry_after_s=7.0)
    assert error_lines(error) == ["too many ␛[2Jrequests (retry in 7 s)", "  hint: wait", "  hint: or pay"]


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ("max_iterations", "max_iterations (the key terminal.max_tool_turns)"),
        ("max_total_tool_calls", "max_total_tool_calls (the key terminal.max_tool_calls)"),
        ("wall_time", "wall_time (the key terminal.wall_s)"),
        ("identical_repeats", "identical_repeats (the key limits.identical_repeats_max)"),
        ("another", "another"),
    ],
)
def test_a_limit_names_the_key_that_moves_it(limit: str, text: str) -> None:
    """What a run calls its limit is not what the terminal's section calls it."""
    assert limit_text(limit) == text


def test_a_note_is_one_line_without_words_of_the_wire() -> None:
    """A broken frame is nothing that a person knows."""
    broken = Note(code="bad_frame", action="dropped", message="118 characters that are not a chunk")
    assert note_text(broken) == "the upstream sent something that can not be read; it was left out"
    assert note_text(Note(code="x", action="kept", message="a\nb")) == "a⏎b"


def test_counts_agree_with_their_nouns() -> None:
    """One is one."""
    assert [plural(count, "tool") for count in (0, 1, 2)] == ["0 tools", "1 tool", "2 tools"]


def test_a_span_is_shown_in_its_two_largest_units() -> None:
    """In the letters that flags such as --since take."""
    spans = (-5.0, 0.4, 45.0, 899.9, 3_600.0, 12_000.0, 86_399.0, 1_051_200.0)
    assert [short_span(each) for each in spans] == [
        "0s", "0s", "45s", "14m 59s", "1h 0m", "3h 20m", "23h 59m", "12d 4h",
    ]  # fmt: skip
