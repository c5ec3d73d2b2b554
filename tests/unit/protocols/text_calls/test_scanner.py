"""The scanner over text: cuts do not matter, work is linear, memory is bounded, and nothing raises."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.own import TOOLS
from treadle.cli.dialect_rendering import render
from treadle.protocols.text_calls import read_tools
from treadle.protocols.text_calls.dialect_grammar import Whole
from treadle.protocols.text_calls.dialect_table import BY_ID, DIALECTS
from treadle.protocols.text_calls.scanner import HELD_CHARS_MAX, REREADS, FoundCalls, Piece, TextScanner

WORDS = sorted(
    {
        *(marker for dialect in DIALECTS for marker in dialect.grammar.markers),
        *("ring_bell", "plan_trip", "save_page", "to", "title", "body", "{", "}", "[", "]", "(", ")", "<", ">", "</"),
        *("\n", "`", "```", "~~~", '"', "'", "\\", " ", ":", ",", "=", '{"name": "ring_bell", "arguments": {}}'),
        *("<think>", "</think>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>", "x", "é"),
        *("<|message|>", "<|end|>", "to=functions.ring_bell", "</function>", 'name="ring_bell"', "call:ring_bell{}"),
    }
)
TEXTS = st.lists(st.sampled_from(WORDS), max_size=24).map("".join)


def scanner(**fields: Any) -> TextScanner:
    """Return a scanner of every dialect."""
    return TextScanner(read_tools(TOOLS), DIALECTS, **fields)


def scan(chunks: list[str], **fields: Any) -> list[Piece]:
    """Return what leaves of a text, neighbouring text joined."""
    scanning = scanner(**fields)
    pieces = [piece for chunk in chunks for piece in scanning.feed(chunk)] + scanning.finish()
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def cut(text: str, size: int) -> list[str]:
    """Return a text in pieces of this size."""
    return [text[at : at + size] for at in range(0, len(text), size)]


@given(TEXTS, st.integers(1, 9))
def test_how_a_text_is_cut_does_not_matter(text: str, size: int) -> None:
    """Whole or in pieces, the same text leaves, and the same calls."""
    assert scan(cut(text, size)) == scan([text])


@given(TEXTS)
def test_text_without_a_call_is_unchanged(text: str) -> None:
    """Whatever markers it holds: what is not taken out is there, in order."""
    pieces = scan(cut(text, 3))
    if not any(isinstance(piece, FoundCalls) for piece in pieces):
        assert "".join(str(piece) for piece in pieces) == text
        return
    whole = "".join(piece if isinstance(piece, str) else piece.raw for piece in pieces)
    gone = ("<|end|>", "<|open|>response<|sep|>", "<|close|>response<|sep|>")
    for word in gone:
        text, whole = text.replace(word, ""), whole.replace(word, "")
    assert "".join(whole.split()) == "".join(text.split())


@given(st.text(max_size=200), st.integers(1, 5))
def test_any_text_at_all_passes(text: str, size: int) -> None:
    """Nothing raises, and a text of no markers leaves as it came."""
    pieces = scan(cut(text, size))
    if not any(isinstance(piece, FoundCalls) for piece in pieces):
        assert "".join(str(piece) for piece in pieces) == text


def long_call(dialect: str, size: int) -> str:
    """Return a call with a long argument full of what looks like markup."""
    filler = "a < b 'c' [d] \\ "
    body = filler * (size // len(filler))
    return render(BY_ID[dialect], [("save_page", {"title": "t", "body": body})])


@pytest.mark.parametrize("dialect", [each.id for each in DIALECTS])
def test_a_long_argument_is_read_once(dialect: str) -> None:
    """The work on a call in small pieces is its length, whatever its length is."""
    for size in (4_096, 65_536):
        text = long_call(dialect, size)
        scanning = scanner()
        pieces = [piece for chunk in cut(text, 4) for piece in scanning.feed(chunk)] + scanning.finish()
        assert [piece.dialect for piece in pieces if isinstance(piece, FoundCalls)]
        assert scanning.work < 3 * len(text) + 1_000


HOSTILE: dict[str, Callable[[int], str]] = {
    "openers": lambda size: "<tool_call>" * (size // 11),
    "open-objects": lambda size: '<tool_call>{"name": "ring_bell", "a": "' * (size // 39),
    "open-values": lambda size: render(BY_ID["minimax_m2"], [("save_page", {"title": "x"})])[:60] * (size // 60),
    "open-keys": lambda size: "<tool_call>save_page<arg_key>title</arg_key><arg_value>" * (size // 54),
    "backticks": lambda size: "` <tool_call> `` " * (size // 17),
    "thoughts": lambda size: "<think>" * (size // 7),
    "frames": lambda size: "<|start|>assistant<|channel|>" * (size // 28),
    "brackets": lambda size: "<tool_call>" + "[" * size,
    "quotes": lambda size: '<tool_call>{"' + "\"'" * (size // 2),
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_hostile_text_costs_no_more_than_its_length_a_few_times(shape: str) -> None:
    """Markers that begin nothing are read again, within a budget that grows with the text."""
    text = HOSTILE[shape](60_000)
    scanning = scanner()
    pieces = [piece for chunk in cut(text, 16) for piece in scanning.feed(chunk)] + scanning.finish()
    assert "".join(str(piece) for piece in pieces) == text
    assert scanning.work < (2 * REREADS + 4) * len(text) + 200_000


def test_a_long_text_in_one_piece_is_the_same_as_in_many() -> None:
    """A whole answer is a stream fed in one piece: markers that begin nothing keep their place and their order."""
    broken = '<tool_call>{"name": "ring_bell", "arguments": {"a": "'
    call = render(BY_ID["function_json"], [("plan_trip", {"to": "A"})])
    parts = [f"{number} {broken} {'x' * 700} <tool_call> `{call}`\n" for number in range(12)]
    text = "".join(parts) + call + "end " * 900 + call
    whole = scan([text])
    assert whole == scan(cut(text, 7))
    assert len([piece for piece in whole if isinstance(piece, FoundCalls)]) == 2
    visible = "".join(piece if isinstance(piece, str) else piece.raw for piece in whole)
    assert visible.split() == text.split()


def test_what_is_longer_than_the_cap_leaves_as_text() -> None:
    """Never is more held than the cap and one piece; what comes behind is scanned again."""
    text = f"{long_call('hermes_json', 20_000)} {long_call('hermes_json', 100)}"
    told: list[str] = []
    scanning = scanner(chars_max=8_192, refused=told.append)
    pieces: list[Piece] = []
    for chunk in cut(text, 64):
        pieces += scanning.feed(chunk)
        assert scanning.held_chars <= 8_192 + 64
    pieces += scanning.finish()
    found = [piece for piece in pieces if isinstance(piece, FoundCalls)]
    assert len(found) == 1
    assert len(found[0].raw) < 400
    assert [words for words in told if "longer than the 8192 characters" in words] != []


def test_the_cap_is_that_of_the_settings() -> None:
    """One number in two rooms."""
    from treadle.config.settings import RepairSection

    assert RepairSection().held_chars_max == HELD_CHARS_MAX


def test_why_markup_stays_text_is_told_to_who_asks() -> None:
    """In words for a person, with the place."""
    told: list[str] = []
    call = '<tool_call>{"name": "ring_bell", "arguments": {}}</tool_call>'
    text = f"`{call}`\n```\n{call}\n```\n<think>{call}</think><tool_call>fly<tool_call>ring_bell"
    scanning = scanner(refused=told.append)
    assert not any(isinstance(piece, FoundCalls) for piece in [*scanning.feed(text), *scanning.finish()])
    words = " ".join(told)
    for reason in ("inline code", "code block", "in reasoning", "no registered tool", "no whole call"):
        assert reason in words


def test_open_reasoning_calls_only_in_a_native_dialect() -> None:
    """A block that never closes, with the only call in it."""
    text = 'Hm <think>so <tool_call>{"name": "ring_bell", "arguments": {}}</tool_call>'
    assert [piece for piece in scan([text], natives=frozenset()) if isinstance(piece, FoundCalls)] == []
    assert scan([text], natives=frozenset())[0] == text
    found = [piece for piece in scan([text], natives=frozenset({"hermes_json"})) if isinstance(piece, FoundCalls)]
    assert [piece.dialect for piece in found] == ["hermes_json"]


def test_behind_a_call_its_line_goes_on() -> None:
    """What would quote or fence at the start of a line does neither there; on the next line it does."""
    call = '<tool_call>{"name": "ring_bell", "arguments": {}}</tool_call>'
    for between in ("> ", "```\n", "~~~\n", " > "):
        assert len([piece for piece in scan([f"{call}{between}{call}"]) if isinstance(piece, FoundCalls)]) == 2, between
        assert len([piece for piece in scan([f"{call}\n{between}{call}"]) if isinstance(piece, FoundCalls)]) == 1, (
            between
        )


LINED = [row.id for row in DIALECTS if row.at_line and not long_call(row.id, 10).startswith("<")]


@pytest.mark.parametrize("dialect", LINED)
def test_what_begins_a_line_calls_nothing_inside_one(dialect: str) -> None:
    """Nor where the text happens to be cut just before it, or code or markup stands there."""
    call, natives = long_call(dialect, 10), frozenset({dialect})
    assert [piece for piece in scan([call], natives=natives) if isinstance(piece, FoundCalls)] != []
    for before in ("Well, ", "Well `x` ", "Well <b>"):
        parted = scan([before, call], natives=natives)
        assert parted == scan([before + call], natives=natives)
        assert [piece for piece in parted if isinstance(piece, FoundCalls) and piece.dialect == dialect] == []


@pytest.mark.parametrize("dialect", [row.id for row in DIALECTS if isinstance(row.grammar, Whole)])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_what_must_be_the_whole_message_calls_nothing_behind_other_text(dialect: str, size: int) -> None:
    """Whether the text came before it or with it, and on which line; white space is no text."""
    call = long_call(dialect, 10)
    for before in ("", "\n\n", "  \n"):
        assert [piece for piece in scan(cut(before + call, size)) if isinstance(piece, FoundCalls)] != [], before
    for before in ("Well:\n", "Well.\n\n", "a\nb\n", "<b>\n"):
        assert scan(cut(before + call, size)) == [before + call]


def test_thoughts_that_never_end_do_not_hide_the_message_behind_them() -> None:
    """A new message begins where it says so."""
    thought = "<|channel|>analysis<|message|>hm"
    call = "<|start|>assistant<|channel|>commentary to=functions.ring_bell<|message|>{}<|call|>"
    for size in (1, 7, 1_000):
        pieces = scan(cut(thought + call, size), natives=frozenset({"harmony"}))
        assert [one.name for piece in pieces if isinstance(piece, FoundCalls) for one in piece.calls] == ["ring_bell"]
        assert [piece for piece in pieces if isinstance(piece, str) and "assistant" in piece] == []
