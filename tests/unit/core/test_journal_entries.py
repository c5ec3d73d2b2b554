import msgspec
import pytest
from hypothesis import given

from treadle.core.items import CallItem, MessageItem, ReasoningItem, RefusalPart, ResultItem, TextPart, text_message
from treadle.core.journal_entries import call_summary, entry_of_item, item_of_entry
from treadle.core.request import Note
from unit.core import strategies


@given(strategies.items)
def test_an_item_survives_the_journal(item):
    """Whatever the item, writing it as an entry and reading it back gives the same item."""
    assert item_of_entry(entry_of_item(item, at=1.5)) == item


def test_a_plain_text_message_needs_no_data():
    """Text-only messages are kept as in S3: kind and content, data empty."""
    entry = entry_of_item(text_message("user", "hello"), at=0)
    assert (entry.kind, entry.content, entry.data) == ("user", "hello", None)


def test_a_message_that_says_nothing_needs_no_data_either():
    """It has no part; one with an empty part is another message."""
    nothing = MessageItem(role="assistant", name="bob")
    entry = entry_of_item(nothing, at=0, name="msg_1", is_input=True)
    assert (entry.kind, entry.content, entry.name, entry.item_id, entry.data) == ("assistant", "", "bob", "msg_1", None)


@pytest.mark.parametrize(
    "fields",
    [
        {"content": (TextPart(text=""),)},
        {"content": (TextPart(text="a"), TextPart(text="b"))},
        {"content": (TextPart(text="a", annotations=msgspec.Raw(b"[]")),)},
        {"content": (TextPart(text="a", logprobs=msgspec.Raw(b"[]")),)},
        {"content": (RefusalPart(text="a"),)},
        {"phase": "commentary"},
        {"is_partial": True},
        {"role": "developer"},
    ],
)
def test_a_message_that_says_more_is_kept_whole(fields):
    """What kind, content and name do not tell is in the data."""
    item = MessageItem(**{"role": "user", "content": (TextPart(text="a"),), **fields})
    entry = entry_of_item(item, at=0)
    assert entry.data is not None
    assert item_of_entry(entry) == item


def test_a_call_is_kept_in_the_shape_of_s3():
    """A tool_call has a human summary and the data `{id, type, function: {name, arguments}}`."""
    call = CallItem(call_id="call_abc123", name="glob", arguments='{"pattern":"*.c","path":"src/"}')
    entry = entry_of_item(call, at=0)
    assert entry.kind == "tool_call"
    assert entry.content == 'glob(pattern="*.c", path="src/")'
    data = msgspec.json.decode(entry.data)
    assert {key: data[key] for key in ("id", "type", "function")} == {
        "id": "call_abc123",
        "type": "function",
        "function": {"name": "glob", "arguments": '{"pattern":"*.c","path":"src/"}'},
    }


def test_a_result_is_kept_in_the_shape_of_s3():
    """A tool_result has a human summary and the data `{tool_call_id, name, output, success}`."""
    output = '{"output":"file1.c\\nfile2.c\\nfile3.c","count":3}'
    result = ResultItem(call_id="call_abc123", name="glob", output=(TextPart(text=output),), summary="3 files found")
    entry = entry_of_item(result, at=0)
    assert (entry.kind, entry.content) == ("tool_result", "3 files found")
    data = msgspec.json.decode(entry.data)
    assert {key: data[key] for key in ("tool_call_id", "name", "output", "success")} == {
        "tool_call_id": "call_abc123",
        "name": "glob",
        "output": output,
        "success": True,
    }


def test_arguments_that_are_no_object_are_shown_as_they_came():
    """A summary never fails on what a model wrote."""
    assert call_summary("f", "not json") == "f(not json)"
    assert call_summary("f", "") == "f()"


def test_a_developer_message_is_kind_system_and_stays_a_developer_message():
    """The kind is one of five; the exact role is not lost."""
    item = MessageItem(role="developer", content=(TextPart(text="be brief"),))
    entry = entry_of_item(item, at=0)
    assert entry.kind == "system"
    assert item_of_entry(entry) == item


def test_notes_encode_small():
    """Defaults are not written."""
    assert msgspec.json.encode(Note(code="c", action="dropped", message="m")) == (
        b'{"code":"c","action":"dropped","message":"m"}'
    )


def test_a_thought_is_shown_by_its_summary_else_by_its_text():
    """Paragraphs stay apart; what only its provider can read is shown as nothing."""
    shown = [
        entry_of_item(thought, at=0).content
        for thought in (
            ReasoningItem(summary=("a", "b"), text=("long",)),
            ReasoningItem(text=("long", "more")),
            ReasoningItem(),
        )
    ]
    assert shown == ["a\n\nb", "long\n\nmore", None]
