import json
from typing import Any

import msgspec
import pytest

from stream.answers import answer, decode
from stream.responses_shapes import A, added, args, called, completed, done, ev, frames, message, said, text
from treadle.core.events import Failed, Finished, ItemAdded, ItemDone, ModelEvent, Noted, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import Blob, CallItem, OpaqueItem, ReasoningItem
from treadle.protocols.responses import Decoder


def read(body: bytes, **fields: Any) -> list[ModelEvent]:
    """Return the events of a body."""
    return decode(Decoder(CountingIds(), provider="up", model="m", **fields), body)


def items(events: list[ModelEvent]) -> list[Any]:
    """Return the items that are done."""
    return [event.item for event in events if isinstance(event, ItemDone)]


def test_events_come_as_soon_as_their_bytes() -> None:
    """Nothing waits for the end of an item that is the first open one."""
    decoder = Decoder(CountingIds())
    assert [type(event) for event in decoder.feed(frames(added(message(""))))] == [ItemAdded]
    assert decoder.feed(frames(text("Hi"))) == [TextDelta(index=0, text="Hi")]
    assert [type(event) for event in decoder.feed(frames(done(message("Hi"))))] == [ItemDone]
    assert [type(event) for event in decoder.feed(frames(completed()))] == [Finished]
    assert decoder.feed(frames(text("more"))) == []
    assert decoder.finish() == []


def test_sealed_reasoning_is_bound_to_its_provider_and_model() -> None:
    """The seal and the provider's own id are kept on the item; the item's id is Treadle's."""
    thought = {"type": "reasoning", "id": "rs_up", "summary": [], "encrypted_content": "zz"}
    assert items(read(frames(done(thought), completed(thought)))) == [
        ReasoningItem(
            id="rs_0001",
            blobs=(
                Blob(provider="up", kind="encrypted_content", data="zz", model="m"),
                Blob(provider="up", kind="item_id", data="rs_up", model="m"),
            ),
        )
    ]


def test_ids_of_a_call_are_kept_apart() -> None:
    """The item's id is Treadle's, the call's is the upstream's, and no earlier call has it."""
    call = items(read(frames(*called(A), completed())))[0]
    assert call == CallItem(
        id="fc_0001", call_id="call_a", name="get_weather", arguments='{"city":"Paris"}', upstream_id="call_a"
    )
    again = items(read(frames(*called(A), completed()), taken_call_ids=frozenset({"call_a"})))[0]
    assert (again.call_id, again.upstream_id) == ("call_0002", "call_a")


def test_an_item_that_the_upstream_ran_is_shown_as_it_grows() -> None:
    """Under its own id, by which a client may refer to it, at first as it began and then as it ended."""
    begun = {"type": "image_generation_call", "id": "ig_1", "status": "in_progress"}
    ended = {**begun, "status": "completed", "result": "aGk="}
    events = read(
        frames(added(begun), ev("image_generation_call.generating", item_id="ig_1"), done(ended), completed())
    )
    shown = [event.item for event in events if isinstance(event, ItemAdded | ItemDone)]
    assert shown == [
        OpaqueItem(id="ig_1", protocol="responses", raw=msgspec.Raw(json.dumps(item).encode()))
        for item in (begun, ended)
    ]


def test_logprobs_travel_with_their_text() -> None:
    """On the delta they came with, and on the whole part."""
    token = {"token": "Hi", "logprob": -0.5, "top_logprobs": []}
    delta = {**text("Hi"), "logprobs": [token]}
    events = read(frames(added(message("")), delta, done(message("Hi")), completed()))
    tokens = msgspec.Raw(json.dumps([token]).encode())
    assert [event.logprobs for event in events if isinstance(event, TextDelta)] == [tokens]
    assert items(events)[0].content[0].logprobs == tokens


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_output_tokens", "length"),
        ("content_filter", "filtered"),
        ("max_messages", "length"),
        ("steered", "length"),
        ("max_tool_calls", "length"),
    ],
)
def test_an_incomplete_response_says_why(reason: str, stop: str) -> None:
    """Every reason is a cut, even with whole calls: none of them may run. The upstream's word is kept."""
    response = {"status": "incomplete", "incomplete_details": {"reason": reason}}
    last = read(frames(*called(A), ev("incomplete", response=response)))[-1]
    assert last == Finished(stop=stop, raw_stop=reason)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_the_last_word_is_the_responses_own(status: str) -> None:
    """What ends the stream may be called otherwise than what it says."""
    last = read(frames(ev("done", response={"status": status, "error": {"code": "server_error", "message": "x"}})))[-1]
    assert isinstance(last, Finished if status == "completed" else Failed)


@pytest.mark.parametrize(
    ("body", "bounds"),
    [
        (frames(text("x" * 100), completed()), {"text_bytes_max": 50}),
        (frames(added(A), args("x" * 100), completed()), {"arguments_bytes_max": 50}),
        (json.dumps({"output": [message("x" * 100)], "status": "completed"}).encode(), {"text_bytes_max": 50}),
        (frames(*[text("x", index, f"m{index}") for index in range(1025)], completed()), {}),
    ],
)
def test_an_answer_over_a_bound_fails(body: bytes, bounds: dict[str, int]) -> None:
    """Text, arguments and items have an end."""
    assert answer(read(body, **bounds)).error == "upstream_too_large"


def test_a_long_answer_is_counted_once() -> None:
    """The text comes four times on the wire: streamed, whole, in its item and in the response."""
    long = "x" * 1000
    assert answer(read(frames(*said(long), completed(message(long))), text_bytes_max=1200)).stop == "done"


def test_strange_events_are_noted_once_each_and_not_without_end() -> None:
    """The name is shown, cut and printable."""
    strange = ['{"type":"\\ud83d.odd"}', *[ev(f"odd.{number}") for number in range(100)], ev("odd.1")]
    events = read(frames(*strange, *said("Hi"), completed()))
    assert answer(events).notes == ("unknown_event",) * 64
    assert [event.note.message for event in events if isinstance(event, Noted)][:2] == [
        "events of the type '?.odd'",
        "events of the type 'response.odd.0'",
    ]


def test_pieces_are_the_same_with_and_without_names_of_events() -> None:
    """Also where a leaf of one is not as it should be."""
    odd = {**text("c"), "item_id": 5}
    events = [added(message("", id="5")), text("a", id="5"), odd, done(message("ac", id="5"))]
    named = frames(*events, *called(A, 1), completed())
    bare = b"".join(line + b"\n" for line in named.split(b"\n") if not line.startswith(b"event:"))
    assert b"event:" in named
    assert read(named) == read(bare)
    assert "ac" in [part for kind, part, *_ in answer(read(named)).items if kind == "text"]


LLAMA = '{"a":1}'


@pytest.mark.parametrize("whole", [LLAMA, '{"a": 1}'])
def test_a_call_is_named_by_its_call_id_where_it_has_no_other(whole: str) -> None:
    """llama.cpp announces and ends calls without an id and a place; its pieces name them by the call_id."""
    call = {"type": "function_call", "call_id": "fc_x", "name": "f"}
    other = {"type": "function_call", "call_id": "fc_y", "name": "g"}
    body = frames(
        *(ev("output_item.added", item={**each, "arguments": "", "status": "in_progress"}) for each in (call, other)),
        ev("function_call_arguments.delta", item_id="fc_x", delta=LLAMA),
        ev("function_call_arguments.delta", item_id="fc_y", delta="{}"),
        ev("output_item.done", item={**call, "arguments": whole, "status": "completed"}),
        ev("output_item.done", item={**other, "arguments": "{}", "status": "completed"}),
        completed({**call, "arguments": whole}, {**other, "arguments": "{}"}),
    )
    events = read(body)
    assert isinstance(events[-1], Finished)
    assert [(item.name, item.call_id, item.arguments) for item in items(events)] == [
        ("f", "fc_x", LLAMA),
        ("g", "fc_y", "{}"),
    ]
    notes = [event.note.code for event in events if isinstance(event, Noted)]
    assert notes == ([] if whole == LLAMA else ["whole_differs"])


def _numbered(*numbers: tuple[str, int]) -> bytes:
    shown = {"text": text("x", 0, "m"), "keepalive": {"type": "keepalive"}, "ping": {"type": "ping"}}
    told = [json.dumps({**shown[kind], "sequence_number": number}) for kind, number in numbers]
    ending = {name: value for name, value in completed().items() if name != "sequence_number"}
    return "".join(f"data: {data}\n\n" for data in [*told, json.dumps(ending)]).encode()


@pytest.mark.parametrize(
    "kept",
    [
        (("text", 0), ("text", 1), ("text", 2), ("keepalive", 3), ("text", 3), ("text", 4)),
        (("text", 0), ("text", 1), ("text", 2), ("keepalive", 3), ("text", 4), ("text", 5)),
        (("text", 0), ("text", 1), ("ping", 2), ("ping", 3), ("text", 4)),
        (("text", 5), ("text", 6), ("text", 0), ("text", 1), ("text", 9)),
        (("text", 5), ("text", 6), ("text", 6), ("text", 8)),
    ],
)
def test_numbers_that_begin_again_or_count_keep_alives_break_nothing(kept: tuple[tuple[str, int], ...]) -> None:
    """Only a leap forward is a loss."""
    events = read(_numbered(*kept))
    assert isinstance(events[-1], Finished)
    told = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert told == "x" * sum(1 for kind, _ in kept if kind == "text")


@pytest.mark.parametrize("numbers", [(0, 1, 3), (0, 1, 2, 9)])
def test_a_leap_forward_of_the_numbers_is_a_loss(numbers: tuple[int, ...]) -> None:
    """The upstream was seen to count."""
    assert answer(read(_numbered(*(("text", n) for n in numbers)))).error == "upstream_broken_stream"


@pytest.mark.parametrize(
    ("streamed", "whole", "error"),
    [
        (LLAMA, '{ "a": 1 }', None),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', None),
        (LLAMA, '{"a":2}', "upstream_broken_stream"),
        (LLAMA, '{"a":true}', "upstream_broken_stream"),
        (LLAMA, '{"a":1.0}', "upstream_broken_stream"),
        ('{"a":1', '{"a": 1}', "upstream_broken_stream"),
    ],
)
def test_the_same_arguments_may_be_spelt_otherwise(streamed: str, whole: str, error: str | None) -> None:
    """What was streamed stands; other arguments break the answer."""
    call = {**A, "arguments": whole}
    events = read(frames(added({**A, "arguments": ""}), args(streamed), done(call), completed(call)))
    assert answer(events).error == error
    if error is None:
        assert items(events)[0].arguments == streamed
        assert [event.note.code for event in events if isinstance(event, Noted)] == ["whole_differs"]
    else:
        assert items(events) == []


@pytest.mark.parametrize(("streamed", "whole"), [("Hi ", "Hi"), ("\n\nHi", "Hi"), ("Hi", " Hi")])
def test_white_space_around_a_text_is_no_difference(streamed: str, whole: str) -> None:
    """What was streamed stands."""
    events = read(frames(added(message("")), text(streamed), done(message(whole)), completed(message(whole))))
    assert isinstance(events[-1], Finished)
    assert [item.content[0].text for item in items(events)] == [streamed]
    assert [event.note.code for event in events if isinstance(event, Noted)] == ["whole_differs"]


def test_an_error_is_known_by_the_name_of_its_event() -> None:
    """Its type is the error's own, as gateways send it."""
    last = read(b'event: error\ndata: {"type":"overloaded_error","message":"Overloaded"}\n\n')[-1]
    assert isinstance(last, Failed)
    assert last.error.message == "Overloaded"
