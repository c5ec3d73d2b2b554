"""The `messages` view: the conversation by plain SQL, in the columns of a chat backend."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from store.sample import LEASE_S, OWNER, called, noted, resulted, run_row, said
from treadle.core.items import CallItem, ImagePart, MessageItem, TextPart
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.journal.journal_interface import INLINE_BYTES_MAX
from treadle.journal.sqlite.store import SqliteStore

COLUMNS = "role, content, content_json, tool_calls, tool_call_id, function_call, name"
WEATHER = {"name": "get_weather", "arguments": '{"city":"Paris"}'}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """An open store on a file."""
    opened = SqliteStore(str(tmp_path / "journal.db"))
    await opened.open()
    yield opened
    await opened.close()


async def rows(store: SqliteStore, entries: list[Entry], columns: str = COLUMNS) -> list[tuple[Any, ...]]:
    """Write the entries as one run, then read the view by another connection."""
    await store.start_run(run_row(), entries, owner=OWNER, lease_s=LEASE_S)
    connection = apsw.Connection(store.path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(f"SELECT {columns} FROM messages ORDER BY run_id, seq").fetchall()
    finally:
        connection.close()


async def test_a_tool_conversation_reads_as_chat_messages(store: SqliteStore) -> None:
    """Calls are assistant rows with tool_calls, results tool rows with their call's id; bookkeeping is not there."""
    entries = [
        said("be kind", "system"),
        said("weather?"),
        called("call_1"),
        Entry(kind="tool_start", at=1.0, call_id="call_1"),
        resulted("call_1", "22 degrees"),
        noted(b"{}"),
        said("22 °C", "assistant"),
    ]
    found = await rows(store, entries)
    calls = found[2]
    assert json.loads(calls[3]) == [{"id": "call_1", "type": "function", "function": WEATHER}]
    assert calls[5] is None
    assert [(*row[:3], row[4], row[6]) for row in found] == [
        ("system", "be kind", None, None, None),
        ("user", "weather?", None, None, None),
        ("assistant", None, None, None, "get_weather"),
        ("tool", "22 degrees", None, "call_1", "get_weather"),
        ("assistant", "22 °C", None, None, None),
    ]
    assert [row[3] for row in found if row is not calls] == [None] * 4


async def test_a_turn_of_the_assistant_is_one_row(store: SqliteStore) -> None:
    """Read in order the rows are a conversation that Chat takes: text and all calls together, then each result."""
    entries = [
        said("weather?"),
        said("Let me look.", "assistant"),
        called("c1"),
        called("c2"),
        said("And there.", "assistant"),
        called("c3"),
        *[resulted(each, "22") for each in ("c1", "c2", "c3")],
        called("c4"),
        resulted("c4", "23"),
        said("22", "assistant"),
        said("Really.", "assistant"),
    ]
    found = await rows(store, entries)
    assert [(row[0], row[1], row[4], row[6]) for row in found] == [
        ("user", "weather?", None, None),
        ("assistant", "Let me look.\n\nAnd there.", None, None),
        *[("tool", "22", each, "get_weather") for each in ("c1", "c2", "c3")],
        ("assistant", None, None, "get_weather"),
        ("tool", "23", "c4", "get_weather"),
        ("assistant", "22", None, None),
        ("assistant", "Really.", None, None),
    ]
    called_in = [[call["id"] for call in json.loads(row[3])] if row[3] else [] for row in found]
    assert called_in == [[], ["c1", "c2", "c3"], [], [], [], ["c4"], [], [], []]
    assert [row[5] for row in found] == [None] * len(found)


async def test_only_legacy_clients_have_a_function_call(store: SqliteStore) -> None:
    """It is the older form of `tool_calls`, beside which no message has it."""
    legacy = CallItem(call_id="call_1_legacy", name="f", arguments="{}")
    found = await rows(store, [entry_of_item(legacy, at=1.0, is_input=True), resulted("call_1_legacy"), called("c1")])
    assert [row[5] and json.loads(row[5]) for row in found] == [{"name": "f", "arguments": "{}"}, None, None]


async def test_one_conversation_is_found_without_reading_the_others(store: SqliteStore) -> None:
    """The view goes to the rows of a run by its number, never through all that was ever said."""
    await rows(store, [said("hi")])
    connection = apsw.Connection(store.path, flags=apsw.SQLITE_OPEN_READONLY)
    steps = connection.execute("EXPLAIN QUERY PLAN SELECT * FROM messages WHERE conversation_id = 'c'").fetchall()
    connection.close()
    # The calls and the texts of one turn, put in order, are all that is gone through.
    assert {step[3] for step in steps if step[3].startswith("SCAN")} <= {"SCAN t", "SCAN c", "SCAN CONSTANT ROW"}


async def test_every_row_says_where_and_when(store: SqliteStore) -> None:
    """Run, number, conversation, session, side and time come with each message."""
    found = await rows(
        store, [said("hi", is_input=True)], "run_id, seq, conversation_id, session_id, is_input, created_at"
    )
    assert found == [("run_1", 1, "conv_1", None, 1, 1_001.5)]


@pytest.mark.parametrize(
    ("output", "content", "content_json"),
    [
        ('{"temp_c":22}', None, '{"temp_c":22}'),
        ("[1, 2]", None, "[1, 2]"),
        ("22", "22", None),
        ('"text"', '"text"', None),
        ("{broken", "{broken", None),
        ("", "", None),
        ("a\x00b", "a\x00b", None),
        ('["' + "x" * INLINE_BYTES_MAX + '"]', None, '["' + "x" * INLINE_BYTES_MAX + '"]'),
    ],
    ids=["object", "array", "number", "string", "broken", "empty", "nul", "out of line"],
)
async def test_structured_output_is_content_json(
    store: SqliteStore, output: str, content: str | None, content_json: str | None
) -> None:
    """An object or array goes to content_json, anything else to content, in full."""
    found = await rows(store, [resulted("call_1", output)], "role, content, content_json, tool_call_id")
    assert found == [("tool", content, content_json, "call_1")]


async def test_parts_and_roles_are_kept(store: SqliteStore) -> None:
    """A developer stays one, and content of several parts is in content_json beside its text."""
    item = MessageItem(role="developer", content=(TextPart(text="see"), ImagePart(url="https://example.test/a.png")))
    [(role, content, parts)] = await rows(store, [entry_of_item(item, at=1.0)], "role, content, content_json")
    assert (role, content) == ("developer", "see")
    assert json.loads(parts) == [
        {"type": "text", "text": "see"},
        {"type": "image", "url": "https://example.test/a.png"},
    ]


async def test_odd_entries_do_not_break_the_view(store: SqliteStore) -> None:
    """Data that SQLite cannot read gives NULLs, and the other rows are still there."""
    broken = [
        Entry(kind="tool_call", at=1.0, call_id="c1", data=msgspec.Raw(b"not json")),
        Entry(kind="tool_result", at=1.0, call_id="c2", content="short", data=msgspec.Raw(b"\xff")),
        Entry(kind="tool_result", at=1.0, call_id="c3", content="deep", data=msgspec.Raw(b"[" * 6_000 + b"]" * 6_000)),
        entry_of_item(CallItem(call_id="c4", name="run", kind="custom", arguments="ls | wc\n"), at=1.0),
        said("fine"),
    ]
    found = await rows(store, broken)
    custom = [{"id": "c4", "type": "custom", "function": {"name": "run", "arguments": "ls | wc\n"}}]
    assert json.loads(found[3][3]) == custom
    assert [row for row in found if row is not found[3]] == [
        ("assistant", None, None, None, None, None, None),
        ("tool", "short", None, None, "c2", None, None),
        ("tool", "deep", None, None, "c3", None, None),
        ("user", "fine", None, None, None, None, None),
    ]
