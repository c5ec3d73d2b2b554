"""The sanitiser: no character that a terminal obeys gets through, and no other is touched."""

import json
import unicodedata

import pytest

from treadle.terminal.rendering.sanitize import clean, escape_json, one_line, reveal

HOSTILE = {
    "clear the screen": "\x1b[2J\x1b[H",
    "set the title (OSC 0)": "\x1b]0;pwned\x07",
    "write the clipboard (OSC 52)": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "hide a link (OSC 8)": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "device control string": '\x1bP$q"p\x1b\\',
    "answer back": "\x1b[c\x05",
    "8-bit CSI": "\x9b2J",
    "8-bit OSC": "\x9d0;t\x9c",
    "overwrite the line": "safe\rrm -rf /",
    "back over text": "abc\b\b\bxyz",
    "delete": "a\x7fb",
    "bell": "\x07",
    "shift out": "\x0e",
    "right to left override": "\u202egnp.exe",
    "isolates": "\u2066a\u2067b\u2068c\u2069",
    "embeddings": "\u202aa\u202bb\u202cc\u202dd",
    "nul": "a\x00b",
    "lone surrogate": "\ud83d",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_a_terminal_obeys_is_made_visible(text: str) -> None:
    """Every hostile character is replaced by a symbol, none is dropped in silence."""
    shown = clean(text)
    assert not any(unicodedata.category(char) in ("Cc", "Cs") for char in shown)
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    assert len(shown) >= len(text)
    shown.encode()


def test_every_control_character_but_two_is_replaced() -> None:
    """Of C0, DEL and C1 only newline and tab pass."""
    controls = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
    assert [char for char in controls if clean(char) == char] == ["\t", "\n"]


@pytest.mark.parametrize(
    "text", ["", "plain\n\ttext", "naïve ü", "日本語", "👩‍👩‍👧 🇫🇷 ❤️", "العربية", "e\u0301", "a\u00a0b"]
)
def test_honest_text_stays_as_it_is(text: str) -> None:
    """Letters of every script, combining marks and joiners are no danger."""
    assert clean(text) == text


def test_the_symbols_are_readable() -> None:
    """A person can see which character it was."""
    assert clean("\x1b[2J\x7f\x9b\u202e") == "␛[2J␡<U+009B><U+202E>"


def test_a_place_of_one_row_gets_one_row() -> None:
    """Newlines are symbols and tabs are blanks, where the layout has no room for them."""
    assert one_line("a\nb\tc\x1b[2J") == "a⏎b c␛[2J"


@pytest.mark.parametrize("character", "\u200b\u200e\u2060\ufeff\u00a0\u3000\u2028\ufe0f\u3164\U000e0041\ue000")
def test_what_can_not_be_seen_is_revealed(character: str) -> None:
    """Zero width, odd blanks, tags, selectors, fillers and private characters."""
    assert reveal(f"a{character}b") == f"a<U+{ord(character):04X}>b"


def test_what_can_be_seen_is_not_touched() -> None:
    """Letters of any script, accents and ordinary blanks."""
    text = "é e\u0301 日本語 עברית 👍 a b\tc\nd"
    assert reveal(text) == text


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_json_for_a_terminal_means_the_same(text: str) -> None:
    """Nothing that a terminal obeys is left in it, and it reads back as it was."""
    escaped = escape_json(json.dumps({"text": text}, ensure_ascii=False))
    assert clean(escaped) == escaped
    assert json.loads(escaped) == {"text": text}
