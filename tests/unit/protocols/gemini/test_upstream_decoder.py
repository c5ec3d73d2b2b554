import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.answers import answer, check_contract, decode, merged
from stream.gemini_shapes import ALL_SHAPES, SIGNATURE, call, chunk, end, frame, stream, text
from treadle.core.errors import ErrorInfo
from treadle.core.events import Failed, Finished, ItemDone, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import Blob, CallItem, ImagePart, MessageItem, OpaquePart, TextPart
from treadle.protocols.gemini import Decoder
from treadle.protocols.sse import LINE_BYTES_MAX

TOO_LARGE = "upstream_too_large"


def _error(body: bytes, **options: Any) -> ErrorInfo:
    last = decode(Decoder(CountingIds(), **options), body)[-1]
    assert isinstance(last, Failed)
    return last.error


def _items(body: bytes, **options: Any) -> list[Any]:
    return [event.item for event in decode(Decoder(CountingIds(), **options), body) if isinstance(event, ItemDone)]


def test_text_is_emitted_with_the_feed_that_completes_it() -> None:
    """Nothing waits for the end of the stream."""
    decoder = Decoder(CountingIds())
    decoder.feed(frame(text("a")))
    assert decoder.feed(frame(text("b"))) == [TextDelta(index=0, text="b")]
    assert decoder.feed(frame(text("c"))[:-3]) == []


def test_the_terminal_comes_with_the_end_of_the_bytes() -> None:
    """Usage may still follow the finish reason; what follows the terminal is not even read."""
    decoder = Decoder(CountingIds())
    assert not any(isinstance(event, Finished) for event in decoder.feed(stream(text("a", "STOP"))))
    assert decoder.finish()[-1] == Finished(stop="done", raw_stop="STOP")
    assert decoder.feed(stream(text("b"))) == []
    assert decoder.finish() == []


def test_an_open_item_of_a_failed_stream_is_never_done() -> None:
    """An item that was cut is not complete."""
    events = decode(Decoder(CountingIds()), stream(text("a")))
    assert not any(isinstance(event, ItemDone) for event in events)
    assert isinstance(events[-1], Failed)


@pytest.mark.parametrize(
    ("body", "info"),
    [
        (
            stream({"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}}),
            ErrorInfo(code="resource_exhausted", message="slow", status=429, retryable=True),
        ),
        (
            b'[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]',
            ErrorInfo(code="invalid_argument", message="bad", status=400),
        ),
        (
            b"event: error\n" + frame({"message": "boom"}),
            ErrorInfo(code="upstream_error", message="boom", status=502, retryable=True),
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
            b"{oops",
            ErrorInfo(
                code="upstream_broken_stream",
                message="The upstream's answer is not a response of Gemini.",
                status=502,
                retryable=True,
            ),
        ),
        (
            stream({"candidates": [{"finishReason": "TOO_MANY_TOOL_CALLS", "finishMessage": "stop it"}]}),
            ErrorInfo(
                code="upstream_broken_stream",
                message="The upstream broke off: TOO_MANY_TOOL_CALLS. stop it",
                status=502,
                retryable=True,
            ),
        ),
    ],
    ids=["frame", "list", "event", "html", "json", "broke_off"],
)
def test_a_failure_says_what_happened(body: bytes, info: ErrorInfo) -> None:
    """Status and meaning are kept."""
    assert _error(body) == info


def test_signatures_name_their_maker() -> None:
    """On a call and on a text; pictures and unknown parts are parts of the message."""
    code = {"executableCode": {"code": "1"}}
    picture = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    body = stream(
        chunk({"text": "see", "thoughtSignature": SIGNATURE}, picture, {**code, "thought_signature": SIGNATURE}),
        chunk({**call("f", {}, "x"), "thoughtSignature": SIGNATURE}),
        end(),
    )
    blob = Blob(provider="google", kind="thought_signature", data=SIGNATURE, model="gemini-3")
    message, called = _items(body, provider="google", model="gemini-3")
    assert isinstance(message, MessageItem)
    assert message.content == (
        TextPart(text="see"),
        ImagePart(url="data:image/png;base64,AAAA"),
        OpaquePart(protocol="gemini", raw=message.content[2].raw),
    )
    assert message.blobs == (blob, blob)
    assert called == CallItem(id="fc_0002", call_id="x", name="f", arguments="{}", upstream_id="x", blobs=(blob,))


def test_ids_of_the_conversation_are_not_given_twice() -> None:
    """Some gateways count their ids from zero in every answer."""
    (called,) = _items(stream(chunk(call("f", {}, "call_0"), finish="STOP")), taken_call_ids=frozenset({"call_0"}))
    assert (called.call_id, called.upstream_id) == ("call_0002", "call_0")


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (stream(text("x" * 11), end()), {"text_bytes_max": 10}),
        (stream(chunk(call("f", {"a": "x" * 11})), end()), {"arguments_bytes_max": 10}),
        (stream(*(chunk(call("f")) for _ in range(1025))), {}),
        (b"data: " + b"x" * (LINE_BYTES_MAX + 1), {}),
        (b"[" + b" " * (LINE_BYTES_MAX + 1), {}),
    ],
    ids=["text", "arguments", "calls", "line", "document"],
)
def test_every_bound_is_a_failure_that_says_so(body: bytes, options: dict[str, Any]) -> None:
    """Nothing grows without end."""
    assert _error(body, **options).code == TOO_LARGE


@given(st.binary(max_size=300))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    """Whatever comes, one terminal ends it."""
    for body in (data, b"data: " + data, b"{" + data, b"[" + data):
        check_contract(decode(Decoder(CountingIds()), body, 7))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("candidates", "content", "parts", "text", "thought", "functionCall", "name", "args", "id"),
                    *("partialArgs", "jsonPath", "stringValue", "willContinue", "finishReason", "usageMetadata"),
                    *("promptTokenCount", "error", "index", "inlineData", "thoughtSignature", "promptFeedback"),
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)
PARTS = st.fixed_dictionaries(
    {"candidates": st.lists(st.fixed_dictionaries({"content": st.fixed_dictionaries({"parts": st.lists(JSON)})}))}
)


@given(st.lists(JSON | PARTS, max_size=4))
def test_no_json_makes_it_raise(values: list[Any]) -> None:
    """Whatever stands where, the contract of events holds."""
    check_contract(decode(Decoder(CountingIds()), stream(*values, end())))


@given(st.sampled_from(ALL_SHAPES), st.data())
def test_random_cuts_change_nothing(shape: Any, data: st.DataObject) -> None:
    """Any cut of any shape gives the same events but for where deltas are cut."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(shape.body)), max_size=8)))
    decoder = Decoder(CountingIds())
    events: list[Any] = []
    for start, stop in zip([0, *cuts], [*cuts, len(shape.body)], strict=True):
        events += decoder.feed(shape.body[start:stop])
    assert merged(events + decoder.finish()) == merged(decode(Decoder(CountingIds()), shape.body))


def test_deep_json_is_read_within_the_stack() -> None:
    """A frame that nests deeper than the interpreter's stack breaks the answer."""
    deep = '{"candidates":' + "[" * sys.getrecursionlimit() * 2
    result = answer(decode(Decoder(CountingIds()), stream(deep, text("Hi", "STOP"))))
    assert (result.items, result.error) == ((), "upstream_broken_stream")
