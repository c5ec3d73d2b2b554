"""Which of several stop sequences ended an answer: told to clients whose API has a place for it."""

import json
from typing import Any

import pytest
from anthropic.types import Message

from stream.answers import CHUNK_SIZES, as_run, decode
from treadle.core.events import Finished, ModelEvent, Noted, RunEnded
from treadle.core.ids import CountingIds
from treadle.core.request import Options, Request, Surface
from treadle.protocols.protocol_registry import PROTOCOLS


def frames(*events: dict[str, Any], named: bool = False) -> bytes:
    """Return events as a stream."""
    heads = [f"event: {event['type']}\n" if named else "" for event in events]
    return "".join(f"{head}data: {json.dumps(event)}\n\n" for head, event in zip(heads, events, strict=True)).encode()


def message(sequence: Any, *, streams: bool = True, reason: str = "stop_sequence") -> bytes:
    """Return an answer of a Messages upstream that ended at a sequence."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    ending = {"stop_reason": reason, "stop_sequence": sequence}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "usage": usage}
    if not streams:
        return json.dumps({**head, "content": [{"type": "text", "text": "a"}], **ending}).encode()
    return frames(
        {"type": "message_start", "message": {**head, "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ending, "usage": usage},
        {"type": "message_stop"},
        named=True,
    )


def completion(*, streams: bool = True, **fields: Any) -> bytes:
    """Return an answer of a Chat upstream that ended at a sequence, as vLLM or SGLang says it."""
    if not streams:
        return json.dumps({"choices": [{"message": {"content": "a"}, "finish_reason": "stop", **fields}]}).encode()
    last = {"index": 0, "delta": {}, "finish_reason": "stop", **fields}
    return frames({"choices": [{"index": 0, "delta": {"content": "a"}}]}, {"choices": [last]}) + b"data: [DONE]\n\n"


def shown(events: list[ModelEvent], stop: tuple[str, ...], *, streams: bool) -> dict[str, Any]:
    """Return how a message ends for a Messages client that gave these sequences."""
    request = Request(protocol="messages", model="m", options=Options(stop=stop), surface=Surface(stream=streams))
    encoder = PROTOCOLS["messages"].codec.encoder(request, CountingIds())
    finished = events[-1]
    assert isinstance(finished, Finished)
    status = "incomplete" if finished.stop == "length" else "completed"
    run = [*as_run(events)[:-1], RunEnded(status=status, stop=finished.stop)]
    sent = b"".join(frame for event in run for frame in encoder.feed(event))
    if not streams:
        whole = json.loads(encoder.body())
        assert Message.model_validate(whole).stop_sequence == whole["stop_sequence"]
        return {name: whole[name] for name in ("stop_reason", "stop_sequence")}
    lines = [json.loads(line[6:]) for line in sent.decode().splitlines() if line.startswith("data: ")]
    (ending,) = [line["delta"] for line in lines if line["type"] == "message_delta"]
    return ending


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("upstream_streams", [True, False])
@pytest.mark.parametrize(
    ("upstream", "make"),
    [
        ("messages", lambda streams: message("END", streams=streams)),
        ("chat", lambda streams: completion(streams=streams, stop_reason="END")),
        ("chat", lambda streams: completion(streams=streams, matched_stop="END")),
    ],
    ids=["messages", "vllm", "sglang"],
)
def test_a_messages_client_hears_which_sequence_it_was(
    upstream: str, make: Any, upstream_streams: bool, streams: bool
) -> None:
    """Where the upstream says it, of several that the client gave; in any chunking."""
    for size in CHUNK_SIZES:
        events = decode(PROTOCOLS[upstream].codec.decoder(CountingIds()), make(upstream_streams), size)
        ending = shown(events, ("STOP", "END"), streams=streams)
        assert ending == {"stop_reason": "stop_sequence", "stop_sequence": "END"}


@pytest.mark.parametrize(
    ("body", "upstream", "stop", "ending"),
    [
        (message(None), "messages", ("a", "b"), ("stop_sequence", None)),
        (message(None), "messages", ("a",), ("stop_sequence", "a")),
        (message(["odd"]), "messages", ("a", "b"), ("stop_sequence", None)),
        (message("END", reason="end_turn"), "messages", ("END", "b"), ("end_turn", None)),
        (completion(stop_reason=151645), "chat", ("a", "b"), ("end_turn", None)),
        (completion(stop_reason=None), "chat", ("a",), ("end_turn", None)),
        (completion(finish_reason="length", stop_reason="END"), "chat", ("END",), ("max_tokens", None)),
    ],
)
def test_what_is_not_said_is_not_made_up(body: bytes, upstream: str, stop: Any, ending: Any) -> None:
    """One sequence alone needs no saying; a number is a token, and no sequence at all is none."""
    events = decode(PROTOCOLS[upstream].codec.decoder(CountingIds()), body)
    told = shown(events, stop, streams=False)
    assert (told["stop_reason"], told["stop_sequence"]) == ending


def test_a_sequence_without_end_is_cut() -> None:
    """A note is no place for a megabyte."""
    events = decode(PROTOCOLS["messages"].codec.decoder(CountingIds()), message("x" * 100_000))
    (note,) = [event.note for event in events if isinstance(event, Noted)]
    assert (note.code, len(note.message) <= 1_100) == ("stop_sequence", True)
