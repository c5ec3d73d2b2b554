import json
from typing import Any

import pytest

from stream.answers import decode
from stream.messages_shapes import args, begin, called, delta, end, said, start, stop, stream, use
from treadle.core.events import Failed, Finished, ItemAdded, ItemDone, Noted, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem, Extra, MessageItem, OpaqueItem
from treadle.core.json import read_json
from treadle.protocols.decoding.answer_meter import NOTES_MAX
from treadle.protocols.messages import Decoder
from treadle.protocols.messages.upstream_assembly import BLOCKS_MAX


def _events(*values: Any, **fields: Any) -> list[Any]:
    return decode(Decoder(CountingIds(), **fields), stream(begin(), *values))


def _error(events: list[Any]) -> str:
    assert isinstance(events[-1], Failed)
    return events[-1].error.code


def test_text_is_passed_on_as_it_comes() -> None:
    """Nothing waits for the end of a block."""
    decoder = Decoder(CountingIds())
    events = decoder.feed(stream(begin(), start(0)))
    events += decoder.feed(stream(delta(0, "text_delta", text="Hel")))
    assert events == [
        ItemAdded(index=0, item=MessageItem(id="msg_0001", role="assistant")),
        TextDelta(index=0, text="Hel"),
    ]


def test_a_call_keeps_the_id_of_its_upstream_unless_it_is_taken() -> None:
    """Ids are unique in the whole conversation."""
    events = _events(*called(0, "toolu_a", "f"), *end("tool_use"), taken_call_ids=frozenset({"toolu_a"}))
    (call,) = [event.item for event in events if isinstance(event, ItemDone)]
    assert call == CallItem(id="fc_0001", call_id="call_0002", name="f", arguments="{}", upstream_id="toolu_a")


def test_citations_stream_and_stay_with_their_part() -> None:
    """Those given with the block too."""
    cited = {"type": "char_location", "cited_text": "x"}
    values = (
        start(0, citations=[cited]),
        delta(0, "text_delta", text="a"),
        stop(0),
        start(1),
        delta(1, "text_delta", text="b"),
        delta(1, "citations_delta", citation=cited),
        stop(1),
        *end(),
    )
    events = _events(*values)
    told = [(event.part, event.text, event.extra) for event in events if isinstance(event, TextDelta)]
    assert [(part, text, extra is not None) for part, text, extra in told] == [
        (0, "", True),
        (0, "a", False),
        (1, "b", False),
        (1, "", True),
    ]
    (message,) = [event.item for event in events if isinstance(event, ItemDone)]
    assert [read_json(bytes(part.extra.fields["citations"])) for part in message.content] == [[cited], [cited]]
    assert all(isinstance(part.extra, Extra) for part in message.content)


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ((args(0, '{"q":'), args(0, "1}")), {"input": {"q": 1}}),
        ((args(0, "oops"),), {"input": {"INVALID_JSON": "oops"}}),
        ((delta(0, "compaction_delta", content="a"), delta(0, "compaction_delta", content="b")), {"content": "ab"}),
        ((delta(0, "odd_delta", content={"x": 1}),), {"content": {"x": 1}}),
        ((delta(0, "text_delta", text="t"),), {"text": "t"}),
    ],
)
def test_blocks_that_nobody_knows_grow_too(deltas: tuple[Any, ...], expected: dict[str, Any]) -> None:
    """So that they are whole when they are sent back."""
    events = _events(start(0, "tomorrow", id="t"), *deltas, stop(0), *end())
    (item,) = [event.item for event in events if isinstance(event, ItemDone)]
    assert isinstance(item, OpaqueItem)
    assert read_json(bytes(item.raw)) == {"type": "tomorrow", "id": "t", **expected}


def test_the_bounds_hold() -> None:
    """Text, arguments, blocks, lines: what is over ends in a failure that says so, at once."""
    many = [event for index in range(BLOCKS_MAX + 1) for event in (use(index, f"t{index}", "f"), stop(index))]
    for events in (
        _events(*said(0, "x" * 50, "y" * 60), *end(), text_bytes_max=100),
        _events(*called(0, "t", "f", '{"a":"' + "x" * 100), *end(), arguments_bytes_max=50),
        _events(use(0, "t", "f", {"a": "x" * 100}), stop(0), *end(), arguments_bytes_max=50),
        _events(start(0, "tomorrow", data="x" * 200), *end(), text_bytes_max=100),
        _events(start(0, "thinking"), delta(0, "signature_delta", signature="x" * 200), *end(), text_bytes_max=100),
        _events(*many, *end("tool_use")),
    ):
        assert _error(events) == "upstream_too_large"
    whole = {"type": "message", "content": [{"type": "text", "text": "x" * 200}], "stop_reason": "end_turn"}
    assert (
        _error(decode(Decoder(CountingIds(), text_bytes_max=100), json.dumps(whole).encode())) == "upstream_too_large"
    )


def test_a_line_and_a_document_without_end_are_refused() -> None:
    """Before they are held whole."""
    for head in (b"data: ", b"{"):
        decoder = Decoder(CountingIds())
        decoder.feed(head)
        events: list[Any] = []
        for _ in range(20):
            events += decoder.feed(b"x" * 1_048_576)
        assert _error(events) == "upstream_too_large"
        assert decoder.feed(b"more") == []
        assert decoder.finish() == []


def test_notes_have_a_bound() -> None:
    """A stream that is all wrong is not echoed line by line."""
    unknown = [{"type": "message_mood"}] * (NOTES_MAX + 5)
    events = _events(*unknown, *said(0, "Hi"), *end())
    notes = [event.note for event in events if isinstance(event, Noted)]
    assert len(notes) == NOTES_MAX + 1
    assert (notes[-1].code, notes[-1].count) == ("more_notes", 5)


def test_a_byte_order_mark_and_blanks_are_skipped() -> None:
    """Before a stream as before a document."""
    body = stream(begin(), *said(0, "Hi"), *end())
    for size in (1, 2, 1 << 20):
        events = decode(Decoder(CountingIds()), b"\n\xef\xbb\xbf \n" + body, size)
        assert isinstance(events[-1], Finished)


def test_fields_of_a_call_that_only_this_api_has_are_kept() -> None:
    """They go back to upstreams of the same protocol with the call."""
    block = start(0, "tool_use", id="toolu_a", name="f", input={}, caller={"type": "direct"}, toolset_name="t")
    events = _events(block, stop(0), *end("tool_use"))
    (call,) = [event.item for event in events if isinstance(event, ItemDone)]
    assert isinstance(call.extra, Extra)
    assert {name: read_json(bytes(raw)) for name, raw in call.extra.fields.items()} == {
        "caller": {"type": "direct"},
        "toolset_name": "t",
    }


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({}, []),
        ({"container": {"id": "c"}}, ["container_dropped"]),
        ({"stop_details": {"type": "refusal", "explanation": "no"}}, ["stop_details"]),
        ({"stop_details": {"category": "cyber"}}, ["stop_details"]),
        ({"stop_details": {"explanation": 5}}, []),
        ({"stop_details": 5}, []),
    ],
)
def test_what_is_said_about_the_end_is_told(fields: dict[str, Any], codes: list[str]) -> None:
    """Nothing of it is silently lost."""
    ending, last = end("refusal")
    ending["delta"] |= fields
    events = _events(*said(0, "x"), ending, last)
    assert [event.note.code for event in events if isinstance(event, Noted)] == codes


def test_an_error_in_the_shape_of_a_piece_is_an_error() -> None:
    """Whatever its type says."""
    broken = {**delta(0, "text_delta", text="x"), "error": {"type": "overloaded_error", "message": "busy"}}
    assert _error(_events(start(0), broken)) == "overloaded_error"


def _told(events: list[Any]) -> tuple[str, list[str]]:
    assert isinstance(events[-1], Finished)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return text, [event.note.code for event in events if isinstance(event, Noted)]


@pytest.mark.parametrize(
    ("values", "notes"),
    [
        ((*said(0, "Hi"), *said(2, "")), ["block_gap"]),
        ((*said(0, "Hi"), stop(7)), ["block_stop_stray"]),
        ((start(0), delta(0, "text_delta", text="H"), start(0), delta(0, "text_delta", text="i"), stop(0)), None),
        ((start(0), delta(0, "text_delta"), delta(0, "text_delta", text=None), *said(1, "Hi"), stop(0)), []),
        ((*said(0, "Hi"), start(1, "thinking"), delta(1, "thinking_delta"), start(1, "thinking"), stop(1)), None),
    ],
)
def test_what_healthy_servers_do_to_blocks_is_only_noted(values: tuple[Any, ...], notes: list[str] | None) -> None:
    """They leave indexes out, end what never began, repeat a beginning, and leave an empty text out."""
    assert _told(_events(*values, *end())) == ("Hi", ["block_repeated"] if notes is None else notes)


def test_a_piece_of_arguments_without_any_says_nothing() -> None:
    """Relays leave empty texts out."""
    events = _events(use(0, "t", "f"), delta(0, "input_json_delta"), args(0, '{"a":1}'), stop(0), *end("tool_use"))
    assert [event.item.arguments for event in events if isinstance(event, ItemDone)] == ['{"a":1}']


@pytest.mark.parametrize(
    "piece",
    [{"partial_json": {"a": 1}}, {"partial_json": 1}, {"partial_jsoo": ""}, {"text": "x"}],
)
def test_a_piece_of_arguments_that_says_something_else_is_damage(piece: dict[str, Any]) -> None:
    """Its text may stand in the field that is not known."""
    events = _events(use(0, "t", "f"), delta(0, "input_json_delta", **piece), args(0, "{}"), stop(0), *end("tool_use"))
    assert _error(events) == "upstream_broken_stream"


@pytest.mark.parametrize("junk", [b"data: [done]\n\n", b"data: DONE\n\n", b"event: done\n\n", b"0\n\n"])
def test_what_stands_behind_the_reason_takes_nothing_back(junk: bytes) -> None:
    """The message is whole; before its reason, or while a block is open, it would not be."""
    ending, last = end()
    body = [stream(begin()), stream(*said(0, "Hi")), stream(ending), stream(last)]
    assert _told(decode(Decoder(CountingIds()), b"".join([*body[:3], junk, body[3]]))) == ("Hi", ["bad_frame"])
    early = decode(Decoder(CountingIds()), b"".join([*body[:2], junk, *body[2:]]))
    assert _error(early) == "upstream_broken_stream"
    opened = stream(begin(), start(0), ending) + junk + stream(stop(0), last)
    assert _error(decode(Decoder(CountingIds()), opened)) == "upstream_broken_stream"


@pytest.mark.parametrize(
    "data", ['{"type":"overloaded_error","message":"Overloaded"}', '{"type":"x","error":{"type":"overloaded_error"}}']
)
def test_an_error_is_known_by_the_name_of_its_event(data: str) -> None:
    """Its type is the error's own, as gateways send it."""
    last = decode(Decoder(CountingIds()), f"event: error\ndata: {data}\n\n".encode())[-1]
    assert isinstance(last, Failed)
    assert last.error.code == "overloaded_error"
