"""Items of the input, one by one: what each becomes, and what is refused by name."""

import json
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ProtocolError
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
    RefusalPart,
    ResultItem,
    TextPart,
    text_message,
)
from treadle.protocols.responses.client_input import Reading, read_input


def raw(value: Any) -> msgspec.Raw:
    """Return a value as JSON."""
    return msgspec.Raw(json.dumps(value).encode())


def reading(*items: Any) -> Reading:
    """Read these items."""
    return read_input([raw(item) for item in items])


def one(item: Any) -> AnyItem:
    """Read one item that stands for one."""
    items = reading(item).items
    assert len(items) == 1
    return items[0]


MISSING = "missing_required_parameter"
CALL = {"type": "function_call", "call_id": "call_1", "name": "f"}
RESULT = {"type": "function_call_output", "call_id": "call_1"}
SERVER = {"type": "mcp_call", "id": "mcp_1", "server_label": "python", "name": "g", "arguments": "{}"}


def test_assistant_message_keeps_parts_annotations_and_phase() -> None:
    """What the model said before comes back with everything that belongs to it."""
    note = [{"type": "url_citation", "url": "u"}]
    content = [
        {"type": "output_text", "text": "a", "annotations": note},
        {"type": "output_text", "text": "b", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": "no"},
    ]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary"}
    assert one({**item, "content": content}) == MessageItem(
        id="msg_1",
        role="assistant",
        content=(TextPart(text="a", annotations=raw(note)), TextPart(text="b"), RefusalPart(text="no")),
        phase="commentary",
    )


def test_images_and_files_by_url_data_and_id() -> None:
    """Every way to give an image or a file has its place; bare base64 becomes a data URL."""
    content = [
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "high"},
        {"type": "input_image", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "input_image", "file_id": "file_1", "image_url": None},
        {"type": "input_file", "file_url": "https://x/y.pdf"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,AA==", "filename": "y.pdf"},
        {"type": "input_file", "file_data": "AA=="},
        {"type": "input_file", "file_id": "file_2"},
    ]
    assert one({"role": "user", "content": content}) == MessageItem(
        role="user",
        content=(
            ImagePart(url="https://x/y.png", detail="high"),
            ImagePart(url="data:image/png;base64,AA=="),
            ImagePart(file_id="file_1"),
            FilePart(url="https://x/y.pdf"),
            FilePart(url="data:application/pdf;base64,AA==", filename="y.pdf"),
            FilePart(url="data:application/octet-stream;base64,AA=="),
            FilePart(file_id="file_2"),
        ),
    )


def test_unknown_part_is_kept_exactly() -> None:
    """A part of an unknown kind is carried, whatever its fields look like."""
    part = {"type": "input_audio", "text": {"not": "a string"}}
    assert one({"role": "user", "content": [part]}) == MessageItem(
        role="user", content=(OpaquePart(protocol="responses", raw=raw(part)),)
    )


def test_fields_that_treadle_does_not_know_are_kept_for_their_protocol() -> None:
    """On parts and items; null is nothing, and what an answer says of its state is not sent back."""
    known = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    part = {"type": "input_text", "text": "a", "brand_new": None, **known}
    read = reading(
        {"role": "user", "content": [part], "weight": 1},
        {**CALL, "caller": {"type": "direct"}, "status": "completed"},
        {"type": "function_call_output", "call_id": "call_1", "output": "r", "vendor": 2},
    )
    message, call, result = read.items
    assert isinstance(message, MessageItem)
    assert [(item.extra.fields if item.extra else None) for item in (*message.content, message, call, result)] == [
        {name: raw(value) for name, value in known.items()},
        {"weight": raw(1)},
        {"caller": raw({"type": "direct"})},
        {"vendor": raw(2)},
    ]


@pytest.mark.parametrize("more", [{}, {"name": "f"}, {"call_id": None}])
def test_a_result_without_the_id_of_its_call_is_refused(more: dict[str, Any]) -> None:
    """Every call of this API has one, so which was meant would be a guess."""
    with pytest.raises(ProtocolError) as refused:
        reading(CALL, {"type": "function_call_output", "output": "r", **more})
    assert refused.value.info.param == "input[1].call_id"


def test_a_reference_to_an_image_is_one_to_its_message() -> None:
    """Images are shown as items of their own and kept in their message, which is named once."""
    refs = [{"type": "item_reference", "id": name} for name in ("img_msg_1_0", "img_msg_1_1", "msg_2", "img_msg_2_0")]
    assert [item.id for item in reading(*refs).items] == ["msg_1", "msg_2"]


def test_unknown_role_is_kept_exactly() -> None:
    """A message of a role that Treadle does not know is not refused."""
    item = {"type": "message", "role": "critic", "content": "hm", "id": "msg_1"}
    read = reading(item)
    assert read.items == [OpaqueItem(id="msg_1", protocol="responses", raw=raw(item))]
    assert [note.code for note in read.notes] == ["unknown_role"]


@pytest.mark.parametrize("content", ["", [], None, [{"type": "output_text", "text": ""}]])
@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call"])
def test_empty_assistant_message_before_a_call_is_dropped(content: Any, kind: str) -> None:
    """The empty turn that some clients put before a call is only the call."""
    read = reading({"role": "assistant", "content": content}, {**CALL, "type": kind})
    assert [type(item) for item in read.items] == [CallItem]
    assert [note.code for note in read.notes] == ["input_call_attached"]


def test_other_messages_before_a_call_are_kept() -> None:
    """Text before a call, an empty user message, and an empty turn without a call stay."""
    read = reading({"role": "assistant", "content": "Let me see."}, CALL, {"role": "assistant", "content": ""})
    assert read.items == [
        text_message("assistant", "Let me see."),
        CallItem(call_id="call_1", name="f", arguments="{}"),
        MessageItem(role="assistant"),
    ]
    assert [type(item) for item in reading({"role": "user", "content": ""}, CALL).items] == [MessageItem, CallItem]


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        ({"arguments": '{"a": 1}'}, '{"a": 1}'),
        ({"arguments": {"a": 1}}, '{"a": 1}'),
        ({"arguments": ""}, "{}"),
        ({"arguments": None}, "{}"),
        ({}, "{}"),
        ({"arguments": '{"a":'}, '{"a":'),
    ],
)
def test_arguments_become_json_text(fields: dict[str, Any], arguments: str) -> None:
    """Objects, null and nothing are JSON text in the end; what is not JSON passes as it is."""
    assert one({**CALL, **fields}) == CallItem(call_id="call_1", name="f", arguments=arguments)


@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({"output": "text"}, (TextPart(text="text"),)),
        ({"output": ""}, ()),
        ({"output": None}, ()),
        ({}, ()),
        ({"output": {"a": 1}}, (TextPart(text='{"a": 1}'),)),
        ({"output": 3}, (TextPart(text="3"),)),
        (
            {"output": [{"type": "input_text", "text": "t"}, {"type": "input_image", "image_url": "https://x"}]},
            (TextPart(text="t"), ImagePart(url="https://x")),
        ),
    ],
)
def test_results_keep_what_the_tool_gave(fields: dict[str, Any], output: Any) -> None:
    """A result is text, parts with their images, or any JSON value as its text."""
    assert one({**RESULT, **fields}) == ResultItem(call_id="call_1", output=output)


def test_incomplete_result_is_an_error() -> None:
    """The protocol has no flag for failure; a result marked incomplete is read as one."""
    item = one({**RESULT, "output": "boom", "status": "incomplete", "name": "f", "namespace": "ns"})
    assert item == ResultItem(
        call_id="call_1", name="ns__f", output=(TextPart(text="boom"),), is_error=True, rc="failed"
    )


def test_reasoning_keeps_summary_text_and_sealed_content() -> None:
    """Everything of a reasoning item survives; what is sealed is bound to its provider."""
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "s"}],
        "content": [{"type": "reasoning_text", "text": "t"}],
        "encrypted_content": "sealed",
    }
    blobs = (Blob(provider="openai", kind="encrypted_content", data="sealed"),)
    assert one(item) == ReasoningItem(id="rs_1", summary=("s",), text=("t",), blobs=blobs)
    assert one({"type": "reasoning", "summary": [], "encrypted_content": None}) == ReasoningItem()


@pytest.mark.parametrize(
    ("fields", "text", "is_error", "rc"),
    [
        ({"output": "42", "status": "completed"}, "42", False, "ok"),
        ({"output": None, "status": "completed"}, "", False, "ok"),
        ({"error": "boom"}, "boom", True, "failed"),
        ({"error": {"type": "http_error", "code": 500, "message": "down"}}, "down", True, "failed"),
        (
            {"error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "bad"}]}},
            "bad",
            True,
            "failed",
        ),
        ({"error": {"code": 1}}, '{"code":1}', True, "failed"),
        ({"status": "in_progress"}, "", True, "interrupted"),
    ],
)
def test_server_call_is_a_call_and_its_result(fields: dict[str, Any], text: str, is_error: bool, rc: str) -> None:
    """An mcp_call that a client replays is the call, with its id kept, and what it gave."""
    output = (TextPart(text=text),) if text else ()
    assert reading({**SERVER, **fields}).items == [
        CallItem(id="mcp_1", call_id="mcp_1", name="g", arguments="{}", side="server"),
        ResultItem(call_id="mcp_1", name="g", output=output, is_error=is_error, rc=rc),
    ]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "x", "tools": []},
        {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "x", "name": "n", "arguments": "{}"},
        {"type": "mcp_approval_response", "id": "r_1", "approval_request_id": "mcpr_1", "approve": True},
        {"type": "tool_search_call", "id": "t_1", "arguments": {"deep": [1, None]}, "status": "completed"},
        {"type": "agent_message", "id": "a_1", "of": "tomorrow"},
    ],
)
def test_kinds_without_a_canonical_form_are_kept_exactly(item: dict[str, Any]) -> None:
    """Nothing of an unknown item is lost."""
    assert one(item) == OpaqueItem(id=item["id"], protocol="responses", raw=raw(item))


def test_calls_and_outputs_may_come_in_any_order() -> None:
    """The order of the input is kept; pairing is left to those who know the whole conversation."""
    second = {**CALL, "call_id": "call_2"}
    items = reading(CALL, second, {**RESULT, "call_id": "call_2"}, RESULT).items
    assert [(type(item), item.call_id) for item in items if isinstance(item, CallItem | ResultItem)] == [
        (CallItem, "call_1"),
        (CallItem, "call_2"),
        (ResultItem, "call_2"),
        (ResultItem, "call_1"),
    ]


@pytest.mark.parametrize(
    ("item", "param", "code"),
    [
        ({**CALL, "call_id": 3}, "input[1].call_id", "invalid_type"),
        ({"type": "function_call", "name": "f"}, "input[1].call_id", MISSING),
        ({"type": "function_call", "call_id": "c"}, "input[1].name", MISSING),
        ({"type": "function_call_output", "output": "x"}, "input[1].call_id", MISSING),
        ({**RESULT, "output": [{"type": "input_text"}]}, "input[1].output[0].text", MISSING),
        ({**RESULT, "output": [3]}, "input[1].output[0]", "invalid_type"),
        ({"role": "user"}, "input[1].content", MISSING),
        ({"role": "user", "content": 3}, "input[1].content", "invalid_type"),
        ({"role": 3, "content": "x"}, "input[1].role", "invalid_type"),
        ({"type": "message", "content": "x"}, "input[1].role", MISSING),
        ({"role": "user", "content": [{"text": "x"}]}, "input[1].content[0].type", MISSING),
        ({"role": "user", "content": [{"type": "input_image"}]}, "input[1].content[0].image_url", MISSING),
        ({"role": "user", "content": [{"type": "input_file"}]}, "input[1].content[0].file_data", MISSING),
        ({"role": "assistant", "content": [{"type": "refusal"}]}, "input[1].content[0].refusal", MISSING),
        ({"type": "reasoning", "summary": [{"text": 3}]}, "input[1].summary[0].text", "invalid_type"),
        ({"type": "item_reference"}, "input[1].id", MISSING),
        ({"type": "mcp_call", "name": "g"}, "input[1].id", MISSING),
        ({"type": "additional_tools"}, "input[1].tools", MISSING),
        ({"type": 3}, "input[1].type", "invalid_type"),
    ],
)
def test_bad_items_name_their_field(item: Any, param: str, code: str) -> None:
    """The error gives the exact path, counted as the client wrote it."""
    with pytest.raises(ProtocolError) as caught:
        reading({"role": "user", "content": "fine"}, item)
    assert (caught.value.info.param, caught.value.info.code) == (param, code)


@pytest.mark.parametrize("name", ["role", "content", "phase", "output", "summary", "encrypted_content"])
def test_a_field_that_belongs_to_another_kind_of_item_is_carried_unread(name: str) -> None:
    """A call that has one is a call all the same, and loses nothing."""
    call = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
    plain, odd = one(call), one({**call, name: "x"})
    assert plain == CallItem(call_id="call_1", name="f", arguments="{}")
    assert odd.extra is not None
    assert {field: bytes(value) for field, value in odd.extra.fields.items()} == {name: b'"x"'}
    assert msgspec.structs.replace(odd, extra=None) == plain
