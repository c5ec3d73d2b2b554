"""Rows, entries and a clock for the tests of the journal."""

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.events import RunEnded
from treadle.core.items import CallItem, ResultItem, TextPart, text_message
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.journal.journal_interface import Chunk, RunRow

OWNER = "owner_a"
OTHER = "owner_b"
LEASE_S = 15.0
WAIT_S = 30.0
COMPLETED = RunEnded(status="completed", stop="done", ended_at=1_010.0, rounds=1)


class SetClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def run_row(name: str = "1", **fields: Any) -> RunRow:
    """A run called `name`, in a conversation of its own unless told."""
    row = RunRow(
        id=f"run_{name}",
        response_id=f"resp_{name}",
        conversation_id=f"conv_{name}",
        protocol="responses",
        model="demo",
        created_at=1_000.0,
    )
    return msgspec.structs.replace(row, **fields)


def said(text: str, role: Any = "user", *, item_id: str = "", is_input: bool = False) -> Entry:
    """A message as an entry."""
    return entry_of_item(text_message(role, text, item_id), at=1_001.5, is_input=is_input)


def called(call_id: str, *, arguments: str = '{"city":"Paris"}', is_input: bool = False) -> Entry:
    """A call of `get_weather` as an entry."""
    item = CallItem(id=f"fc_{call_id}", call_id=call_id, name="get_weather", arguments=arguments, side="server")
    return entry_of_item(item, at=1_002.5, is_input=is_input)


def resulted(call_id: str, output: str = '{"temp_c":22}', *, is_input: bool = False) -> Entry:
    """The result of a call of `get_weather` as an entry."""
    item = ResultItem(call_id=call_id, name="get_weather", output=(TextPart(text=output),), summary="22 °C")
    return entry_of_item(item, at=1_003.5, is_input=is_input)


def noted(data: bytes) -> Entry:
    """Bookkeeping with raw data."""
    return Entry(kind="note", at=1_004.5, data=msgspec.Raw(data))


def planned(fingerprint: str) -> Entry:
    """The plan of a model call as an entry."""
    data = msgspec.json.encode({"round": 1, "fingerprint": fingerprint})
    return Entry(kind="plan", at=1_000.5, name="demo", data=msgspec.Raw(data))


def told(first: int, *texts: str) -> Chunk:
    """A chunk with these events, from number `first` on."""
    return Chunk(first=first, count=len(texts), data=msgspec.json.encode(texts))


def numbered(entries: list[Entry], first: int = 1) -> list[Entry]:
    """The entries as the journal numbers them."""
    return [msgspec.structs.replace(entry, seq=seq) for seq, entry in enumerate(entries, first)]


def program(*arguments: str) -> list[str]:
    """The command that runs `process.py`."""
    return [sys.executable, str(Path(__file__).with_name("process.py")), *arguments]


def surroundings() -> dict[str, str]:
    """The environment in which `process.py` finds its imports."""
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
