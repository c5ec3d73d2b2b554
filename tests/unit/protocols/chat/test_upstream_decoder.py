import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.answers import Answer, answer, as_run, check_contract, decode, merged
from stream.shapes import ALL_SHAPES, BROKEN, DONE, call, calls, chunk, finish, frame, stream, text
from treadle.core.errors import ErrorInfo
from treadle.core.events import ArgumentsDelta, Failed, Finished, ItemDone, Noted, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import Blob, CallItem, ImagePart, MessageItem
from treadle.core.request import Request, Surface
from treadle.protocols.chat import Decoder, Encoder
from treadle.protocols.chat.upstream_chunk import CHECKED_CHARS
from treadle.protocols.sse import LINE_BYTES_MAX

TOO_LARGE = "upstream_too_large"


def _error(body: bytes, **options: Any) -> ErrorInfo:
    last = decode(Decoder(CountingIds(), **options), body)[-1]
    assert isinstance(last, Failed)
    return last.error


def test_text_is_emitted_with_the_feed_that_completes_it() -> None:
    """Nothing waits for the end of the stream."""
    decoder = Decoder(CountingIds())
    decoder.feed(frame(text("a")))
    assert decoder.feed(frame(text("b"))) == [TextDelta(index=0, text="b")]
    assert decoder.feed(frame(text("c"))[:-1]) == []


def test_the_terminal_comes_with_done_and_only_once() -> None:
    """What follows is not even read."""
    decoder = Decoder(CountingIds())
    events = decoder.feed(stream(text("a"), finish("stop"), DONE, text("b")))
    assert events[-1] == Finished(stop="done", raw_stop="stop")
    assert decoder.feed(stream(text("c"), {"error": "late"}, DONE)) == []
    assert decoder.finish() == []


def test_a_line_over_the_bound_behind_done_is_nobodys_business() -> None:
    """The answer has ended, in whatever pieces the bytes come."""
    body = stream(text("a"), finish("stop"), DONE) + b"x" * (LINE_BYTES_MAX + 1)
    events = Decoder(CountingIds()).feed(body)
    check_contract(events)
    assert events[-1] == Finished(stop="done", raw_stop="stop")


def test_a_finish_reason_without_done_ends_at_the_end_of_the_bytes() -> None:
    """Usage may still follow the finish reason."""
    decoder = Decoder(CountingIds())
    assert not any(isinstance(event, Finished) for event in decoder.feed(stream(text("a"), finish("stop"))))
    assert decoder.finish()[-1] == Finished(stop="done", raw_stop="stop")


@pytest.mark.parametrize(
    ("content", "items"),
    [
        ([], ()),
        ([{"type": "text", "text": ""}], ()),
        ([{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}, {"text": "c"}], (("text", "abc"),)),
        ([{"type": "refusal", "refusal": "no"}], (("refusal", "no"),)),
        ({"type": "text", "text": "a"}, (("text", "a"),)),
    ],
)
def test_content_in_parts_is_read_in_every_spelling(content: Any, items: tuple[Any, ...]) -> None:
    """Text and refusals, and nothing where there is nothing."""
    body = stream(chunk({"content": content}), finish("stop"), DONE)
    seen = answer(decode(Decoder(CountingIds()), body))
    assert (seen.items, seen.notes) == (items, ())


def test_an_open_item_of_a_failed_stream_is_never_done() -> None:
    """An item that was cut is not complete."""
    events = decode(Decoder(CountingIds()), stream(text("a")))
    assert not any(isinstance(event, ItemDone) for event in events)
    assert isinstance(events[-1], Failed)


@pytest.mark.parametrize(
    ("body", "info"),
    [
        (
            stream({"error": {"message": "slow", "code": "rate_limit_exceeded"}}),
            ErrorInfo(code="rate_limit_exceeded", message="slow", status=429, retryable=True),
        ),
        (
            b'{"object":"error","message":"too long","code":400}',
            ErrorInfo(code="upstream_status", message="too long", status=400),
        ),
        (
            b"<html>",
            ErrorInfo(
                code="upstream_broken_stream",
                message="The upstream answered with a page of HTML instead of a stream.",
                status=502,
                retryable=True,
            ),
        ),
        (
            b"",
            ErrorInfo(
                code="upstream_broken_stream",
                message="The upstream's stream ended before the answer did.",
                status=502,
                retryable=True,
            ),
        ),
    ],
)
def test_failures_say_what_the_upstream_said(body: bytes, info: ErrorInfo) -> None:
    """Code, message and status are kept."""
    assert _error(body) == info


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (stream(text("x" * 11), finish("stop"), DONE), {"text_bytes_max": 10}),
        (stream(chunk({"reasoning": "x" * 11}), finish("stop"), DONE), {"text_bytes_max": 10}),
        (stream(calls(call(0, "a", "f", '{"a":"')), calls(call(0, args="x" * 10))), {"arguments_bytes_max": 10}),
        (stream(calls(call(0, args="x" * 11))), {"arguments_bytes_max": 10}),
        (stream(calls(*[call(n, f"c{n}", "f", "{}") for n in range(1100)])), {}),
        (b"data: " + b"x" * (LINE_BYTES_MAX + 1), {}),
        (b'{"a":"' + b"x" * (LINE_BYTES_MAX + 1), {}),
    ],
)
def test_too_much_is_a_failure_of_its_own(body: bytes, options: dict[str, int]) -> None:
    """Text, arguments, calls, lines and documents are bounded."""
    events = decode(Decoder(CountingIds(), **options), body)
    check_contract(events)
    last = events[-1]
    assert isinstance(last, Failed)
    assert (last.error.code, last.error.status) == (TOO_LARGE, 502)


def test_a_custom_call_keeps_its_free_text() -> None:
    """The input is not JSON and is not touched."""
    piece = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "p", "input": ""}}
    more = {"index": 0, "custom": {"input": "{}\n"}}
    events = decode(Decoder(CountingIds()), stream(calls(piece), calls(more), finish("tool_calls"), DONE))
    assert events[-2] == ItemDone(
        index=0,
        item=CallItem(id="fc_0001", call_id="c", name="p", arguments="{}\n", kind="custom", upstream_id="c"),
    )


def test_extra_content_of_a_call_is_kept_for_its_provider() -> None:
    """Gemini's thought signature comes that way."""
    piece = {**call(0, "c", "f", "{}"), "extra_content": {"google": {"thought_signature": "s"}}}
    body = stream(calls(piece), finish("tool_calls"), DONE)
    events = decode(Decoder(CountingIds(), provider="google", model="gemini"), body)
    done = events[-2]
    assert isinstance(done, ItemDone)
    assert isinstance(done.item, CallItem)
    data = '{"google":{"thought_signature":"s"}}'
    assert done.item.blobs == (Blob(provider="google", kind="extra_content", data=data, model="gemini"),)


def test_ids_of_the_conversation_are_not_used_again() -> None:
    """Upstreams that number their calls from one in every round do not collide with themselves."""
    body = stream(calls(call(0, "call_1", "f", "{}")), finish("tool_calls"), DONE)
    events = decode(Decoder(CountingIds(), taken_call_ids=frozenset({"call_1"})), body)
    assert [
        event.item.call_id for event in events if isinstance(event, ItemDone) and isinstance(event.item, CallItem)
    ] == ["call_0002"]


def test_a_final_message_beside_deltas_is_not_said_twice() -> None:
    """Some servers repeat the whole message in the last chunk."""
    last = {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}
    assert answer(decode(Decoder(CountingIds()), stream(text("Hi"), last, DONE))).items == (("text", "Hi"),)


@pytest.mark.parametrize("lead", [b"\n\n", b" ", b"\xef\xbb\xbf", b"\r\n\xef\xbb\xbf\n", b": hello\n\n"])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_what_leads_the_bytes_does_not_matter(lead: bytes, size: int) -> None:
    """Blank lines, a byte order mark and comments come before streams and documents."""
    body = lead + stream(text("Hi"), finish("stop"), DONE)
    assert answer(decode(Decoder(CountingIds()), body, size)).items == (("text", "Hi"),)


@settings(max_examples=2 * settings.default.max_examples)
@given(st.data())
def test_hostile_bytes_never_raise_and_end_once(data: st.DataObject) -> None:
    """Random bytes, and good streams with random bytes in them, cut anywhere."""
    good = data.draw(st.sampled_from(ALL_SHAPES)).body
    noise = data.draw(st.binary(max_size=40))
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(good)), st.integers(0, len(good)))))
    body = data.draw(st.sampled_from([noise, good[:start] + noise + good[end:], good[start:end]]))
    size = data.draw(st.integers(1, 50))
    events = decode(Decoder(CountingIds()), body, size)
    check_contract(events)
    assert merged(events) == merged(decode(Decoder(CountingIds()), body))


_LEAF: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        "",
        "a",
        "f",
        "g",
        "{}",
        '{"a":',
        "1}",
        "\ud83d",
        "\ude00",
        0,
        1,
        -1,
        True,
        1.5,
        {},
        [],
        {"a": 1},
        "stop",
        "length",
    ]
)
_CALL = st.fixed_dictionaries(
    {},
    optional={
        "index": _LEAF,
        "id": _LEAF,
        "function": st.none() | st.fixed_dictionaries({}, optional={"name": _LEAF, "arguments": _LEAF}),
        "custom": st.none() | st.fixed_dictionaries({}, optional={"name": _LEAF, "input": _LEAF}),
        "extra_content": _LEAF,
    },
)
_DELTA = st.fixed_dictionaries(
    {},
    optional={
        "content": _LEAF,
        "refusal": _LEAF,
        "reasoning_content": _LEAF,
        "tool_calls": st.none() | _LEAF | st.lists(_CALL, max_size=3),
        "reasoning_details": _LEAF | st.lists(st.dictionaries(st.sampled_from(["index", "text", "data"]), _LEAF)),
        "annotations": _LEAF | st.lists(_LEAF),
        "images": _LEAF | st.lists(st.fixed_dictionaries({}, optional={"image_url": _LEAF})),
        "audio": _LEAF | st.dictionaries(st.sampled_from(["id", "data"]), _LEAF),
        "unknown": _LEAF | st.lists(_LEAF),
        "function_call": _LEAF | st.fixed_dictionaries({}, optional={"name": _LEAF, "arguments": _LEAF}),
    },
)
_LOGPROBS = _LEAF | st.dictionaries(st.sampled_from(["content", "refusal"]), _LEAF | st.lists(_LEAF))
_CHOICE = st.fixed_dictionaries({"delta": _DELTA}, optional={"finish_reason": _LEAF, "logprobs": _LOGPROBS})
_CHUNK = st.fixed_dictionaries(
    {"choices": st.lists(_CHOICE, max_size=2)},
    optional={"usage": _LEAF},
)


@settings(max_examples=2 * settings.default.max_examples)
@given(st.lists(_CHUNK, max_size=6), st.booleans())
def test_any_chunks_keep_the_contract(chunks: list[Any], done: bool) -> None:
    """Whatever upstreams make of a call: distinct ids, deltas that add up, one terminal, and a client can read it."""
    body = stream(*chunks, finish("stop"), *([DONE] if done else []))
    events = decode(Decoder(CountingIds()), body, 7)
    check_contract(events)
    for streams in (True, False):
        encoder = Encoder(Request(protocol="chat", model="m", surface=Surface(stream=streams)), CountingIds())
        sent = b"".join(frame for event in as_run(events) for frame in encoder.feed(event))
        assert (b"[DONE]" in sent) is streams
        assert json.loads(encoder.body())


_SAID = st.fixed_dictionaries(
    {"content": st.sampled_from(["", "a", "é", "\ud83d", None])},
    optional={"role": _LEAF, "refusal": st.none(), "reasoning_content": st.none(), "tool_calls": st.none()},
)
_TOLD = st.fixed_dictionaries(
    {"delta": _SAID},
    optional={"index": st.sampled_from([0, 1, None, "0"]), "finish_reason": _LEAF, "stop_reason": _LEAF},
)
_TEXT = st.fixed_dictionaries(
    {"choices": st.lists(_TOLD, min_size=1, max_size=2)},
    optional={"usage": _LEAF | st.just({"prompt_tokens": 1}), "error": _LEAF, "object": _LEAF | st.just("error")},
)


@settings(max_examples=2 * settings.default.max_examples)
@given(st.lists(_TEXT | _CHUNK, max_size=6))
def test_text_is_read_the_short_way_as_it_is_the_long_way(chunks: list[Any]) -> None:
    """A chunk that is very long is never read the short way, and blanks make any chunk long."""
    frames = [json.dumps(value) for value in (*chunks, finish("stop"))]
    long = ["{" + " " * CHECKED_CHARS + data[1:] for data in frames]
    short_way, long_way = (decode(Decoder(CountingIds()), stream(*each, DONE)) for each in (frames, long))
    assert short_way == long_way


_FRAMES = [
    *(frame(value) for value in (text("a"), text("é"), text(""), chunk({"role": "assistant"}), finish("stop"), DONE)),
    *(frame(value) for value in (calls(call(0, "a", "f", "{}")), {"error": "no"}, 5, "", " [DONE] ", "\x1c")),
    frame(text("?")).replace(b"?", b"\xff"),
    frame(text("?")).replace(b"?", b"\\ud83d"),
    frame(text("a")).replace(b": [", b":\n["),
    frame(text("a")).replace(b": [", b":\r["),
    frame(text("a")).replace(b"\n", b"\r\n"),
    b"event: error\n" + frame(text("a")),
    b"id: 7\n",
    b": ping\n\n",
    b"data: ",
]


@settings(max_examples=2 * settings.default.max_examples)
@given(st.lists(st.sampled_from(_FRAMES), max_size=8))
def test_frames_that_come_whole_are_read_as_in_any_other_pieces(frames: list[bytes]) -> None:
    """One by one, all at once, or byte by byte, which is never the short way."""
    alone, body = Decoder(CountingIds()), b"".join(frames)
    events = [event for each in frames for event in alone.feed(each)] + alone.finish()
    assert (
        merged(events)
        == merged(decode(Decoder(CountingIds()), body))
        == merged(decode(Decoder(CountingIds()), body, 1))
    )


@pytest.mark.parametrize("size", [1, 1_000])
def test_text_alone_over_the_bound_is_a_failure(size: int) -> None:
    """In bytes and not in characters, however the text comes; the bound itself is allowed."""
    body = stream(text("éé"), text("a"), finish("stop"), DONE)
    assert isinstance(decode(Decoder(CountingIds(), text_bytes_max=5), body, size)[-1], Finished)
    alone = Decoder(CountingIds(), text_bytes_max=4)
    assert [event for event in alone.feed(frame(text("éé"))) if isinstance(event, TextDelta)]
    (failed,) = alone.feed(frame(text("a")))
    assert isinstance(failed, Failed)
    assert alone.feed(frame(text("b"))) == alone.finish() == []


@pytest.mark.parametrize(
    "value",
    [text("x"), calls(call(0, "a", "f", "x")), calls(call(0, args=" ")), {"choices": 5}, chunk({"reasoning": "é"})],
)
def test_work_is_linear_in_the_stream(value: Any) -> None:
    """Twice the chunks are at most about twice the executed lines, byte by byte."""

    def lines(count: int) -> int:
        executed = 0

        def trace(frame: object, event: str, arg: object) -> object:
            nonlocal executed
            executed += event == "line"
            return trace

        body = stream(calls(call(0, "a", "f", "{")), *[value] * count, finish("stop"))
        sys.settrace(trace)  # type: ignore[arg-type]
        try:
            decode(Decoder(CountingIds()), body, 1)
        finally:
            sys.settrace(None)
        return executed

    assert lines(40) <= 2.1 * lines(20)


def test_arguments_stream_as_they_come() -> None:
    """A call's arguments are not held until the end of the turn."""
    decoder = Decoder(CountingIds())
    decoder.feed(stream(calls(call(0, "a", "f", '{"a":'))))
    assert decoder.feed(frame(calls(call(0, args='"b')))) == [ArgumentsDelta(index=0, text='"b')]


def test_every_unknown_field_is_named_once_and_kept() -> None:
    """A note for each, however often it comes."""
    body = stream(
        chunk({"mood": "gl"}), chunk({"mood": "ad", "tags": ["a"]}), chunk({"tags": ["b"]}), finish("stop"), DONE
    )
    events = decode(Decoder(CountingIds(), provider="p", model="m"), body)
    notes = [event.note for event in events if isinstance(event, Noted)]
    assert [(note.code, note.action, note.field) for note in notes] == [
        ("field_kept", "kept", "delta.mood"),
        ("field_kept", "kept", "delta.tags"),
    ]
    blob = Blob(provider="p", kind="message_fields", data='{"mood":"glad","tags":["a","b"]}', model="m")
    assert events[-2] == ItemDone(index=0, item=MessageItem(id="msg_0001", role="assistant", blobs=(blob,)))


def test_details_without_a_text_of_their_own_are_the_reasoning() -> None:
    """Some servers send the reasoning there only."""
    details = [{"type": "reasoning.summary", "summary": "hm"}, {"type": "reasoning.encrypted", "data": "x"}]
    events = decode(
        Decoder(CountingIds()), stream(chunk({"reasoning_details": details}), text("a"), finish("stop"), DONE)
    )
    assert answer(events).items == (("reasoning", "hm"), ("text", "a"))


def test_logprobs_of_calls_are_dropped_and_noted() -> None:
    """They belong to no text, and must not make a message of nothing."""
    piece = calls(call(0, "c", "f", "{}"))
    piece["choices"][0]["logprobs"] = {"content": [{"token": "x"}]}
    result = answer(decode(Decoder(CountingIds()), stream(piece, finish("tool_calls"), DONE)))
    assert result.items == (("call", "f", "{}"),)
    assert result.notes == ("logprobs_dropped",)


@pytest.mark.parametrize("image_url", ["data:x", {"url": "data:x"}])
def test_images_are_parts_of_the_message(image_url: Any) -> None:
    """Both as parts of the content and in their own field."""
    image = {"type": "image_url", "image_url": image_url}
    item = MessageItem(id="msg_0001", role="assistant", content=(ImagePart(url="data:x"),))
    for delta in ({"images": [image]}, {"content": [image]}):
        events = decode(Decoder(CountingIds()), stream(chunk(delta), finish("stop"), DONE))
        assert events[-2] == ItemDone(index=0, item=item)


def test_more_arguments_are_told_of_the_call_at_their_index() -> None:
    """However the pieces of two calls alternate; one for an index that nobody began has lost its call."""
    pieces = [
        call(0, "a", "f", '{"x"'),
        call(1, "b", "g", ""),
        call(0, args=":1}"),
        call(1, args="{}"),
    ]
    end = (finish("tool_calls"), DONE)
    result = answer(decode(Decoder(CountingIds()), stream(*[calls(piece) for piece in pieces], *end)))
    assert result.items == (("call", "f", '{"x":1}'), ("call", "g", "{}"))
    assert result.notes == ()
    lost = call(7, args="[")
    assert answer(decode(Decoder(CountingIds()), stream(*[calls(piece) for piece in (*pieces, lost)], *end))) == Answer(
        error=BROKEN, notes=("index_sparse",)
    )


def test_one_piece_that_is_no_list_is_noted_though_it_only_goes_on() -> None:
    """The call is whole, and the note says how it was spelled."""
    more = chunk({"tool_calls": call(0, args="{}")})
    result = answer(decode(Decoder(CountingIds()), stream(calls(call(0, "a", "f")), more, finish("tool_calls"), DONE)))
    assert result.items == (("call", "f", "{}"),)
    assert result.notes == ("calls_not_listed",)


def _whole(message: dict[str, Any], reason: str = "stop") -> bytes:
    """Return a reply that did not stream."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return json.dumps({"object": "chat.completion", "choices": [choice]}).encode()


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": "notalist"},
        {"tool_calls": 7},
        {"tool_calls": ["f"]},
        {"tool_calls": [None]},
        {"tool_calls": [{}]},
        {"tool_calls": [{"id": "a", "type": "function"}]},
        {"tool_calls": [{"id": "a", "type": "function", "function": "f"}]},
        {"tool_calls": [{"id": "a", "function": {"name": ""}}]},
        {"function_call": "f"},
        {"function_call": {}},
    ],
)
@pytest.mark.parametrize("reason", ["stop", "tool_calls"])
def test_what_cannot_be_read_as_a_call_of_a_whole_reply_is_none(message: dict[str, Any], reason: str) -> None:
    """The text is the answer, and a note says what was left out."""
    result = answer(decode(Decoder(CountingIds()), _whole({"content": "plain", **message}, reason)))
    assert (result.items, result.stop) == ((("text", "plain"),), "done")
    assert result.notes == ("calls_unreadable",)


def test_the_calls_beside_an_unreadable_one_stand() -> None:
    """One odd entry does not make the others odd."""
    good = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    result = answer(decode(Decoder(CountingIds()), _whole({"content": None, "tool_calls": ["x", good]}, "tool_calls")))
    assert (result.items, result.notes) == ((("call", "f", "{}"),), ("calls_unreadable",))


def test_calls_whose_names_come_late_keep_their_order() -> None:
    """The one that was begun first is first, whichever name is known first."""
    pieces = [
        call(0, "a", args='{"x":'),
        call(1, "b", args='{"y":'),
        call(1, name="g", args="2}"),
        call(0, name="f", args="1}"),
    ]
    events = decode(Decoder(CountingIds()), stream(*[calls(piece) for piece in pieces], finish("tool_calls"), DONE))
    check_contract(events)
    assert answer(events).items == (("call", "f", '{"x":1}'), ("call", "g", '{"y":2}'))


def test_a_call_whose_name_never_comes_breaks_the_answer() -> None:
    """In a stream it is what is left of a call that was lost; the calls behind it do not run either."""
    pieces = [call(0, "a", args="{}"), call(1, "b", "g", "{}")]
    events = decode(Decoder(CountingIds()), stream(*[calls(piece) for piece in pieces], finish("tool_calls"), DONE))
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert failed.error.code == "upstream_broken_stream"
    assert not [event for event in events if isinstance(event, ItemDone)]


def test_a_lone_half_in_arguments_stays_the_escape_that_it_was() -> None:
    """In text it is replaced; in arguments another character would be another argument."""
    pieces = [call(0, "a", "f", '{"x":"\ud83d'), call(0, args="\ude00 \ud800"), call(0, args='"}')]
    raw = [json.dumps(calls(piece)) for piece in pieces]
    body = "".join(f"data: {each}\n\n" for each in raw).encode() + stream(finish("tool_calls"), DONE)
    assert answer(decode(Decoder(CountingIds()), body)).items == (("call", "f", '{"x":"\U0001f600 \\ud800"}'),)


@pytest.mark.parametrize(
    "quiet",
    [
        b"data: null\n\n",
        b'data: {"id":"x","object":"chat.completion.chunk","choices":null,"usage":null}\n\n',
        b" \n",
        frame(chunk({"function_call": {}})),
        frame(chunk({"function_call": {"name": None, "arguments": None}})),
        frame(chunk({"tool_calls": {}})),
        frame(chunk({"tool_calls": [None]})),
        frame(chunk({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]})),
    ],
)
def test_what_says_nothing_breaks_nothing(quiet: bytes) -> None:
    """Null chunks, and pieces of calls that no call comes of."""
    result = answer(decode(Decoder(CountingIds()), stream(text("Hi")) + quiet + stream(finish("stop"), DONE)))
    assert (result.items, result.stop, result.notes) == ((("text", "Hi"),), "done", ())


@pytest.mark.parametrize(
    "lost",
    [
        b'data: {"id":"x","chokces":[{"delta":{"content":"a"}}]}\n\n',
        frame(chunk({"tool_calls": [{"index": 0, "functioo": {"name": "f", "arguments": "{}"}}]})),
        frame(chunk({"tool_calls": [{"index": 0, "function": {"namf": "f"}}]})),
    ],
)
def test_what_may_stand_in_an_unknown_field_is_not_nothing(lost: bytes) -> None:
    """A damaged name of a field hides what it holds."""
    body = stream(text("Hi")) + lost + stream(finish("tool_calls"), DONE)
    assert _error(body).code == "upstream_broken_stream"


@pytest.mark.parametrize(
    "junk",
    [
        b"data: [done]\n\n",
        b"data: DONE\n\n",
        b"event: done\n\n",
        b'data: {"cost":"0"}\n\n',
        b'data: {"x_groq":{"id":"a"}}\n\n',
        b"0\n\n",
    ],
)
def test_what_stands_behind_the_finish_reason_takes_nothing_back(junk: bytes) -> None:
    """The answer is whole; before its reason the same is damage."""
    result = answer(decode(Decoder(CountingIds()), stream(text("Hi"), finish("stop")) + junk + stream(DONE)))
    assert (result.items, result.stop, result.notes) == ((("text", "Hi"),), "done", ("bad_frame",))
    assert _error(stream(text("Hi")) + junk + stream(finish("stop"), DONE)).code == "upstream_broken_stream"


def _at(index: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


_F = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":'}}]}
_G = {"tool_calls": [{"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}]}
_MORE = {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}


@pytest.mark.parametrize("last", [0, 2])
def test_an_index_of_the_only_choice_that_counts_on_is_no_other_choice(last: int) -> None:
    """LiteLLM counts the blocks of Claude's answer there; each call gets its own arguments."""
    chunks = [_at(0, {"content": "Hi"}), _at(1, _F), _at(1, _MORE), _at(2, _G), _at(last, {}, "tool_calls")]
    result = answer(decode(Decoder(CountingIds()), stream(*chunks, DONE)))
    assert (result.items, result.stop) == ((("text", "Hi"), ("call", "f", '{"x":1}'), ("call", "g", "{}")), "calls")
    assert "choice_counted" in result.notes


@pytest.mark.parametrize(
    "chunks",
    [
        [_at(0, _F), _at(1, _G), _at(0, _MORE), _at(0, {}, "tool_calls")],
        [_at(0, {"content": "a"}), _at(2, {"content": "b"}), _at(2, {}, "stop")],
        [_at(0, {"content": "a"}), _at(1, {"content": "b"}), _at(0, {"content": "c"}), _at(0, {}, "stop")],
        [_at(0, {"content": "a"}, "stop"), _at(1, {"content": "b"}, "stop")],
        [{"choices": [_at(n, {"content": "a"})["choices"][0] for n in (0, 1)]}, _at(0, {}, "stop")],
    ],
)
def test_a_choice_beside_the_first_breaks_the_answer(chunks: list[dict[str, Any]]) -> None:
    """Indexes that go back, leave one out or come together are those of choices that nobody asked for."""
    assert _error(stream(*chunks, DONE)).code == "upstream_broken_stream"
