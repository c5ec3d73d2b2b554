import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.answers import as_run, decode
from stream.gemini_shapes import ALL_SHAPES
from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    KeptAlive,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.ids import CountingIds
from treadle.core.items import (
    Blob,
    CallItem,
    ImagePart,
    MessageItem,
    OpaquePart,
    ReasoningItem,
    RefusalPart,
    TextPart,
    text_message,
    text_result,
)
from treadle.core.request import Note, Request, Surface
from treadle.core.usage import Usage
from treadle.protocols.gemini import Decoder, Encoder
from treadle.protocols.gemini.content_parts import seal

STARTED = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1.5)
COMPLETED = RunEnded(status="completed", usage=Usage(input_tokens=3, output_tokens=5))
MESSAGE = MessageItem(id="msg_1", role="assistant")
CALL = CallItem(id="fc_1", call_id="call_1", name="f", arguments='{"x":1}')
SERVER = CallItem(id="fc_2", call_id="call_2", name="lookup", arguments="{}", side="server")
BLOBS = (Blob(provider="p", kind="thought_signature", data="s"),)


def _encoder(**surface: Any) -> Encoder:
    return Encoder(Request(protocol="gemini", model="asked", surface=Surface(**surface)), CountingIds())


def _frames(*events: RunEvent, **surface: Any) -> list[Any]:
    encoder = _encoder(stream=True, **surface)
    sent = b"".join(frame for event in (STARTED, *events) for frame in encoder.feed(event))
    lines = sent.decode().split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: {") for line in lines)
    return [json.loads(line[6:]) for line in lines]


def _body(*events: RunEvent, **surface: Any) -> Any:
    encoder = _encoder(**surface)
    assert [frame for event in (STARTED, *events) for frame in encoder.feed(event)] == []
    return json.loads(encoder.body())


def _parts(frames: list[Any]) -> list[Any]:
    return [part for frame in frames for part in frame["candidates"][0]["content"]["parts"]]


def _said(index: int, *texts: str) -> list[RunEvent]:
    done = text_message("assistant", "".join(texts), f"msg_{index}")
    return [
        ItemAdded(index=index, item=MessageItem(id=f"msg_{index}", role="assistant")),
        *(TextDelta(index=index, text=text) for text in texts),
        ItemDone(index=index, item=done),
    ]


def test_each_delta_is_a_frame_and_the_last_has_reason_and_usage() -> None:
    """No event names, no [DONE], no comments."""
    frames = _frames(*_said(0, "Hel", "lo"), COMPLETED)
    head = {"modelVersion": "m", "responseId": "resp_1"}
    assert frames == [
        {"candidates": [{"content": {"parts": [{"text": "Hel"}], "role": "model"}, "index": 0}], **head},
        {"candidates": [{"content": {"parts": [{"text": "lo"}], "role": "model"}, "index": 0}], **head},
        {
            "candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 5, "totalTokenCount": 8},
            **head,
        },
    ]


def test_the_body_is_the_frames_folded() -> None:
    """Texts are one part, thoughts another, calls their own."""
    thought = ReasoningItem(id="rs_1", text=("Hm.",))
    body = _body(
        ItemAdded(index=0, item=ReasoningItem(id="rs_1")),
        ReasoningDelta(index=0, text="H"),
        ReasoningDelta(index=0, text="m."),
        ItemDone(index=0, item=thought),
        *_said(1, "Hel", "lo"),
        ItemDone(index=2, item=CALL),
        RunEnded(status="requires_action", stop="calls"),
    )
    assert body == {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "Hm.", "thought": True},
                        {"text": "Hello"},
                        {"functionCall": {"id": "call_1", "name": "f", "args": {"x": 1}}},
                    ],
                    "role": "model",
                },
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "modelVersion": "m",
        "responseId": "resp_1",
    }


def test_a_call_is_sent_once_and_whole() -> None:
    """Its arguments are not streamed: clients read them from one part."""
    frames = _frames(
        ItemAdded(index=0, item=CallItem(id="fc_1", call_id="call_1", name="f")),
        ArgumentsDelta(index=0, text='{"x":'),
        ArgumentsDelta(index=0, text="1}"),
        ItemDone(index=0, item=CALL),
        RunEnded(status="requires_action", stop="calls"),
    )
    assert _parts(frames) == [{"functionCall": {"id": "call_1", "name": "f", "args": {"x": 1}}}, {"text": ""}]


@pytest.mark.parametrize(
    ("call", "args"),
    [
        (CallItem(call_id="c", name="f", arguments='{"x":'), {"__raw": '{"x":'}),
        (CallItem(call_id="c", name="f", arguments="free", kind="custom"), {"input": "free"}),
    ],
    ids=["malformed", "custom"],
)
def test_arguments_that_are_no_object_are_passed_on(call: CallItem, args: Any) -> None:
    """As they came, never mended."""
    frames = _frames(ItemDone(index=0, item=call), RunEnded(status="requires_action", stop="calls"))
    assert frames[0]["candidates"][0]["content"]["parts"][0]["functionCall"]["args"] == args


def test_signatures_are_sealed_on_what_they_sign() -> None:
    """A text's comes behind it, empty, and is folded into it."""
    said = MessageItem(id="msg_1", role="assistant", content=(TextPart(text="Hi"),), blobs=BLOBS)
    called = CallItem(call_id="c", name="f", arguments="{}", blobs=BLOBS)
    thought = ReasoningItem(id="rs_1", blobs=BLOBS)
    events = (
        ItemDone(index=0, item=thought),
        ItemDone(index=1, item=said),
        ItemDone(index=2, item=called),
        RunEnded(status="requires_action"),
    )
    sealed = seal(BLOBS)
    call = {"functionCall": {"id": "c", "name": "f", "args": {}}, "thoughtSignature": sealed}
    assert _parts(_frames(*events)) == [
        {"text": "", "thought": True, "thoughtSignature": sealed},
        {"text": "Hi"},
        {"text": "", "thoughtSignature": sealed},
        call,
        {"text": ""},
    ]
    assert _body(*events)["candidates"][0]["content"]["parts"] == [
        {"text": "", "thought": True, "thoughtSignature": sealed},
        {"text": "Hi", "thoughtSignature": sealed},
        call,
    ]


def test_server_calls_are_silent() -> None:
    """Gemini has no form for them; texts of two rounds are two paragraphs."""
    result = text_result(SERVER, "ok")
    events = (
        RoundStarted(round=1, fingerprint="x"),
        *_said(0, "One."),
        ItemAdded(index=1, item=SERVER),
        ItemDone(index=1, item=SERVER),
        ToolStarted(index=1, call=SERVER),
        ToolFinished(index=1, call=SERVER, result=result),
        ItemDone(index=2, item=result),
        Noted(note=Note(code="x", action="kept", message="x")),
        *_said(3, "Two."),
        COMPLETED,
    )
    assert _parts(_frames(*events)) == [{"text": "One."}, {"text": "\n\nTwo."}, {"text": ""}]
    assert _body(*events)["candidates"][0]["content"]["parts"] == [{"text": "One.\n\nTwo."}]


def test_status_text_is_exact_when_on() -> None:
    """A paragraph of its own."""
    events = (*_said(0, "One."), ToolStarted(index=1, call=SERVER), *_said(2, "Two."), COMPLETED)
    parts = _parts(_frames(*events, tool_status=True))
    assert parts == [{"text": "One."}, {"text": "\n\nCalling lookup…"}, {"text": "\n\nTwo."}, {"text": ""}]


def test_silence_is_broken_by_an_empty_text() -> None:
    """A comment would break clients; the fold does not hold it."""
    assert _parts(_frames(KeptAlive(), *_said(0, "Hi"), COMPLETED)) == [{"text": ""}, {"text": "Hi"}, {"text": ""}]
    assert _body(KeptAlive(), *_said(0, "Hi"), COMPLETED)["candidates"][0]["content"]["parts"] == [{"text": "Hi"}]


def test_what_was_not_streamed_comes_at_the_end_of_its_item() -> None:
    """A replay has no deltas; pictures and Gemini's own parts are shown, those of others are not."""
    code = OpaquePart(protocol="gemini", raw=b'{"executableCode":{"code":"1"}}')  # type: ignore[arg-type]
    foreign = OpaquePart(protocol="chat", raw=b"{}")  # type: ignore[arg-type]
    said = MessageItem(
        id="msg_1",
        role="assistant",
        content=(TextPart(text="Hello"), ImagePart(url="data:image/png;base64,AAAA"), code, foreign),
    )
    frames = _frames(
        ItemAdded(index=0, item=MESSAGE),
        TextDelta(index=0, text="Hel"),
        ItemDone(index=0, item=said),
        ItemDone(index=1, item=ReasoningItem(id="rs_1", summary=("a",), text=("b",))),
        COMPLETED,
    )
    assert _parts(frames) == [
        {"text": "Hel"},
        {"text": "lo"},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {"executableCode": {"code": "1"}},
        {"text": "a\n\nb", "thought": True},
        {"text": ""},
    ]


@pytest.mark.parametrize("streamed", [0, 1, 2])
def test_parts_of_one_thought_are_paragraphs(streamed: int) -> None:
    """Summaries of a Responses upstream come in parts with headings, which must not run together."""
    deltas = [ReasoningDelta(index=0, text=text, part=part, is_summary=True) for part, text in ((0, "One"), (2, "Two"))]
    item = ReasoningItem(id="rs_1", summary=("One", "", "Two"))
    begun = ItemAdded(index=0, item=ReasoningItem(id="rs_1"))
    body = _body(begun, *deltas[:streamed], ItemDone(index=0, item=item), COMPLETED)
    assert body["candidates"][0]["content"]["parts"] == [{"text": "One\n\nTwo", "thought": True}]


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (RunEnded(status="completed"), "STOP"),
        (RunEnded(status="completed", stop="stop_sequence"), "STOP"),
        (RunEnded(status="requires_action", stop="calls"), "STOP"),
        (RunEnded(status="incomplete", stop="length"), "MAX_TOKENS"),
        (RunEnded(status="incomplete", stop="filtered"), "SAFETY"),
    ],
    ids=lambda value: "",
)
def test_every_end_has_geminis_own_word(ended: RunEnded, reason: str) -> None:
    """In the last frame and in the body, and an answer of nothing still has a part."""
    assert [frame["candidates"][0]["finishReason"] for frame in _frames(ended)] == [reason]
    body = _body(ended)["candidates"][0]
    assert (body["finishReason"], body["content"]["parts"]) == (reason, [{"text": ""}])


def test_a_refusal_is_text_that_ends_for_safety() -> None:
    """Gemini has no other word for it; streamed or not."""
    done = MessageItem(id="msg_1", role="assistant", content=(RefusalPart(text="No."),))
    streamed = (ItemAdded(index=0, item=MESSAGE), RefusalDelta(index=0, text="No."))
    for events in (streamed, (*streamed, ItemDone(index=0, item=done)), (ItemDone(index=0, item=done),)):
        frames = _frames(*events, COMPLETED)
        assert _parts(frames) == [{"text": "No."}, {"text": ""}]
        assert frames[-1]["candidates"][0]["finishReason"] == "SAFETY"


def test_usage_has_geminis_own_fields() -> None:
    """Thoughts are counted apart, and only what there is."""
    usage = Usage(input_tokens=10, output_tokens=7, reasoning_tokens=5, cached_tokens=4)
    assert _frames(RunEnded(status="completed", usage=usage))[-1]["usageMetadata"] == {
        "promptTokenCount": 10,
        "candidatesTokenCount": 2,
        "totalTokenCount": 17,
        "thoughtsTokenCount": 5,
        "cachedContentTokenCount": 4,
    }


def test_a_limit_is_named_beside_a_normal_stop() -> None:
    """In the stream and in the body."""
    ended = RunEnded(status="completed", limit="max_iterations")
    named = {"run_id": "run_1", "limit": "max_iterations"}
    assert [_frames(ended)[-1]["treadle"], _body(ended)["treadle"]] == [named, named]


@pytest.mark.parametrize("is_array", [False, True])
def test_a_failure_is_an_error_object(is_array: bool) -> None:
    """Nothing that looks like a finish."""
    failed = RunEnded(status="failed", error=ErrorInfo(code="x", message="boom", status=503))
    error = {"error": {"code": 503, "message": "boom", "status": "UNAVAILABLE", "details": []}}
    encoder = _encoder(stream=True, is_array=is_array)
    sent = b"".join(frame for event in (STARTED, *_said(0, "Hi")[:2], failed) for frame in encoder.feed(event))
    assert b"finishReason" not in sent
    objects = json.loads(sent) if is_array else [json.loads(line[6:]) for line in sent.split(b"\n\n") if line]
    assert objects[1:] == [error]
    assert _body(failed) == error
    assert _body(RunEnded(status="failed"))["error"]["code"] == 502


def test_a_cancelled_run_ends_in_an_error() -> None:
    """As the last frame, and as the last element of an array."""
    cancelled = RunEnded(status="cancelled")
    error = {
        "error": {
            "code": 499,
            "message": "The run was cancelled before its answer was complete.",
            "status": "CANCELLED",
            "details": [],
        }
    }
    assert _body(cancelled) == error
    for events, count in (((), 0), (_said(0, "Hi"), 1)):
        encoder = _encoder(stream=True, is_array=True)
        sent = b"".join(frame for event in (STARTED, *events, cancelled) for frame in encoder.feed(event))
        elements = json.loads(sent)
        assert (len(elements), elements[-1]) == (count + 1, error)
    assert _frames(cancelled) == [error]


def test_nothing_follows_the_end() -> None:
    """One lifecycle, one terminal."""
    encoder = _encoder(stream=True)
    encoder.feed(STARTED)
    encoder.feed(COMPLETED)
    assert encoder.feed(KeptAlive()) == []
    assert encoder.feed(COMPLETED) == []


@given(st.sampled_from([shape for shape in ALL_SHAPES if shape.expected.error is None]), st.data())
def test_random_splits_of_deltas_give_the_same_body(shape: Any, data: st.DataObject) -> None:
    """However finely the text was streamed."""
    whole = as_run(decode(Decoder(CountingIds()), shape.body))
    split: list[RunEvent] = []
    for event in whole:
        if isinstance(event, TextDelta | ReasoningDelta) and len(event.text) > 1:
            cut = data.draw(st.integers(1, len(event.text) - 1))
            kind = type(event)
            split += [kind(index=event.index, text=piece) for piece in (event.text[:cut], event.text[cut:])]
        else:
            split.append(event)
    assert _body(*split[1:]) == _body(*whole[1:])
