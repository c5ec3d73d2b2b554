"""Every stream shape × every chunk size, and what Treadle's own stream of it is to the real SDK."""

import json
from typing import Any, cast

import pytest
from openai._models import construct_type
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from stream.answers import answer, as_run, decode, unsteady
from stream.shapes import ALL_SHAPES, CITATION, SHAPES, Shape
from treadle.core.ids import CountingIds
from treadle.core.request import Request, Surface
from treadle.protocols.chat import Decoder, Encoder
from treadle.protocols.sse import SseReader

BY_NAME = pytest.mark.parametrize("shape", ALL_SHAPES, ids=lambda shape: shape.name)
FINISH_REASONS = {"done": "stop", "calls": "tool_calls", "length": "length", "filtered": "content_filter"}


def _events(shape: Shape, size: int = 1 << 30) -> list[Any]:
    return decode(Decoder(CountingIds()), shape.body, size)


def _frames(shape: Shape, surface: Surface) -> tuple[Encoder, list[str]]:
    encoder = Encoder(Request(protocol="chat", model="m", surface=surface), CountingIds())
    sent = b"".join(frame for event in as_run(_events(shape)) for frame in encoder.feed(event))
    return encoder, [frame.data for frame in SseReader().feed(sent)]


def _joined(shape: Shape, kind: str) -> str | None:
    texts = [item[1] for item in shape.expected.items if item[0] == kind]
    return "\n\n".join(texts) if texts else None


def _parsed(line: str) -> ChatCompletionChunk:
    """Read a chunk strictly; the SDK's type of it does not know custom calls, so those as the SDK itself reads them."""
    if '"custom"' in line:
        return cast("ChatCompletionChunk", construct_type(value=json.loads(line), type_=ChatCompletionChunk))
    return ChatCompletionChunk.model_validate_json(line)


def _seen_call(call: Any) -> tuple[str, str, str]:
    if call.type == "custom":
        custom = call.custom if isinstance(call.custom, dict) else call.custom.model_dump()
        return ("call", custom["name"], custom["input"])
    return ("call", call.function.name, call.function.arguments)


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
    """The SDK's accumulator sees the same text, calls, reason and usage; errors come as an error chunk."""
    _, data = _frames(shape, Surface(stream=True, include_usage=True))
    expected = shape.expected
    assert data[-1] == "[DONE]"
    if expected.error is not None:
        assert json.loads(data[-2])["error"]["code"] == expected.error
        assert not any('"finish_reason":"' in line for line in data)
        return
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for line in data[:-1]:
        state.handle_chunk(_parsed(line))
    snapshot = state.current_completion_snapshot
    choice = snapshot.choices[0]
    seen = [_seen_call(call) for call in choice.message.tool_calls or ()]
    called = [item for item in expected.items if item[0] == "call"]
    # The SDK keeps the beginning of a call that never ended.
    assert (seen[: len(called)] if expected.stop == "length" else seen) == called
    ids = [call.id for call in choice.message.tool_calls or ()]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    assert choice.message.role == "assistant"
    assert choice.message.content == _joined(shape, "text")
    assert choice.message.refusal == _joined(shape, "refusal")
    assert choice.finish_reason == FINISH_REASONS[expected.stop or ""]
    used = None if snapshot.usage is None else (snapshot.usage.prompt_tokens, snapshot.usage.completion_tokens)
    usage = expected.usage
    assert used == (None if usage is None else (usage.input_tokens, usage.output_tokens))


@BY_NAME
def test_the_whole_body_is_the_stream_folded(shape: Shape) -> None:
    """The body of a client that waits says what the chunks of a client that streams add up to."""
    encoder, data = _frames(shape, Surface(stream=False))
    assert data == []
    if shape.expected.error is not None:
        assert json.loads(encoder.body())["error"]["code"] == shape.expected.error
        return
    completion = ChatCompletion.model_validate_json(encoder.body())
    message = completion.choices[0].message
    calls = [_seen_call(call) for call in message.tool_calls or ()]
    assert calls == [item for item in shape.expected.items if item[0] == "call"]
    assert (message.content or None) == _joined(shape, "text")
    assert getattr(message, "reasoning_content", None) == _joined(shape, "reasoning")
    assert completion.choices[0].finish_reason == FINISH_REASONS[shape.expected.stop or ""]


def _shape(name: str) -> Shape:
    return next(shape for shape in ALL_SHAPES if shape.name == name)


@pytest.mark.parametrize("streams", [True, False])
def test_what_chat_alone_can_say_reaches_a_chat_client(streams: bool) -> None:
    """Logprobs, audio, images, annotations, unknown fields and sealed reasoning, as the SDK reads them."""
    assert _message("logprobs", streams)["logprobs"] == {
        "content": [
            {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []},
            {"token": "<end>", "logprob": -0.1, "bytes": None, "top_logprobs": []},
        ],
        "refusal": None,
    }
    message = _message("images_audio_and_unknown_fields", streams)["message"]
    assert message["audio"] == {"id": "audio_1", "transcript": "Hi", "data": "UklGRg==", "expires_at": 9}
    assert message["mood"] == "glad"
    url = {"url": "data:image/png;base64,AA=="}
    assert message["images"] == [{"type": "image_url", "index": 0, "image_url": url}]
    assert message["annotations"] == [{"type": "url_citation", "url_citation": CITATION}]
    maker = {"provider": "", "model": ""}
    assert _message("sealed_reasoning", streams)["message"]["reasoning_details"] == [
        {
            "type": "reasoning.text",
            "format": "anthropic-claude-v1",
            "index": 0,
            "text": "hm",
            "signature": "sig",
            "treadle": maker,
        },
        {"type": "reasoning.encrypted", "data": "late", "index": 1, "treadle": maker},
    ]


def _message(name: str, streams: bool) -> dict[str, Any]:
    """Return the choice that the SDK makes of our answer."""
    encoder, data = _frames(_shape(name), Surface(stream=streams))
    if not streams:
        return ChatCompletion.model_validate_json(encoder.body()).choices[0].model_dump()
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for line in data[:-1]:
        state.handle_chunk(_parsed(line))
    return state.current_completion_snapshot.choices[0].model_dump()
