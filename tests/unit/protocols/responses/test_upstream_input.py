import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    Extra,
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
    text_result,
)
from treadle.core.plan import Plan
from treadle.protocols.responses import read_request, write_request
from treadle.protocols.responses.upstream_input import write_history
from treadle.protocols.translation_notes import Notes

SEALED = Blob(provider="up", kind="encrypted_content", data="zz", model="m")
NAMED = Blob(provider="up", kind="item_id", data="rs_up", model="m")
THOUGHT = ReasoningItem(id="rs_own", summary=("s",), blobs=(SEALED, NAMED))
THOUGHT_OUT = {
    "type": "reasoning",
    "id": "rs_up",
    "summary": [{"type": "summary_text", "text": "s"}],
    "encrypted_content": "zz",
}
CALL = CallItem(id="fc_1", call_id="call_1", name="f", arguments='{"a":1}', upstream_id="call_1")
CALL_OUT = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a":1}'}
RESULT_OUT = {"type": "function_call_output", "call_id": "call_1", "output": "1"}


def raw(value: Any) -> msgspec.Raw:
    """Return a value as it stands on the wire."""
    return msgspec.Raw(json.dumps(value).encode())


def write(*items: AnyItem, provider: str = "up", model: str = "m") -> tuple[list[Any], list[tuple[str, str, int]]]:
    """Return what is written of the items, and the notes."""
    notes = Notes()
    written = write_history(items, notes, provider=provider, model=model)
    return json.loads(msgspec.json.encode(written)), [(note.code, note.action, note.count) for note in notes.all()]


def one(item: AnyItem) -> Any:
    """Return the one item that is written."""
    (written,), _ = write(item)
    return written


def test_calls_and_results_are_sent_without_ids_of_items() -> None:
    """Pairs are known by call_id; the upstream stored nothing that an item's id could name."""
    assert write(CALL, text_result(CALL, "1")) == ([CALL_OUT, RESULT_OUT], [])


def test_a_call_without_arguments_has_an_empty_object() -> None:
    """The field is a JSON text, always."""
    written, _ = write(msgspec.structs.replace(CALL, arguments=""), text_result(CALL, "1"))
    assert written[0]["arguments"] == "{}"


def test_custom_calls_keep_their_free_text_and_namespaces_their_names() -> None:
    """The wire form is that of the client that replays them."""
    call = CallItem(call_id="c", name="ns__exec", arguments="a b", kind="custom", namespace="ns")
    result = ResultItem(call_id="c", output=(TextPart(text="x"), TextPart(text="y")), kind="custom")
    parts = [{"type": "input_text", "text": "x"}, {"type": "input_text", "text": "y"}]
    assert write(call, result) == (
        [
            {"type": "custom_tool_call", "call_id": "c", "name": "exec", "namespace": "ns", "input": "a b"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": parts},
        ],
        [],
    )


def test_a_failed_result_is_incomplete_and_keeps_its_text() -> None:
    """The protocol has no other word for it; for custom tools it has none at all, which is noted."""
    written, notes = write(CALL, text_result(CALL, "no", is_error=True))
    assert written[1] == {**RESULT_OUT, "output": "no", "status": "incomplete"}
    assert notes == []
    custom = msgspec.structs.replace(CALL, kind="custom")
    written, notes = write(custom, text_result(custom, "no", is_error=True))
    assert "status" not in written[1]
    assert notes == [("error_flag_dropped", "dropped", 1)]


def test_images_and_files_of_results_are_kept() -> None:
    """Each as the part that the API has for it."""
    output = (
        TextPart(text="see"),
        ImagePart(url="https://x/y.png", detail="low"),
        ImagePart(file_id="file_1"),
        FilePart(url="data:text/plain;base64,eA==", filename="x.txt"),
        FilePart(url="https://x/y.pdf"),
        FilePart(file_id="file_2"),
    )
    written, notes = write(CALL, ResultItem(call_id="call_1", output=output))
    assert written[1]["output"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
        {"type": "input_image", "file_id": "file_1", "detail": "auto"},
        {"type": "input_file", "filename": "x.txt", "file_data": "data:text/plain;base64,eA=="},
        {"type": "input_file", "file_url": "https://x/y.pdf"},
        {"type": "input_file", "file_id": "file_2"},
    ]
    assert notes == []


def test_what_the_model_said_keeps_refusals_annotations_and_phase() -> None:
    """One plain text is a string, which every server takes; more is a list of parts."""
    noted = raw([{"type": "url_citation"}])
    assert one(text_message("assistant", "hi")) == {"type": "message", "role": "assistant", "content": "hi"}
    parts = (
        TextPart(text="a", annotations=noted),
        RefusalPart(text="no"),
        OpaquePart(protocol="responses", raw=raw({})),
    )
    assert one(MessageItem(role="assistant", content=parts, phase="commentary")) == {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation"}]},
            {"type": "refusal", "refusal": "no"},
            {},
        ],
        "phase": "commentary",
    }


def test_images_of_an_answer_follow_in_a_user_message() -> None:
    """The API takes none from the assistant; they are not lost."""
    written, notes = write(MessageItem(role="assistant", content=(TextPart(text="a"), ImagePart(url="data:x"))))
    assert [item["role"] for item in written] == ["assistant", "user"]
    assert written[1]["content"][1] == {"type": "input_image", "image_url": "data:x", "detail": "auto"}
    assert notes == [("answer_attachment", "emulated", 1)]


def test_empty_messages() -> None:
    """The model having said nothing is no message; anybody else's stays."""
    assert write(MessageItem(role="assistant"), MessageItem(role="user"))[0] == [
        {"type": "message", "role": "user", "content": ""}
    ]


def test_own_reasoning_goes_back_with_the_id_it_is_bound_to() -> None:
    """Sealed reasoning is checked against the provider's own id, never against Treadle's."""
    assert write(THOUGHT, CALL, text_result(CALL, "1")) == ([THOUGHT_OUT, CALL_OUT, RESULT_OUT], [])
    without_id = msgspec.structs.replace(THOUGHT, blobs=(SEALED,))
    written, _ = write(without_id, CALL, text_result(CALL, "1"))
    assert "id" not in written[0]


def test_own_reasoning_that_is_readable_needs_no_seal() -> None:
    """Open models give their reasoning as text and want it back."""
    thought = ReasoningItem(text=("hm",), blobs=(NAMED,))
    written, notes = write(thought, text_message("assistant", "hi"))
    assert written[0] == {
        "type": "reasoning",
        "id": "rs_up",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    assert notes == []


@pytest.mark.parametrize(
    "blobs",
    [
        (),
        (NAMED,),
        (msgspec.structs.replace(SEALED, provider="other"), NAMED),
        (msgspec.structs.replace(SEALED, model="other"), NAMED),
        (Blob(provider="anthropic", kind="signature", data="x"),),
    ],
)
def test_reasoning_of_others_is_dropped_and_the_call_stays(blobs: tuple[Blob, ...]) -> None:
    """Sent without an id, a call needs no reasoning before it."""
    thought = ReasoningItem(summary=("s",), blobs=blobs)
    written, notes = write(thought, CALL, text_result(CALL, "1"))
    assert written == [CALL_OUT, RESULT_OUT]
    assert notes == [("reasoning_dropped", "dropped", 1)]


def test_blobs_go_nowhere_without_a_provider() -> None:
    """A request that does not say whom it goes to carries nobody's state."""
    blob = Blob(provider="", kind="encrypted_content", data="zz")
    written, _ = write(ReasoningItem(blobs=(blob,)), text_message("assistant", "x"), provider="")
    assert len(written) == 1


@pytest.mark.parametrize("after", [[], [text_message("user", "u")], [MessageItem(role="assistant")]])
def test_reasoning_that_nothing_follows_is_dropped(after: list[AnyItem]) -> None:
    """The API refuses reasoning without the item it led to."""
    written, notes = write(THOUGHT, *after)
    assert [item["type"] for item in written if item["type"] == "reasoning"] == []
    assert notes == [("reasoning_dropped", "dropped", 1)]


def test_several_thoughts_before_one_call_stay_together() -> None:
    """A chain of reasoning that ends in a call is whole."""
    written, notes = write(THOUGHT, THOUGHT, CALL, text_result(CALL, "1"))
    assert written == [THOUGHT_OUT, THOUGHT_OUT, CALL_OUT, RESULT_OUT]
    assert notes == []


def test_unknown_items_and_parts_go_back_only_to_their_protocol() -> None:
    """Responses' own are written exactly, the others are noted."""
    own = OpaqueItem(protocol="responses", raw=msgspec.Raw(b'{"type":"web_search_call", "id":"ws"}'))
    other = OpaqueItem(protocol="gemini", raw=raw({}))
    part = OpaquePart(protocol="chat", raw=raw({}))
    notes = Notes()
    items: list[AnyItem] = [THOUGHT, own, other, MessageItem(role="user", content=(TextPart(text="a"), part))]
    written = write_history(items, notes, provider="up", model="m")
    assert bytes(written[1]) == bytes(own.raw)
    kinds = [item["type"] for item in json.loads(msgspec.json.encode(written))]
    assert kinds == ["reasoning", "web_search_call", "message"]
    assert [note.code for note in notes.all()] == ["item_dropped", "part_dropped"]


def test_fields_that_treadle_does_not_know_go_back_to_their_protocol() -> None:
    """On calls, messages and parts."""
    extra = Extra(protocol="responses", fields={"caller": raw({"type": "program", "caller_id": "p"})})
    written, _ = write(msgspec.structs.replace(CALL, extra=extra), text_result(CALL, "1"))
    assert written[0] == {**CALL_OUT, "caller": {"type": "program", "caller_id": "p"}}
    mark = Extra(protocol="responses", fields={"prompt_cache_breakpoint": raw({})})
    assert one(MessageItem(role="user", content=(TextPart(text="a", extra=mark),)))["content"] == [
        {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {}}
    ]


def test_names_state_and_references_that_cannot_be_written_are_noted() -> None:
    """Nothing is dropped silently."""
    blob = Blob(provider="p", kind="k", data="d")
    items = (
        MessageItem(role="user", content=(TextPart(text="a"),), name="ann"),
        msgspec.structs.replace(CALL, blobs=(blob,)),
        text_result(CALL, "1"),
        ReferenceItem(id="msg_1"),
    )
    assert write(*items)[1] == [
        ("name_dropped", "dropped", 1),
        ("blob_dropped", "dropped", 1),
        ("reference_dropped", "dropped", 1),
    ]


# -- canonical → wire → canonical -----------------------------------------------------------------------------------

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
DATA = st.just("data:text/plain;base64,eA==")
INPUT_PARTS = (
    st.builds(TextPart, text=WORDS)
    | st.builds(ImagePart, url=st.just("https://x/i.png"), detail=st.sampled_from(["low", "high", "auto"]))
    | st.builds(FilePart, url=DATA, filename=WORDS)
    | st.builds(FilePart, file_id=WORDS)
    | st.just(OpaquePart(protocol="responses", raw=msgspec.Raw(b'{"type":"input_odd"}')))
)
SPOKEN_PARTS = st.builds(TextPart, text=WORDS) | st.builds(RefusalPart, text=WORDS)
ROLES = st.sampled_from(["system", "developer", "user"])
SAID = st.builds(MessageItem, role=ROLES, content=st.lists(INPUT_PARTS, min_size=1, max_size=3).map(tuple))
ANSWERED = st.builds(
    MessageItem,
    role=st.just("assistant"),
    content=st.lists(SPOKEN_PARTS, min_size=1, max_size=3).map(tuple),
    phase=st.none() | st.just("final_answer"),
)
OPENAI = Blob(provider="openai", kind="encrypted_content", data="zz")
THOUGHTS = st.builds(
    ReasoningItem, summary=st.lists(WORDS, max_size=2).map(tuple), text=st.lists(WORDS, max_size=2).map(tuple)
).map(lambda item: msgspec.structs.replace(item, blobs=(OPENAI,)))
OUTPUTS = st.lists(INPUT_PARTS, min_size=1, max_size=3).map(tuple)


@st.composite
def turns(draw: st.DrawFn) -> list[AnyItem]:
    """Return a turn of the model with the results of its calls."""
    items: list[AnyItem] = draw(st.lists(THOUGHTS, max_size=1))
    calls: list[CallItem] = []
    for _ in range(draw(st.integers(0, 3))):
        call_id = f"call_{draw(st.integers(0, 10**9))}"
        kind = draw(st.sampled_from(["function", "custom"]))
        arguments = draw(WORDS if kind == "custom" else st.just('{"a":1}'))
        calls.append(CallItem(call_id=call_id, name=draw(st.sampled_from("fg")), arguments=arguments, kind=kind))
    if not calls:
        return [*items, draw(ANSWERED)]
    results = [ResultItem(call_id=call.call_id, output=draw(OUTPUTS), kind=call.kind, is_error=False) for call in calls]
    failed = draw(st.booleans())
    if failed and calls[-1].kind == "function":
        results[-1] = msgspec.structs.replace(results[-1], is_error=True, rc="failed")
    return [*items, *calls, *results]


@settings(deadline=None)
@given(st.lists(SAID.map(lambda item: [item]) | turns(), min_size=1, max_size=5))
def test_what_is_written_reads_as_the_same_history(groups: list[list[AnyItem]]) -> None:
    """Our own client side reads the request back as the items it was written from, ids apart."""
    items = tuple(item for group in groups for item in group)
    calls = [item.call_id for item in items if isinstance(item, CallItem)]
    if len(calls) != len(set(calls)):
        return
    first = text_message("user", "start")
    written = write_request(Plan(items=(first, *items), model="m"), provider="openai")
    assert written.notes == ()
    request = read_request(written.body)
    assert request.items == (first, *items)
    assert (request.store, request.surface.stream, request.instructions) == (False, True, None)


def test_a_thought_that_only_a_result_follows_is_left_out() -> None:
    """It belongs to the turn that the result ends, and not to what the model says afterwards."""
    said = text_message("assistant", "done")
    written, notes = write(CALL, THOUGHT, text_result(CALL, "1"), said)
    assert written[:2] == [CALL_OUT, RESULT_OUT]
    assert [each["type"] for each in written[2:]] == ["message"]
    assert notes == [("reasoning_dropped", "dropped", 1)]
