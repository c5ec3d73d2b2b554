"""Every stream shape of a Gemini upstream × every chunk size, and what our own stream of it is to the real SDK."""

import json
from typing import Any

import pytest
from google.genai import errors, types

from stream import shapes
from stream.answers import Answer, answer, as_run, decode, unsteady
from stream.gemini_shapes import ALL_SHAPES, SHAPES, Shape
from stream.genai import Wire
from treadle.core.ids import CountingIds
from treadle.core.request import Request, Surface
from treadle.protocols import chat
from treadle.protocols.gemini import Decoder, Encoder

BY_NAME = pytest.mark.parametrize("shape", ALL_SHAPES, ids=lambda shape: shape.name)
CHAT_SHAPES = pytest.mark.parametrize("shape", shapes.SHAPES, ids=lambda shape: shape.name)
FINISH_REASONS = {"done": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "filtered": "SAFETY"}


def _events(shape: Shape, size: int = 1 << 30) -> list[Any]:
    return decode(Decoder(CountingIds()), shape.body, size)


def test_the_table_holds_the_23_shapes_once_each() -> None:
    """The numbers of BUGS.md are all there, and names are unique."""
    assert [shape.number for shape in SHAPES] == list(range(1, 24))
    assert len({shape.name for shape in ALL_SHAPES}) == len(ALL_SHAPES)


@BY_NAME
def test_a_shape_amounts_to_what_it_should(shape: Shape) -> None:
    """Items, stop, usage, error and notes are those of the table."""
    assert answer(_events(shape)) == shape.expected


@BY_NAME
def test_chunking_changes_nothing(shape: Shape) -> None:
    """However the bytes are cut, the events are the same but for where deltas are cut."""
    assert unsteady(lambda size: _events(shape, size)) == {}


@BY_NAME
def test_the_sdk_accepts_our_stream_of_a_shape(shape: Shape) -> None:
    """The SDK sees the same text, thoughts, calls, reason and usage; an error comes as the SDK's own."""
    _judge(shape.expected, _events(shape))


@CHAT_SHAPES
def test_the_sdk_accepts_our_stream_of_a_chat_upstream(shape: shapes.Shape) -> None:
    """The 23 shapes of a Chat upstream are answers of Gemini to a Gemini client."""
    _judge(shape.expected, decode(chat.Decoder(CountingIds()), shape.body))


@BY_NAME
def test_the_whole_body_is_the_stream_folded(shape: Shape) -> None:
    """The body of a client that waits says what the frames of a client that streams add up to."""
    wire = Wire(lambda _: as_run(_events(shape)))
    if shape.expected.error is not None:
        encoder = Encoder(Request(protocol="gemini", model="m"), CountingIds())
        assert [frame for event in as_run(_events(shape)) for frame in encoder.feed(event)] == []
        assert json.loads(encoder.body())["error"]["code"] >= 400
        return
    response = wire.client().models.generate_content(model="m", contents="hi")
    assert _content(_parts([response])) == _shown(shape.expected)
    assert response.candidates is not None
    assert response.candidates[0].finish_reason == FINISH_REASONS[shape.expected.stop or ""]


@BY_NAME
def test_an_array_holds_the_same_objects_as_the_frames(shape: Shape) -> None:
    """A client that streams without `alt=sse` reads one JSON array, whatever the end."""
    framed, listed = (_sent(shape, is_array=is_array) for is_array in (False, True))
    objects = [json.loads(line[6:]) for line in framed.decode().splitlines() if line]
    assert json.loads(listed) == objects
    assert b"\n:" not in framed


def _sent(shape: Shape, *, is_array: bool) -> bytes:
    surface = Surface(stream=True, is_array=is_array)
    encoder = Encoder(Request(protocol="gemini", model="m", surface=surface), CountingIds())
    return b"".join(frame for event in as_run(_events(shape)) for frame in encoder.feed(event))


def _judge(expected: Answer, events: list[Any]) -> None:
    stream = Wire(lambda _: as_run(events)).client().models.generate_content_stream(model="m", contents="hi")
    if expected.error is not None:
        with pytest.raises(errors.APIError) as caught:
            list(stream)
        assert caught.value.code >= 400
        return
    chunks = list(stream)
    assert _content(_parts(chunks)) == _shown(expected)
    reasons = [candidate.finish_reason for chunk in chunks for candidate in chunk.candidates or ()]
    refused = any(item[0] == "refusal" for item in expected.items)
    assert [reason for reason in reasons if reason] == ["SAFETY" if refused else FINISH_REASONS[expected.stop or ""]]
    used, usage = chunks[-1].usage_metadata, expected.usage
    assert (used is None) == (usage is None)
    if used is not None and usage is not None:
        spent = (used.prompt_token_count, (used.candidates_token_count or 0) + (used.thoughts_token_count or 0))
        assert spent == (usage.input_tokens, usage.output_tokens)
        assert used.total_token_count == usage.total_tokens


def _parts(chunks: list[types.GenerateContentResponse]) -> list[types.Part]:
    contents = [candidate.content for chunk in chunks for candidate in chunk.candidates or ()]
    assert all(content is not None and content.role == "model" and content.parts for content in contents)
    return [part for content in contents if content for part in content.parts or ()]


def _content(parts: list[types.Part]) -> dict[str, Any]:
    calls = [part.function_call for part in parts if part.function_call is not None]
    ids = [call.id for call in calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    return {
        "text": "".join(part.text or "" for part in parts if not part.thought),
        "thoughts": "".join(part.text or "" for part in parts if part.thought),
        "calls": [(call.name, call.args) for call in calls],
    }


def _shown(expected: Answer) -> dict[str, Any]:
    return {
        "text": "\n\n".join(item[1] for item in expected.items if item[0] in ("text", "refusal")),
        "thoughts": "".join(item[1] for item in expected.items if item[0] == "reasoning"),
        "calls": [(item[1], _args(item[2])) for item in expected.items if item[0] == "call"],
    }


def _args(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"__raw": text}
