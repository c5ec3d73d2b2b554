"""Makes text of models and tools safe to print on a terminal.

Control characters in output can clear the screen, change the title, write the clipboard or reverse the direction of
text. Every such character becomes a visible symbol here; nothing is dropped.
"""

import unicodedata

_C0_PICTURES = 0x2400
_KEPT = frozenset({0x09, 0x0A})


def _table() -> dict[int, str]:
    table = {code: chr(_C0_PICTURES + code) for code in range(0x20) if code not in _KEPT}
    table[0x7F] = "\u2421"
    hidden = [*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
    table.update({code: f"<U+{code:04X}>" for code in hidden})
    # A lone surrogate can not be encoded at all; printing it would end the program.
    table.update({code: f"<U+{code:04X}>" for code in range(0xD800, 0xE000)})
    return table


_TABLE = _table()
ONE_FOR_ONE = {code: symbol if len(symbol) == 1 else "\ufffd" for code, symbol in _TABLE.items()}
"""The same for an editor: each character is one symbol, so that the cursor stands where it seems to."""


_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_UNSEEN = frozenset({"Cf", "Co", "Cn", "Zl", "Zp", "Zs"})


def one_line(text: str) -> str:
    """Return clean text for a place of one row: a newline is a symbol too, a tab is a blank."""
    return clean(text).replace("\n", "⏎").replace("\t", " ")


def reveal(text: str) -> str:
    """Return clean text in which invisible characters are symbols too: for text that a person is about to approve."""
    return "".join(f"<U+{ord(each):04X}>" if _is_unseen(each) else each for each in clean(text))


def _is_unseen(character: str) -> bool:
    if character.isascii():
        return False
    is_selector = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
    return is_selector or character in _BLANK_LETTERS or unicodedata.category(character) in _UNSEEN


def clean(text: str) -> str:
    """Return the text with control characters and direction overrides as visible symbols; newline and tab stay."""
    return text.translate(_TABLE)


_JSON_TABLE = {code: f"\\u{code:04x}" for code in _TABLE if code >= 0x7F}


def escape_json(text: str) -> str:
    """Return JSON that means the same with every character escaped that a terminal would obey.

    Encoders escape only those below the blank. Others stand in strings alone, so that an escape is right everywhere.
    """
    return text.translate(_JSON_TABLE)
