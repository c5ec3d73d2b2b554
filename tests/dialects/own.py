"""Cases beside the corpus: every dialect with awkward values, damage and places where it must not be read.

Each is written by the dialect's row, so that a new row is tested by being there.
"""

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from treadle.cli.dialect_rendering import render
from treadle.protocols.text_calls.dialect_grammar import Dialect, Elements, Framed, Pairs, Tagged, Whole
from treadle.protocols.text_calls.dialect_table import DIALECTS

Call = tuple[str, dict[str, Any]]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A text, the visible text and the calls that it stands for; no content means the text itself."""

    id: str
    text: str
    calls: list[Call] = []
    content: str | None = None
    has_tools: bool = True


def _tool(name: str, required: list[str], **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


_STRING = {"type": "string"}
TOOLS: list[dict[str, Any]] = [
    _tool("save_page", ["title", "body"], title=_STRING, body=_STRING, pinned={"type": "boolean"}),
    _tool(
        "plan_trip",
        ["to"],
        to=_STRING,
        days={"type": "integer"},
        budget={"type": "number"},
        stops={"type": "array", "items": _STRING},
        car={"type": "object", "properties": {"plate": _STRING, "seats": {"type": "integer"}}},
    ),
    _tool("ring_bell", []),
]

VALUES: dict[str, str] = {
    "tags": '<p class="x">a < b && c > d</p><br/>',
    "number-like": "007",
    "json-like": '{"a": [1, 2]}',
    "quotes": "she said \"it's\" and 'so'",
    "backslash": "C:\\new\\table \\d+",
    "ends-in-less": "x <",
    "lines": "one\n\n  two\nthree",
    "emoji": "añ 🌊 漢字 \u200d",
    "backticks": "`a` and ```b```",
    "brackets": "}}]]) [[{{",
    "reasoning-tag": "a <think> b",
    "null": "null",
}
"""Values of a string, each of which some reader takes for something else."""


def cases() -> Iterator[Case]:
    """Yield every case."""
    for dialect in DIALECTS:
        yield from _positives(dialect)
        yield from _negatives(dialect)


def _positives(dialect: Dialect) -> Iterator[Case]:
    for name, value in VALUES.items():
        call = ("save_page", {"title": "t", "body": value})
        yield Case(id=f"{dialect.id}/{name}", text=render(dialect, [call]), calls=[call], content="")
    typed: Call = (
        "plan_trip",
        {"to": "Nes", "days": 3, "budget": 2.5, "stops": ["a", "b c"], "car": {"plate": "X 1", "seats": 4}},
    )
    yield Case(id=f"{dialect.id}/types", text=render(dialect, [typed]), calls=[typed], content="")
    if isinstance(dialect.grammar, Tagged | Pairs):
        yield from _closers_inside(dialect)
    if isinstance(dialect.grammar, Whole):
        return
    first: Call = ("plan_trip", {"to": "A"})
    text = f"Before.\n{render(dialect, [first])}\nBetween.\n{render(dialect, [typed])}\nAfter."
    yield Case(id=f"{dialect.id}/twice", text=text, calls=[first, typed], content="Before.\nBetween.\nAfter.")
    code = "```\nx = 1\n```\n`y`\n"
    yield Case(id=f"{dialect.id}/behind-code", text=code + render(dialect, [first]), calls=[first], content=code)
    thought = "<think>hm `</think>\n"
    yield Case(
        id=f"{dialect.id}/behind-thought", text=thought + render(dialect, [first]), calls=[first], content=thought
    )


def _closers_inside(dialect: Dialect) -> Iterator[Case]:
    grammar = dialect.grammar
    if isinstance(grammar, Tagged):
        words = [grammar.end(grammar.param), grammar.end(grammar.call), *(grammar.end(wrap) for wrap in grammar.wraps)]
    else:
        words = ["</arg_value>", "</tool_call>", "</arg_key>"]
    for number, word in enumerate(words):
        call = ("save_page", {"title": "t", "body": f"the tag {word} is text"})
        yield Case(id=f"{dialect.id}/closer-{number}", text=render(dialect, [call]), calls=[call], content="")


def _negatives(dialect: Dialect) -> Iterator[Case]:
    call: Call = ("plan_trip", {"to": "Nes", "days": 3})
    text = render(dialect, [call])
    is_whole = isinstance(dialect.grammar, Whole)
    yield Case(id=f"{dialect.id}/unregistered", text=render(dialect, [("fly_away", {"to": "Nes"})]))
    yield Case(id=f"{dialect.id}/no-tools", text=text, has_tools=False)
    yield Case(id=f"{dialect.id}/tilde-fence", text=f"So:\n~~~text\n{text}\n~~~\nDone.")
    yield Case(id=f"{dialect.id}/long-fence", text=f"So:\n`````\n```\n{text}\n```\n`````\nDone.")
    yield Case(id=f"{dialect.id}/list-fence", text=f"1. So:\n\n   ````xml\n   {text}\n   ````\n")
    yield Case(id=f"{dialect.id}/open-fence", text=f"So:\n````\n{text}\n")
    yield Case(id=f"{dialect.id}/quoted", text="\n".join(f"> {line}" for line in text.split("\n")))
    yield Case(id=f"{dialect.id}/closed-thought", text=f"<think>I might say\n{text}\n</think>No.")
    if "\n" not in text and "`" not in text and not dialect.at_line:
        yield Case(id=f"{dialect.id}/inline", text=f"Write `{text}` for that.")
        yield Case(id=f"{dialect.id}/inline-two", text=f"Write `` {text} ` `` for that.")
    if is_whole:
        yield Case(id=f"{dialect.id}/in-prose", text=f"It was {text} as sent.")
        yield Case(id=f"{dialect.id}/followed", text=f"{text}\nThat is what I sent.")
    elif not isinstance(dialect.grammar, Elements | Framed):
        marker = dialect.grammar.markers[0]
        yield Case(id=f"{dialect.id}/marker-only", text=f"The word {marker} begins it.\n{marker}\n")
    yield from _cuts(dialect, call)


def _cuts(dialect: Dialect, call: Call) -> Iterator[Case]:
    """Yield the call cut off inside its last value: never a call."""
    text = render(dialect, [(call[0], {"to": "Nes", "stops": ["first", "second"]})])
    place = text.index("second")
    for offset in (0, 3):
        cut = text[: place + offset]
        yield Case(id=f"{dialect.id}/cut-{offset}", text=cut)


def chunkings(text: str, seed: int = 0) -> Iterator[list[str]]:
    """Yield a text whole, in single characters, and cut at random."""
    yield [text]
    yield list(text)
    for top in (3, 11, 40):
        draw = random.Random(seed + top)
        pieces: list[str] = []
        while sum(map(len, pieces)) < len(text):
            start = sum(map(len, pieces))
            pieces.append(text[start : start + draw.randint(1, top)])
        yield pieces
