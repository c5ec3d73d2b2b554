import json
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ProtocolError
from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    Extra,
    ImagePart,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    ReasoningItem,
    ResultItem,
    TextPart,
    text_message,
)
from treadle.protocols.messages.client_messages import HistoryReader
from treadle.protocols.translation_notes import Notes


def _read(*messages: Any, servers: tuple[str, ...] = ()) -> tuple[tuple[AnyItem, ...], list[str]]:
    notes = Notes()
    items = HistoryReader(notes, frozenset(servers)).read(_raw(messages), "messages")
    return items, [note.code for note in notes.all()]


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def _use(call_id: str = "toolu_1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {"a": 1}, **fields}


def test_every_role_may_stand_anywhere() -> None:
    """Claude Code sends system messages behind the user's."""
    assert _read(
        {"role": "user", "content": "hi"},
        {"role": "system", "content": [{"type": "text", "text": "env"}]},
        {"role": "assistant", "content": "yes"},
        {"role": "developer", "content": "mind"},
    ) == (
        (
            text_message("user", "hi"),
            text_message("system", "env"),
            text_message("assistant", "yes"),
            text_message("developer", "mind"),
        ),
        [],
    )


def test_a_turn_becomes_items_in_their_order() -> None:
    """Thoughts, texts, calls; texts that follow each other are parts of one message."""
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
        _use(),
        {"type": "text", "text": "c"},
    ]
    items, codes = _read({"role": "assistant", "content": blocks})
    assert items == (
        ReasoningItem(text=("hm",), blobs=(Blob(provider="anthropic", kind="signature", data="sig"),)),
        ReasoningItem(blobs=(Blob(provider="anthropic", kind="redacted", data="xyz"),)),
        MessageItem(role="assistant", content=(TextPart(text="a"), TextPart(text="b"))),
        CallItem(call_id="toolu_1", name="f", arguments='{"a":1}'),
        text_message("assistant", "c"),
    )
    assert codes == []


def test_results_know_the_name_of_their_call() -> None:
    """With errors, images and marks kept, and the text behind them a message of its own."""
    image = {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}}
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True, "content": "bad"},
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image], "cache_control": {"type": "ephemeral"}},
        {"type": "tool_result", "tool_use_id": "toolu_9"},
        {"type": "text", "text": "go on"},
    ]
    items, _ = _read(
        {"role": "assistant", "content": [_use(), _use("toolu_2", name="g")]}, {"role": "user", "content": results}
    )
    mark = Extra(protocol="messages", fields={"cache_control": _raw({"type": "ephemeral"})})
    assert items[2:] == (
        ResultItem(call_id="toolu_2", name="g", output=(TextPart(text="bad"),), is_error=True),
        ResultItem(call_id="toolu_1", name="f", output=(ImagePart(url="https://x/a.png"),), extra=mark),
        ResultItem(call_id="toolu_9"),
        text_message("user", "go on"),
    )


@pytest.mark.parametrize(
    ("given", "arguments"),
    [({}, "{}"), (None, "{}"), ("", "{}"), ("raw", "raw"), ({"a": [1, {"b": "x y"}]}, '{"a":[1,{"b":"x y"}]}')],
)
def test_an_input_becomes_canonical_text(given: Any, arguments: str) -> None:
    """Whatever spacing the client used; a text is what a model once wrote."""
    items, _ = _read({"role": "assistant", "content": [_use(input=given)]})
    assert items == (CallItem(call_id="toolu_1", name="f", arguments=arguments),)


def test_our_own_server_calls_come_back_as_server_calls() -> None:
    """Those of the upstream's own servers stay as they are."""
    ours = {"type": "mcp_tool_use", "id": "mcp_1", "name": "g", "server_name": "python", "input": {}}
    theirs = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "h", "server_name": "web", "input": {}}
    blocks = [
        ours,
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcp_1",
            "is_error": True,
            "content": [{"type": "text", "text": "r"}],
        },
        theirs,
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": []},
    ]
    items, _ = _read({"role": "assistant", "content": blocks}, servers=("web",))
    assert items == (
        CallItem(call_id="mcp_1", name="g", arguments="{}", side="server"),
        ResultItem(call_id="mcp_1", name="g", output=(TextPart(text="r"),), is_error=True),
        OpaqueItem(protocol="messages", raw=_raw(theirs)),
        OpaqueItem(protocol="messages", raw=_raw(blocks[3])),
    )


def test_blocks_that_nobody_knows_are_kept_in_place() -> None:
    """As items of the model's turn, as parts of a user's message."""
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": 1}}
    found = {"type": "search_result", "source": "s"}
    items, codes = _read(
        {"role": "assistant", "content": [search, {"type": "text", "text": "a"}]},
        {"role": "user", "content": [found]},
    )
    assert items == (
        OpaqueItem(protocol="messages", raw=_raw(search)),
        text_message("assistant", "a"),
        MessageItem(role="user", content=(OpaquePart(protocol="messages", raw=_raw(found)),)),
    )
    assert codes == []


def test_empty_messages_and_unknown_roles_and_fields_are_no_errors() -> None:
    """A stock client may send what the next release of the API knows."""
    odd = {"role": "judge", "content": "x"}
    items, codes = _read({"role": "user", "content": []}, odd, {"role": "user", "content": "", "mood": 1})
    assert items == (MessageItem(role="user"), OpaqueItem(protocol="messages", raw=_raw(odd)), MessageItem(role="user"))
    assert codes == ["unknown_role", "field_dropped"]


def test_calls_without_ids_get_ones_of_their_place() -> None:
    """The same request gives the same ids."""
    items, _ = _read({"role": "assistant", "content": [_use("")]})
    assert isinstance(items[0], CallItem)
    assert items[0].call_id == "call_messages_0_content_0"


def test_tools_defined_in_the_middle_are_found() -> None:
    """The block itself stays with its system message."""
    definition = {"name": "late", "input_schema": {"type": "object"}}
    block = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}}
    reference = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}
    reader = HistoryReader(Notes())
    items = reader.read(_raw([{"role": "system", "content": [block, reference]}]), "messages")
    assert [(path, bytes(raw)) for path, raw in reader.definitions] == [
        ("messages.0.content.0.tool.definition", json.dumps(definition).encode())
    ]
    parts = (OpaquePart(protocol="messages", raw=_raw(block)), OpaquePart(protocol="messages", raw=_raw(reference)))
    assert items == (MessageItem(role="system", content=parts),)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (5, "messages.0"),
        ({"content": "x"}, "messages.0.role"),
        ({"role": 5}, "messages.0.role"),
        ({"role": "user", "content": 5}, "messages.0.content"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages.0.content.0.text"),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}, "messages.0.content.0.name"),
        ({"role": "assistant", "content": [_use(input=[1])]}, "messages.0.content.0.input"),
        ({"role": "user", "content": [{"type": "tool_result"}]}, "messages.0.content.0.tool_use_id"),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text"}]}]},
            "messages.0.content.0.content.0.text",
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "is_error": "no"}]},
            "messages.0.content.0.is_error",
        ),
        ({"role": "assistant", "content": [{"type": "redacted_thinking"}]}, "messages.0.content.0.data"),
    ],
)
def test_what_contradicts_the_types_is_refused_by_its_path(message: Any, param: str) -> None:
    """As the API itself writes a path."""
    with pytest.raises(ProtocolError) as caught:
        _read(message)
    assert caught.value.param == param
