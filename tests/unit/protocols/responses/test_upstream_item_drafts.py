import json
from typing import Any

import msgspec
import pytest

from treadle.core.events import ModelEvent, ReasoningDelta, RefusalDelta, TextDelta
from treadle.core.items import (
    Blob,
    CallItem,
    Extra,
    MessageItem,
    OpaquePart,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from treadle.protocols.decoding.answer_meter import AnswerMeter
from treadle.protocols.decoding.item_drafts import BlobFactory
from treadle.protocols.responses.upstream_content_parts import TextPiece
from treadle.protocols.responses.upstream_event import ITEM, ItemIn
from treadle.protocols.responses.upstream_item_drafts import (
    ResponsesCallDraft,
    ResponsesMessageDraft,
    ResponsesReasoningDraft,
    kind_of,
)


def item(**fields: Any) -> ItemIn:
    """Return an item as it comes."""
    return ITEM.decode(json.dumps(fields))


def raw(value: Any) -> msgspec.Raw:
    """Return a value as it stands on the wire."""
    return msgspec.Raw(json.dumps(value).encode())


class Sent(list[ModelEvent]):
    """What drafts have sent."""


def a_call(kind: Any = "function") -> ResponsesCallDraft:
    """Return a call."""
    return ResponsesCallDraft("fc_1", AnswerMeter(10_000), kind)


def test_a_message_holds_texts_refusals_and_parts_of_unknown_kinds() -> None:
    """Annotations and logprobs stay with their text, unknown parts behind the known ones."""
    sent = Sent()
    draft = ResponsesMessageDraft("msg_1", sent.append, AnswerMeter(10_000))
    draft.index = 3
    draft.add_names(item(phase="commentary"))
    draft.row.feed(0, TextPiece(kind="text", text="a", logprobs=[raw({"token": "a"})]))
    parts = [
        {"type": "output_text", "text": "ab", "annotations": [{"type": "url_citation"}]},
        {"type": "output_odd", "x": "é"},
        {"type": "refusal", "refusal": "no"},
    ]
    draft.settle(item(content=parts))
    draft.close()
    assert sent == [
        TextDelta(index=3, text="a", logprobs=msgspec.Raw(b'[{"token": "a"}]')),
        TextDelta(index=3, text="b"),
        RefusalDelta(index=3, text="no", part=1),
    ]
    assert draft.item() == MessageItem(
        id="msg_1",
        role="assistant",
        phase="commentary",
        content=(
            TextPart(
                text="ab",
                annotations=msgspec.Raw(b'[{"type": "url_citation"}]'),
                logprobs=msgspec.Raw(b'[{"token": "a"}]'),
            ),
            RefusalPart(text="no"),
            OpaquePart(protocol="responses", raw=raw({"type": "output_odd", "x": "é"})),
        ),
    )


def test_reasoning_keeps_its_seal_and_the_id_it_is_bound_to() -> None:
    """Both belong to the provider and model that made them."""
    sent = Sent()
    draft = ResponsesReasoningDraft("rs_1", sent.append, AnswerMeter(10_000), BlobFactory(provider="up", model="m"))
    draft.index = 0
    draft.add_names(item(id="rs_up"))
    draft.settle(
        item(
            summary=[{"type": "summary_text", "text": "s"}],
            content=[{"type": "reasoning_text", "text": "t"}],
            encrypted_content="zz",
        )
    )
    draft.close()
    assert draft.item().blobs == ()
    draft.is_closed = True
    assert sent == [
        ReasoningDelta(index=0, text="s", is_summary=True),
        ReasoningDelta(index=0, text="t"),
    ]
    assert draft.item() == ReasoningItem(
        id="rs_1",
        summary=("s",),
        text=("t",),
        blobs=(
            Blob(provider="up", kind="encrypted_content", data="zz", model="m"),
            Blob(provider="up", kind="item_id", data="rs_up", model="m"),
        ),
    )


def test_a_call_is_ready_once_its_name_and_id_are_known() -> None:
    """Fields that only this protocol has stand in it once it is complete."""
    call = a_call()
    assert not call.is_ready
    call.add_names(item(name="f", call_id="c1", namespace="ns"))
    assert call.is_ready
    begun = CallItem(id="fc_1", call_id="c1", name="ns__f", namespace="ns", upstream_id="c1")
    call.call_id = "c1"
    call.settle(item(arguments='{"a":1}', caller={"type": "program"}, **{"async": True}))
    assert call.item() == begun
    call.arguments.feed('{"a":1}')
    call.final = call.arguments.finish()
    extra = Extra(protocol="responses", fields={"caller": raw({"type": "program"}), "async": raw(True)})
    assert call.item() == msgspec.structs.replace(begun, arguments='{"a":1}', extra=extra)


def test_whole_arguments_add_what_was_not_streamed() -> None:
    """A whole that is another one disagrees with what was shown, and replaces what was not."""
    call = a_call()
    assert call.feed('{"a"', "official") == '{"a"'
    assert call.complete('{"a":1}') == ":1}"
    assert not call.disagrees
    assert call.complete('{"a":2}') == ""
    assert call.disagrees
    hidden, shown = a_call(), a_call()
    shown.index = 0
    for draft in (hidden, shown):
        draft.feed('{"b"', "official")
    assert (hidden.complete('{"a":1}'), hidden.disagrees) == ('{"a":1}', False)
    assert (shown.complete('{"a":1}'), shown.disagrees) == ("", True)


def test_the_first_voice_is_heard_and_the_second_ignored() -> None:
    """S2's events repeat the official ones, whichever come first."""
    for first, second in (("official", "extended"), ("extended", "official")):
        call = a_call()
        assert call.feed("{", first) == "{"  # type: ignore[arg-type]
        assert call.feed("{", second) == ""  # type: ignore[arg-type]
        assert call.complete('{"a":1}') == '"a":1}'


@pytest.mark.parametrize(
    ("kind", "said", "is_whole"),
    [
        ("function", "", True),
        ("function", "{}", True),
        ("function", '{"a":', False),
        ("function", "[1]", False),
        ("custom", '{"a":', True),
    ],
)
def test_whole_arguments_are_an_object_or_none_at_all(kind: str, said: str, is_whole: bool) -> None:
    """Free text is whole as it is."""
    call = a_call(kind)
    call.arguments.feed(said)
    assert call.is_whole is is_whole


def test_drafts_know_what_they_can_be_the_beginning_of() -> None:
    """By name and text; nothing said yet fits everything."""
    call = a_call()
    assert call.fits(item(name="f", arguments="{}"))
    call.add_names(item(name="f"))
    call.feed('{"a"', "official")
    assert call.fits(item(name="f", arguments='{"a":1}'))
    assert not call.fits(item(name="g", arguments='{"a":1}'))
    assert not call.fits(item(name="f", arguments='{"b":1}'))
    message = ResponsesMessageDraft("m", Sent().append, AnswerMeter(100))
    assert message.fits(item(content="x"))
    message.row.feed(0, TextPiece(kind="text", text="a"))
    assert message.fits(item(content=[{"type": "output_text", "text": "ab"}]))
    assert not message.fits(item(content="b"))
    assert not message.fits(item(content=[]))


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"type": "mcp_call", "arguments": "{}"}, "mcp_call"),
        ({"arguments": "{}"}, "function_call"),
        ({"input": "x"}, "custom_tool_call"),
        ({"content": []}, "message"),
        ({"id": "x"}, ""),
    ],
)
def test_an_item_without_a_type_is_told_by_what_it_has(fields: dict[str, Any], kind: str) -> None:
    """Minimal upstreams leave the type out."""
    assert kind_of(item(**fields)) == kind
