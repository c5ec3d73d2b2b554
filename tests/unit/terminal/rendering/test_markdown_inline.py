"""Marks inside a line: what CommonMark says of emphasis, code, links and escapes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from treadle.terminal.rendering.markdown_inline import STYLES, read_inline

CODE = "code"
NAMES = {style: name for name, style in STYLES.items()}
_TOKENS = {"strong": "bold", "em": "italic", "s": "strike"}
_THEIRS = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough"])


def ours(text: str) -> list[tuple[str, frozenset[str]]]:
    """Return every visible character with its styles."""
    spans = [(frozenset(NAMES.get(each, each) for each in style.split(";") if each), t) for style, t in _spans(text)]
    return [(each, styles) for styles, inner in spans for each in inner if not each.isspace()]


def _spans(text: str) -> Sequence[tuple[str, str]]:
    return read_inline(text, CODE)


def theirs(text: str) -> list[tuple[str, frozenset[str]]]:
    """Return the same as somebody else reads it."""
    active: list[str] = []
    found: list[tuple[str, frozenset[str]]] = []
    for token in _THEIRS.parseInline(text)[0].children or []:
        name = _TOKENS.get(token.type.rpartition("_")[0])
        if name is not None:
            active = [*active, name] if token.nesting == 1 else active[: len(active) - 1 - active[::-1].index(name)]
            continue
        styles = frozenset([*active, *([CODE] if token.type == "code_inline" else [])])
        found += [(each, styles) for each in token.content if not each.isspace()]
    return found


@given(st.text(alphabet="**__`ab .\\", max_size=16))
def test_emphasis_and_code_are_read_as_others_read_them(text: str) -> None:
    """By the whole algorithm: runs that flank words, the rule of three, code before emphasis, escapes."""
    assert ours(text.strip()) == theirs(text.strip())


@given(st.text(max_size=60))
def test_nothing_that_is_said_is_lost(text: str) -> None:
    """Letters and digits all stay, in their order, whatever marks stand between them."""
    text = text.replace("&", "+").replace("\n", " ")
    shown = "".join(inner for _, inner in read_inline(text))
    assert [each for each in shown if each.isalnum()] == [each for each in text if each.isalnum()]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("plain", [("", "plain")]),
        ("~~gone~~ ~not~", [("9", "gone"), ("", " "), ("", "~"), ("", "not"), ("", "~")]),
        ("***both***", [("1;3", "both")]),
        ("snake_case_word", [("", "snake"), ("", "_"), ("", "case"), ("", "_"), ("", "word")]),
        ("`` a`b ``", [("36", "a`b")]),
        ("[a](http://b)", [("94", "a"), ("", " ("), ("4;34", "http://b"), ("", ")")]),
        ("[**a**](http://b 'title')", [("1;94", "a"), ("", " ("), ("4;34", "http://b"), ("", ")")]),
        ("[http://b](http://b)", [("94", "http://b")]),
        ("![picture](x.png)", [("94", "picture"), ("", " ("), ("4;34", "x.png"), ("", ")")]),
        ("[a](b(c)d)", [("94", "a"), ("", " ("), ("4;34", "b(c)d"), ("", ")")]),
        ("[a][b]", [("", "["), ("", "a"), ("", "]"), ("", "["), ("", "b"), ("", "]")]),
        ("<http://a.example>", [("4;34", "http://a.example")]),
        ("<div>x</div>", [("", "<"), ("", "div>x"), ("", "<"), ("", "/div>")]),
        ("a &amp; b", [("", "a "), ("", "&"), ("", " b")]),
        ("&nothing; &", [("", "&"), ("", "nothing; "), ("", "&")]),
        ("soft\nbreak", [("", "soft"), ("", " "), ("", "break")]),
        ("hard  \nbreak", [("", "hard"), ("", "\n"), ("", "break")]),
        ("hard\\\nbreak", [("", "hard"), ("", ""), ("", "\n"), ("", "break")]),
    ],
)
def test_each_mark_is_read(text: str, spans: list[tuple[str, str]]) -> None:
    """Links show where they lead, HTML and references stay as they stand, only `~~` strikes."""
    assert read_inline(text) == [span for span in spans if span[1]]


@pytest.mark.parametrize("text", ["&#27;[2J", "&#x9b;2J", "[a](http://b&#27;x)", "&#10;", "&NewLine;", "&#x202e;"])
def test_an_entity_cannot_bring_back_what_was_cleaned_away(text: str) -> None:
    """A terminal would obey it."""
    shown = "".join(inner for _, inner in read_inline(text))
    assert not any(ord(each) < 32 or 0x7F <= ord(each) < 0xA0 or ord(each) == 0x202E for each in shown)


HOSTILE = (
    *("*a " * 9_000, "a*" * 15_000, "**a " * 7_000 + "b** " * 7_000, "_*" * 15_000, "~~a" * 10_000),
    *("[" * 30_000, "![" * 12_000 + "[a](b)" * 2_000, "](" * 15_000, "[a](" * 7_000),
    *("`" * 30_000, "".join("`" * size + "a" for size in range(1, 240)), "<a:" * 9_000),
    *("\\" * 30_000, "&a" * 15_000),
)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:6])
def test_hostile_text_takes_no_longer_than_other_text(text: str) -> None:
    """Thirty thousand characters of marks that never pair are read in a moment: nothing grows with the square."""
    assert "".join(inner for _, inner in read_inline(text))
