"""Ground truth of the Berkeley Function Calling Leaderboard, written in every dialect and read back.

Its wheel (`bfcl-eval`, Apache-2.0) is used as an archive of data only, without its dependencies, and is not part of
this repository. `python -m dialects.bfcl WHEEL [STEP]` reads all of it back and says how much came back exactly.
"""

import json
import os
import random
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec

from treadle.cli.dialect_rendering import Call, render
from treadle.protocols.text_calls import read_tools
from treadle.protocols.text_calls.dialect_grammar import Dialect
from treadle.protocols.text_calls.dialect_table import DIALECTS
from treadle.protocols.text_calls.scanner import FoundCalls, TextScanner

WHEEL_VARIABLE = "TREADLE_BFCL"
_SETS = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "list": "array", "int": "integer", "bool": "boolean"}


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One question: the tools offered and the calls that answer it."""

    id: str
    tools: list[dict[str, Any]]
    calls: list[Call]


def find_wheel() -> Path | None:
    """Return the wheel that the environment names, if it is there."""
    named = os.environ.get(WHEEL_VARIABLE)
    return Path(named) if named and Path(named).is_file() else None


def read_entries(wheel: Path) -> Iterator[Entry]:
    """Yield the entries whose calls fit their own schemas."""
    with zipfile.ZipFile(wheel) as archive:
        for name in _SETS:
            questions = _lines(archive, f"bfcl_eval/data/BFCL_v4_{name}.json")
            answers = {row["id"]: row for row in _lines(archive, f"bfcl_eval/data/possible_answer/BFCL_v4_{name}.json")}
            for row in questions:
                entry = _entry(row, answers[row["id"]]["ground_truth"])
                if _fits(entry):
                    yield entry


def _lines(archive: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in archive.read(name).decode().splitlines() if line.strip()]


def _entry(row: dict[str, Any], truth: list[dict[str, Any]]) -> Entry:
    tools = [
        {"type": "function", "function": {"name": _name(each["name"]), "parameters": _schema(each["parameters"])}}
        for each in row["function"]
    ]
    calls = [(_name(name), _chosen(given)) for call in truth for name, given in call.items()]
    return Entry(id=row["id"], tools=tools, calls=calls)


def _name(name: str) -> str:
    return name.replace(".", "_")


def _schema(schema: Any) -> Any:
    """Return a schema with the types that JSON Schema has; `any` is none."""
    if isinstance(schema, list):
        return [_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _schema(value) if key != "default" else value for key, value in schema.items()}
    kind = made.get("type")
    if kind == "any":
        del made["type"]
    elif isinstance(kind, str):
        made["type"] = _TYPES.get(kind, kind)
    return made


def _chosen(given: dict[str, Any]) -> dict[str, Any]:
    """Return the first alternative of each parameter; an empty one means that it may be left out."""
    return {key: _value(options[0]) for key, options in given.items() if options and options[0] != ""}


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _value(each[0] if isinstance(each, list) and each else each) for key, each in value.items()}
    if isinstance(value, list):
        return [_value(each) for each in value]
    return value


def _fits(entry: Entry) -> bool:
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in entry.tools}
    try:
        return all(jsonschema_rs.is_valid(schemas[name], given) for name, given in entry.calls)
    except (ValueError, KeyError):
        return False


def comes_back(entry: Entry, dialect: Dialect, seed: int) -> bool:
    """Tell whether the calls of an entry come back exactly from their text, cut at random."""
    text = render(dialect, entry.calls)
    draw = random.Random(seed)
    scanner = TextScanner(read_tools(entry.tools), DIALECTS)
    pieces = []
    at = 0
    while at < len(text):
        size = draw.randint(1, 24)
        pieces += scanner.feed(text[at : at + size])
        at += size
    pieces += scanner.finish()
    found = [call for piece in pieces if isinstance(piece, FoundCalls) for call in piece.calls]
    return [(call.name, json.loads(call.arguments)) for call in found] == entry.calls


def main() -> None:
    """Read the whole archive back and print what did not come back."""
    wheel, step = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    entries = list(read_entries(wheel))[::step]
    tried, missed = 0, []
    for number, entry in enumerate(entries):
        for dialect in DIALECTS:
            tried += 1
            if not comes_back(entry, dialect, number):
                missed.append(f"{dialect.id} {entry.id}")
    for each in missed[:40]:
        print(each)
    print(f"{len(entries)} entries, {tried - len(missed)} of {tried} came back ({1 - len(missed) / tried:.5%})")


if __name__ == "__main__":
    main()
