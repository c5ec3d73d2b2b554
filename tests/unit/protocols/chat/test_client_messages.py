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
    ReasoningItem,
    RefusalPart,
    ResultItem,
    TextPart,
    text_message,
)
from treadle.core.json import write_json
from treadle.protocols.chat.client_messages import MessageReader
from treadle.protocols.translation_notes import Notes
from unit.protocols.work import steps_run

HI = (TextPart(text="hi"),)


def _read(*messages: Any) -> tuple[tuple[AnyItem, ...], tuple[str, ...]]:
    notes = Notes()
    items = MessageReader(notes).read(msgspec.Raw(write_json(messages)), "messages")
    return items, tuple(note.code for note in notes.all())


def _call(id: str | None = "call_a", name: str = "f", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_plain_messages_keep_role_and_name(role: Any) -> None:
    """System and developer messages may stand anywhere."""
    assert _read({"role": role, "content": "hi", "name": "n"}) == ((MessageItem(role=role, content=HI, name="n"),), ())


def test_an_assistant_message_becomes_reasoning_text_and_calls_in_that_order() -> None:
    """One message, several items."""
    message = {
        "role": "assistant",
        "content": "hi",
        "reasoning_content": "hm",
        "tool_calls": [_call(), {"id": "call_b", "type": "custom", "custom": {"name": "p", "input": "x"}}],
        "refusal": None,
        "annotations": [],
        "audio": None,
    }
    assert _read(message) == (
        (
            ReasoningItem(text=("hm",)),
            text_message("assistant", "hi"),
            CallItem(call_id="call_a", name="f", arguments="{}"),
            CallItem(call_id="call_b", name="p", arguments="x", kind="custom"),
        ),
        (),
    )


@pytest.mark.parametrize("content", [None, "", []])
def test_an_empty_content_beside_calls_is_no_message(content: Any) -> None:
    """Calls alone are calls alone."""
    items, _ = _read({"role": "assistant", "content": content, "tool_calls": [_call()]})
    assert items == (CallItem(call_id="call_a", name="f", arguments="{}"),)


def test_an_empty_assistant_message_is_kept() -> None:
    """It is odd, and no reason to refuse a conversation."""
    assert _read({"role": "assistant"})[0] == (MessageItem(role="assistant"),)


def test_a_refusal_is_a_part() -> None:
    """The refusal of an earlier answer is kept."""
    items, _ = _read({"role": "assistant", "content": None, "refusal": "no"})
    assert items == (MessageItem(role="assistant", content=(RefusalPart(text="no"),)),)


@pytest.mark.parametrize(
    ("arguments", "text"), [(None, "{}"), ("", "{}"), ({"a": 1}, '{"a":1}'), ('{"a":', '{"a":'), ("{}", "{}")]
)
def test_arguments_of_any_spelling_become_text(arguments: Any, text: str) -> None:
    """Objects are written out, nothing is `{}`, broken JSON stays as it is."""
    items, _ = _read({"role": "assistant", "tool_calls": [_call(arguments=arguments)]})
    assert items == (CallItem(call_id="call_a", name="f", arguments=text),)


def test_results_take_the_name_and_kind_of_their_call() -> None:
    """In any order, with any content."""
    items, codes = _read(
        {"role": "assistant", "tool_calls": [_call("a", "f"), {"id": "b", "type": "custom", "custom": {"name": "p"}}]},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "hi"}]},
        {"role": "tool", "tool_call_id": "a", "content": "hi"},
        {"role": "tool", "tool_call_id": "zzz", "name": "g", "content": None},
    )
    assert items[2:] == (
        ResultItem(call_id="b", name="p", output=HI, kind="custom"),
        ResultItem(call_id="a", name="f", output=HI),
        ResultItem(call_id="zzz", name="g"),
    )
    assert codes == ()


def test_missing_ids_are_paired_by_order() -> None:
    """Clients of servers that send no ids have none to send back."""
    items, _ = _read(
        {"role": "assistant", "tool_calls": [_call("", "f"), _call(None, "g")]},
        {"role": "tool", "tool_call_id": "", "content": "hi", "name": "g"},
        {"role": "tool", "content": "hi"},
    )
    assert items == (
        CallItem(call_id="call_0_0", name="f", arguments="{}"),
        CallItem(call_id="call_0_1", name="g", arguments="{}"),
        ResultItem(call_id="call_0_1", name="g", output=HI),
        ResultItem(call_id="call_0_0", name="f", output=HI),
    )


def test_results_without_id_or_name_close_the_oldest_call_first() -> None:
    """Each result closes one call, so the next one goes to the next call."""
    items, _ = _read(
        {"role": "assistant", "tool_calls": [_call("", "f"), _call("", "g")]},
        {"role": "tool", "content": "hi"},
        {"role": "tool", "content": "hi"},
    )
    assert items[2:] == (
        ResultItem(call_id="call_0_0", name="f", output=HI),
        ResultItem(call_id="call_0_1", name="g", output=HI),
    )


def test_legacy_calls_and_results_are_paired_by_name() -> None:
    """`function_call` and the role `function` have no ids at all."""
    items, _ = _read(
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "hi"},
        {"role": "function", "name": "g", "content": "hi"},
    )
    assert items == (
        CallItem(call_id="call_0_legacy", name="f", arguments="{}"),
        ResultItem(call_id="call_0_legacy", name="f", output=HI),
        ResultItem(call_id="call_2_unmatched", name="g", output=HI),
    )


def test_unknown_roles_are_kept_as_they_are() -> None:
    """Never refused, and said."""
    message = {"role": "critic", "content": {"odd": 1}}
    assert _read(message) == ((OpaqueItem(protocol="chat", raw=msgspec.Raw(write_json(message))),), ("unknown_role",))


def _extra(**fields: Any) -> Extra:
    return Extra(protocol="chat", fields={name: msgspec.Raw(write_json(value)) for name, value in fields.items()})


def test_unknown_fields_are_kept_with_what_they_belong_to() -> None:
    """Of a message, of a call and of a result; nothing is not kept."""
    items, codes = _read(
        {"role": "user", "content": "hi", "weight": 1, "nothing": None, "empty": []},
        {
            "role": "assistant",
            "content": None,
            "audio": {"id": "a"},
            "tool_calls": [{**_call(), "index": 0, "mood": 1}],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "hi", "cache_control": {"a": 1}},
    )
    assert items == (
        MessageItem(role="user", content=HI, extra=_extra(weight=1)),
        MessageItem(role="assistant", extra=_extra(audio={"id": "a"})),
        CallItem(call_id="call_a", name="f", arguments="{}", extra=_extra(mood=1)),
        ResultItem(call_id="call_a", name="f", output=HI, extra=_extra(cache_control={"a": 1})),
    )
    assert codes == ()


def test_opaque_state_is_told_from_a_clients_own_fields() -> None:
    """What Treadle showed is state of its maker again; what it did not show travels on as it is."""
    maker = {"provider": "p", "model": "m"}
    call = {**_call(), "extra_content": {"sig": "s", "treadle": maker}}
    items, _ = _read(
        {
            "role": "assistant",
            "content": "hi",
            "reasoning_details": [{"data": "d", "treadle": maker}],
            "tool_calls": [call, {**_call("call_b"), "extra_content": {"sig": "own"}}],
        }
    )
    details = Blob(provider="p", kind="reasoning_details", data='[{"data":"d"}]', model="m")
    signature = Blob(provider="p", kind="extra_content", data='{"sig":"s"}', model="m")
    assert items == (
        ReasoningItem(blobs=(details,)),
        text_message("assistant", "hi"),
        CallItem(call_id="call_a", name="f", arguments="{}", blobs=(signature,)),
        CallItem(call_id="call_b", name="f", arguments="{}", extra=_extra(extra_content={"sig": "own"})),
    )


def test_images_of_an_earlier_answer_are_parts() -> None:
    """They have a field of their own, and places that are not kept."""
    image = {"type": "image_url", "index": 0, "image_url": {"url": "data:x"}}
    items, _ = _read({"role": "assistant", "content": "hi", "images": [image]})
    assert items == (MessageItem(role="assistant", content=(*HI, ImagePart(url="data:x"))),)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (5, "messages[0]"),
        ({}, "messages[0].role"),
        ({"role": 5}, "messages[0].role"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": "x", "name": 5}, "messages[0].name"),
        ({"role": "assistant", "tool_calls": {}}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "messages[0].tool_calls[0].function.name"),
        ({"role": "assistant", "tool_calls": [_call(arguments=5)]}, "messages[0].tool_calls[0].function.arguments"),
        ({"role": "assistant", "tool_calls": [_call(id=5)]}, "messages[0].tool_calls[0].id"),  # type: ignore[arg-type]
        ({"role": "assistant", "function_call": {}}, "messages[0].function_call.name"),
        ({"role": "assistant", "reasoning_content": 5}, "messages[0].reasoning_content"),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
        ({"role": "tool", "tool_call_id": 5}, "messages[0].tool_call_id"),
        ({"role": "function", "content": "x"}, "messages[0].name"),
    ],
)
def test_wrong_messages_are_refused_by_their_path(message: Any, param: str) -> None:
    """The error names the message and the field."""
    with pytest.raises(ProtocolError) as caught:
        _read(message)
    assert caught.value.info.param == param


def test_many_results_cost_in_proportion() -> None:
    """Thousands of results, even of unknown names, do not each look through all open calls."""

    def work(count: int) -> int:
        call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
        results = [{"role": "function", "name": "z", "content": ""}] * count
        calls = [{"id": f"c{number}", **call} for number in range(count)]
        messages = [{"role": "assistant", "tool_calls": calls}, *results]
        raw = msgspec.Raw(write_json(messages))
        return steps_run(lambda: MessageReader(Notes()).read(raw, "messages"))

    assert work(400) < 2.1 * work(200)


@pytest.mark.parametrize("fields", [{}, {"tool_call_id": None}, {"tool_call_id": ""}, {"name": "f"}])
def test_a_result_without_the_id_of_a_call_that_has_one_is_refused(fields: dict[str, Any]) -> None:
    """Which call was meant would be a guess; the refusal says what is wanted."""
    with pytest.raises(ProtocolError) as refused:
        _read({"role": "assistant", "tool_calls": [_call("a", "f")]}, {"role": "tool", "content": "hi", **fields})
    assert refused.value.info.param == "messages[1].tool_call_id"
    assert "such as 'a'" in refused.value.message
