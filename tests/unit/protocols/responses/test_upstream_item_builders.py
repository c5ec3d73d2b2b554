import json
from typing import Any

import msgspec
import pytest

from treadle.core.events import ArgumentsDelta, ModelEvent, ReasoningDelta, RefusalDelta, TextDelta
from treadle.core.items import (
    Blob,
    CallItem,
    Extra,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from treadle.protocols.decoding.assembly_base import AnswerMeter, Maker
from treadle.protocols.responses.upstream_content_parts import Spoken
from treadle.protocols.responses.upstream_event import ITEM, ItemIn
from treadle.protocols.responses.upstream_item_builders import (
    OpaqueDraft,
    ReasoningDraft,
    ResponsesCallDraft,
    ResponsesMessageDraft,
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

    def call(self, kind: Any = "function") -> ResponsesCallDraft:
        """Return a call."""
        return ResponsesCallDraft("fc_1", self.append, AnswerMeter(10_000), kind)


def test_a_message_holds_texts_refusals_and_parts_of_unknown_kinds() -> None:
    """Annotations and logprobs stay with their text, unknown parts behind the known ones."""
    sent = Sent()
    draft = ResponsesMessageDraft("msg_1", sent.append, AnswerMeter(10_000))
    draft.index = 3
    draft.learn(item(phase="commentary"))
    draft.row.feed(0, Spoken(kind="text", text="a", logprobs=[raw({"token": "a"})]))
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
    assert draft.begun() == MessageItem(id="msg_1", role="assistant", phase="commentary")


def test_reasoning_keeps_its_seal_and_the_id_it_is_bound_to() -> None:
    """Both belong to the provider and model that made them."""
    sent = Sent()
    draft = ReasoningDraft("rs_1", sent.append, AnswerMeter(10_000), Maker(provider="up", model="m"))
    draft.index = 0
    draft.learn(item(id="rs_up"))
    draft.settle(
        item(
            summary=[{"type": "summary_text", "text": "s"}],
            content=[{"type": "reasoning_text", "text": "t"}],
            encrypted_content="zz",
        )
    )
    draft.close()
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


def test_a_call_sends_nothing_before_it_is_shown() -> None:
    """What came early is sent in one piece, then the rest as it comes."""
    sent = Sent()
    call = sent.call()
    call.feed('{"a"', "official")
    assert sent == []
    assert not call.is_ready
    call.learn(item(name="f", call_id="c1", namespace="ns"))
    assert call.is_ready
    call.index, call.call_id = 2, "c1"
    assert call.release() == 4
    call.feed(":1}", "official")
    call.settle(item(arguments='{"a":1}', caller={"type": "program"}, **{"async": True}))
    call.close()
    assert sent == [ArgumentsDelta(index=2, text='{"a"'), ArgumentsDelta(index=2, text=":1}")]
    extra = Extra(protocol="responses", fields={"caller": raw({"type": "program"}), "async": raw(True)})
    assert call.item() == CallItem(
        id="fc_1",
        call_id="c1",
        name="ns__f",
        namespace="ns",
        arguments='{"a":1}',
        upstream_id="c1",
        extra=extra,
    )


def test_the_first_voice_is_heard_and_the_second_ignored() -> None:
    """S2's events repeat the official ones, whichever come first."""
    for first, second in (("official", "extended"), ("extended", "official")):
        call = Sent().call()
        call.feed("{", first)  # type: ignore[arg-type]
        call.feed("{", second)  # type: ignore[arg-type]
        call.complete('{"a":1}')
        call.close()
        assert call.final is not None
        assert call.final.text == '{"a":1}'


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
    call = Sent().call(kind)
    call.feed(said, "official")
    assert call.is_whole is is_whole


def test_drafts_know_what_they_can_be_the_beginning_of() -> None:
    """By name and text; nothing said yet fits everything."""
    call = Sent().call()
    assert call.fits(item(name="f", arguments="{}"))
    call.learn(item(name="f"))
    call.feed('{"a"', "official")
    assert call.fits(item(name="f", arguments='{"a":1}'))
    assert not call.fits(item(name="g", arguments='{"a":1}'))
    assert not call.fits(item(name="f", arguments='{"b":1}'))
    message = ResponsesMessageDraft("m", Sent().append, AnswerMeter(100))
    assert message.fits(item(content="x"))
    message.row.feed(0, Spoken(kind="text", text="a"))
    assert message.fits(item(content=[{"type": "output_text", "text": "ab"}]))
    assert not message.fits(item(content="b"))
    assert not message.fits(item(content=[]))


def test_an_unknown_item_is_kept_as_it_is() -> None:
    """Byte for byte."""
    draft = OpaqueDraft("ws", Sent().append, AnswerMeter(100), msgspec.Raw(b'{ "a" : "x" }'))
    assert draft.begun() == OpaqueItem(id="ws", protocol="responses", raw=msgspec.Raw(b'{ "a" : "x" }'))
    draft.replace(msgspec.Raw(b'{"b": 1}'))
    assert draft.item() == OpaqueItem(id="ws", protocol="responses", raw=msgspec.Raw(b'{"b": 1}'))


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
