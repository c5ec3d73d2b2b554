"""Coverage-guided fuzzing of the scanner of calls in text, by atheris: `python -m fuzz.dialects`.

No text may make it raise, hang, or hold more than its cap, and how the text is cut may not matter.
"""

import sys

import atheris

with atheris.instrument_imports(include=["treadle"]):
    from dialects.own import TOOLS
    from treadle.protocols.text_calls import read_tools
    from treadle.protocols.text_calls.dialect_table import DIALECTS
    from treadle.protocols.text_calls.scanner import FoundCalls, TextScanner

HELD_CHARS_MAX = 2_048
KNOWN = read_tools(TOOLS)


def _scan(text: str, size: int) -> tuple[str, list[str]]:
    scanner = TextScanner(KNOWN, DIALECTS, chars_max=HELD_CHARS_MAX)
    pieces = []
    for start in range(0, len(text), size):
        pieces += scanner.feed(text[start : start + size])
        assert scanner.held_chars <= HELD_CHARS_MAX + size
    pieces += scanner.finish()
    calls = [call.name for piece in pieces if isinstance(piece, FoundCalls) for call in piece.calls]
    return "".join(piece for piece in pieces if isinstance(piece, str)), calls


def fuzz_one(data: bytes) -> None:
    """Scan one text in pieces of one size and whole."""
    source = atheris.FuzzedDataProvider(data)
    size = source.ConsumeIntInRange(1, 64)
    text = source.ConsumeUnicode(source.remaining_bytes())
    visible, calls = _scan(text, size)
    if not calls and len(text) < HELD_CHARS_MAX // 2:
        assert _scan(text, len(text) or 1) == (visible, calls)


def main() -> None:
    """Run until told to stop; arguments are libFuzzer's."""
    atheris.Setup(sys.argv, fuzz_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
