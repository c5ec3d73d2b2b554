"""The `messages` view on PostgreSQL: the columns of SQLite's, readable where PostgreSQL cannot hold a character."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from postgres import postgres_server
from store.sample import LEASE_S, OWNER, called, noted, resulted, run_row, said
from treadle.core.items import CallItem, ImagePart, MessageItem, TextPart
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.journal.journal_interface import INLINE_BYTES_MAX
from treadle.journal.postgres.connection import connect
from treadle.journal.postgres.store import PostgresStore
from treadle.journal.store_url import PostgresAddress

COLUMNS = "role, content, content_json, tool_calls, tool_call_id, function_call, name"
WEATHER = {"name": "get_weather", "arguments": '{"city":"Paris"}'}


async def rows(entries: list[Entry], columns: str = COLUMNS) -> list[tuple[Any, ...]]:
    """Write the entries as one run, then read the view by plain SQL."""
    address = PostgresAddress(postgres_server().url())
    store = PostgresStore(address)
    await store.open()
    await store.start_run(run_row(), entries, owner=OWNER, lease_s=LEASE_S)
    await store.close()
    connection = await connect(address)
    found = await connection.fetch(f"SELECT {columns} FROM messages ORDER BY run_id, seq")
    await connection.close()
    await postgres_server().empty(address.shown)
    return [tuple(row) for row in found]


async def test_a_tool_conversation_reads_as_chat_messages() -> None:
    """Calls are assistant rows with tool_calls, results tool rows with their call's id; bookkeeping is not there."""
    entries = [said("be kind", "system"), called("call_1"), resulted("call_1", "22 degrees"), noted(b"{}")]
    found = await rows([*entries, said("22 °C", "assistant")])
    calls = found[1]
    assert json.loads(calls[3]) == [{"id": "call_1", "type": "function", "function": WEATHER}]
    assert calls[5] is None
    assert [(*row[:3], row[4], row[6]) for row in found] == [
        ("system", "be kind", None, None, None),
        ("assistant", None, None, None, "get_weather"),
        ("tool", "22 degrees", None, "call_1", "get_weather"),
        ("assistant", "22 °C", None, None, None),
    ]


async def test_a_turn_of_the_assistant_is_one_row() -> None:
    """Read in order the rows are a conversation that Chat takes: text and all calls together, then each result."""
    entries = [
        said("weather?"),
        said("Let me look.", "assistant"),
        called("c1"),
        called("c2"),
        said("And there.", "assistant"),
        called("c3"),
        *[resulted(each, "22") for each in ("c1", "c2", "c3")],
        said("22", "assistant"),
    ]
    found = await rows(entries)
    assert [(row[0], row[1], row[4], row[6]) for row in found] == [
        ("user", "weather?", None, None),
        ("assistant", "Let me look.\n\nAnd there.", None, None),
        *[("tool", "22", each, "get_weather") for each in ("c1", "c2", "c3")],
        ("assistant", "22", None, None),
    ]
    called_in = [[call["id"] for call in json.loads(row[3])] if row[3] else [] for row in found]
    assert called_in == [[], ["c1", "c2", "c3"], [], [], [], []]
    assert [row[5] for row in found] == [None] * len(found)


async def test_only_legacy_clients_have_a_function_call() -> None:
    """It is the older form of `tool_calls`, beside which no message has it."""
    legacy = CallItem(call_id="call_1_legacy", name="f", arguments="{}")
    found = await rows([entry_of_item(legacy, at=1.0, is_input=True), resulted("call_1_legacy"), called("c1")])
    assert [row[5] and json.loads(row[5]) for row in found] == [{"name": "f", "arguments": "{}"}, None, None]


async def test_every_row_says_where_and_when() -> None:
    """Run, number, conversation, session, side and time come with each message."""
    found = await rows([said("hi", is_input=True)], "run_id, seq, conversation_id, session_id, is_input, created_at")
    assert found == [("run_1", 1, "conv_1", None, True, 1_001.5)]


OUTPUTS = {
    "object": ('{"temp_c":22}', None, '{"temp_c":22}'),
    "array": ("[1, 2]", None, "[1, 2]"),
    "number": ("22", "22", None),
    "broken": ("{broken", "{broken", None),
    "empty": ("", "", None),
    "nul": ("a\x00b", "a\\u0000b", None),
    "out of line": ('["' + "x" * INLINE_BYTES_MAX + '"]', None, '["' + "x" * INLINE_BYTES_MAX + '"]'),
}


@pytest.mark.parametrize("name", OUTPUTS)
async def test_structured_output_is_content_json(name: str) -> None:
    """An object or array goes to content_json, anything else to content; what cannot be shown is shown as JSON does."""
    output, content, content_json = OUTPUTS[name]
    found = await rows([resulted("call_1", output)], "role, content, content_json, tool_call_id")
    assert found == [("tool", content, content_json, "call_1")]


async def test_parts_and_roles_are_kept() -> None:
    """A developer stays one, and content of several parts is in content_json beside its text."""
    item = MessageItem(role="developer", content=(TextPart(text="see"), ImagePart(url="https://example.test/a.png")))
    [(role, content, parts)] = await rows([entry_of_item(item, at=1.0)], "role, content, content_json")
    assert (role, content) == ("developer", "see")
    assert json.loads(parts)[1] == {"type": "image", "url": "https://example.test/a.png"}


async def test_the_statements_of_the_documents_run() -> None:
    """Every SQL example of docs/journal.md is good for PostgreSQL too."""
    text = (Path(__file__).parents[2] / "docs" / "journal.md").read_text("utf-8")
    statements = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    assert len(statements) > 2
    address = PostgresAddress(postgres_server().url())
    store = PostgresStore(address)
    await store.open()
    await store.close()
    connection = await connect(address)
    for statement in statements:
        await connection.fetch(statement)
    await connection.close()


async def test_odd_entries_do_not_break_the_view() -> None:
    """Data that PostgreSQL cannot read gives NULLs, odd characters are shown, and the other rows are still there."""
    broken = [
        Entry(kind="tool_call", at=1.0, call_id="c1", data=msgspec.Raw(b"not json")),
        Entry(kind="tool_result", at=1.0, call_id="c2\x00", content="short", data=msgspec.Raw(b"\xff")),
        Entry(kind="tool_result", at=1.0, call_id="c3", content="deep", data=msgspec.Raw(b"[" * 60_000)),
        Entry(kind="tool_result", at=1.0, call_id="c5", content="list", data=msgspec.Raw(b"[1]")),
        entry_of_item(CallItem(call_id="c4", name="run", kind="custom", arguments="ls | wc\n"), at=1.0),
        Entry(kind="user", at=1.0, content="half \ud83d, \ufdd0"),
    ]
    found = await rows(broken)
    custom = [{"id": "c4", "type": "custom", "function": {"name": "run", "arguments": "ls | wc\n"}}]
    assert json.loads(found[4][3]) == custom
    assert [row[:3] for row in found if row is not found[4]] == [
        ("assistant", None, None),
        ("tool", "short", None),
        ("tool", "deep", None),
        ("tool", "list", None),
        ("user", "half \\ud83d, \\ufdd0", None),
    ]
    assert found[1][4] == "c2\\u0000"
