"""Items as the Responses API lists them."""

from typing import Any

import msgspec
import pytest
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    FilePart,
    ImagePart,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    ReasoningItem,
    ReferenceItem,
    RefusalPart,
    ResultItem,
    TextPart,
    text_message,
)
from treadle.server.api.response_items import show_items

PICTURE = ImagePart(url="data:image/png;base64,AAAA")
SHOWN_PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "file_id": None, "detail": "auto"}
ITEM: TypeAdapter[Any] = TypeAdapter(ResponseItem)


def _shown(*items: AnyItem) -> Any:
    return msgspec.json.decode(msgspec.json.encode(show_items(items)))


def _message(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "id": "i", "role": role, "status": "completed", "content": list(content)}


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        (text_message("user", "hi", "i"), _message("user", {"type": "input_text", "text": "hi"})),
        (text_message("developer", "hi", "i"), _message("developer", {"type": "input_text", "text": "hi"})),
        (MessageItem(id="i", role="user", content=(PICTURE,)), _message("user", SHOWN_PICTURE)),
        (
            MessageItem(id="i", role="user", content=(FilePart(url="data:text/plain;base64,AA", filename="a"),)),
            _message(
                "user",
                {"type": "input_file", "file_data": "data:text/plain;base64,AA", "file_id": None, "filename": "a"},
            ),
        ),
        (
            MessageItem(id="i", role="user", content=(FilePart(url="http://x/a.pdf"),)),
            _message("user", {"type": "input_file", "file_url": "http://x/a.pdf", "file_id": None, "filename": None}),
        ),
        (
            MessageItem(id="i", role="assistant", content=(TextPart(text="yes"), RefusalPart(text="no"))),
            _message(
                "assistant",
                {"type": "output_text", "text": "yes", "annotations": []},
                {"type": "refusal", "refusal": "no"},
            ),
        ),
        (
            CallItem(id="i", call_id="c", name="look", arguments="{}"),
            {
                "type": "function_call",
                "id": "i",
                "call_id": "c",
                "name": "look",
                "status": "completed",
                "arguments": "{}",
            },
        ),
        (
            CallItem(id="i", call_id="c", name="clock__now", arguments="{}", namespace="clock"),
            {
                "type": "function_call",
                "id": "i",
                "call_id": "c",
                "name": "now",
                "namespace": "clock",
                "status": "completed",
                "arguments": "{}",
            },
        ),
        (
            CallItem(id="i", call_id="c", name="exec", arguments="ls", kind="custom"),
            {
                "type": "custom_tool_call",
                "id": "i",
                "call_id": "c",
                "name": "exec",
                "status": "completed",
                "input": "ls",
            },
        ),
        (
            ResultItem(id="i", call_id="c", output=(TextPart(text="17"),)),
            {"type": "function_call_output", "id": "i", "call_id": "c", "output": "17", "status": "completed"},
        ),
        (
            ResultItem(id="i", call_id="c", output=(TextPart(text="see"), PICTURE), kind="custom"),
            {
                "type": "custom_tool_call_output",
                "id": "i",
                "call_id": "c",
                "output": [{"type": "input_text", "text": "see"}, SHOWN_PICTURE],
                "status": "completed",
            },
        ),
        (
            ReasoningItem(
                id="i",
                summary=("s",),
                text=("t",),
                blobs=(Blob(provider="openai", kind="encrypted_content", data="x"),),
            ),
            {
                "type": "reasoning",
                "id": "i",
                "summary": [{"type": "summary_text", "text": "s"}],
                "content": [{"type": "reasoning_text", "text": "t"}],
                "encrypted_content": "x",
            },
        ),
    ],
)
def test_an_item_has_the_shape_of_the_api(item: AnyItem, shown: dict[str, Any]) -> None:
    """The official types take every one of them."""
    assert _shown(item) == [shown]
    ITEM.validate_python(shown)


def test_a_call_that_a_server_ran_is_one_item_with_its_result() -> None:
    """As it was streamed to the client that sends it back."""
    good = CallItem(id="mcp_1", call_id="mcp_1", name="look", arguments="{}", side="server")
    bad = CallItem(id="mcp_2", call_id="mcp_2", name="look", arguments="{}", side="server")
    results = [
        ResultItem(id="r1", call_id="mcp_1", output=(TextPart(text="17"),)),
        ResultItem(id="r2", call_id="mcp_2", output=(TextPart(text="no"),), is_error=True),
    ]
    fields = {"type": "mcp_call", "server_label": "treadle", "name": "look", "arguments": "{}"}
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no"}]}
    assert _shown(good, bad, *results) == [
        {**fields, "id": "mcp_1", "output": "17", "error": None, "status": "completed"},
        {**fields, "id": "mcp_2", "output": None, "error": error, "status": "failed"},
    ]


def test_what_the_api_alone_knows_is_listed_as_it_came() -> None:
    """Of another protocol's own there is no shape here."""
    raw = msgspec.Raw(b'{"type":"new_thing","x":1}')
    part = MessageItem(id="i", role="user", content=(OpaquePart(protocol="responses", raw=raw),))
    assert _shown(
        OpaqueItem(id="o", protocol="responses", raw=raw), OpaqueItem(id="p", protocol="chat", raw=raw), part
    ) == [{"type": "new_thing", "x": 1, "id": "o"}, _message("user", {"type": "new_thing", "x": 1})]
    assert _shown(ReferenceItem(id="msg_1")) == [{"type": "item_reference", "id": "msg_1"}]
