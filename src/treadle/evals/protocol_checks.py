"""Checks what clients receive of a run in every protocol, as written by the real encoder. Does no I/O.

Each frame is JSON, the stream ends exactly once as its protocol requires, numbers have no gaps, ids are unique to a
call, and decoding the stream gives the text and the calls that the journal has.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import msgspec

from treadle.core.events import Failed, ItemDone, ModelEvent, RunEnded, RunStarted
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem, MessageItem, text_of
from treadle.core.journal_entries import item_of_entry
from treadle.core.json import BadJson, canonical_json, read_json
from treadle.core.request import Request, Surface
from treadle.core.run_endings import failure_of
from treadle.evals.transcript import PlayedRun, Transcript
from treadle.protocols.protocol_registry import CHAT, GEMINI, MESSAGES, PROTOCOLS, RESPONSES
from treadle.protocols.sse import SseFrame, SseReader

_DONE = "[DONE]"
Chunk = dict[str, Any]


def wire_problems(transcript: Transcript) -> list[str]:
    """Return what is wrong with what clients of each protocol are sent, one sentence each."""
    return [
        f"run {number} to a {client} client: {problem}"
        for number, run in enumerate(transcript.runs, 1)
        for client in PROTOCOLS
        for problem in _problems(transcript, run, client)
    ]


def sent(transcript: Transcript, run: PlayedRun, client: str) -> bytes:
    """Return the stream that a client of this protocol gets of a run."""
    surface = Surface(stream=True, include_usage=True)
    request = Request(protocol=client, model="script", tools=transcript.client_tools, surface=surface)
    encoder = PROTOCOLS[client].codec.encoder(request, CountingIds(namespace="c"))
    return b"".join(frame for event in run.events for frame in encoder.feed(event))


def _problems(transcript: Transcript, run: PlayedRun, client: str) -> Iterator[str]:
    if not run.events or not isinstance(run.events[0], RunStarted) or not isinstance(run.events[-1], RunEnded):
        yield "its events do not begin and end as those of a run"
        return
    data = sent(transcript, run, client)
    reader = SseReader()
    frames = [*reader.feed(data), *reader.finish()]
    try:
        chunks = [cast("Chunk", read_json(frame.data)) for frame in frames if frame.data != _DONE]
    except BadJson as error:
        yield f"a frame is not JSON: {error}"
        return
    yield from _ENDINGS[client](frames, chunks, failure_of(run.events[-1]) is not None)
    yield from _differences(run, client, data)


def _chat(frames: Sequence[SseFrame], chunks: Sequence[Chunk], has_failed: bool) -> Iterator[str]:
    """Judge the end of a Chat stream: one finish reason, then `[DONE]`, once and last."""
    done = [place for place, frame in enumerate(frames) if frame.data == _DONE]
    if done != [len(frames) - 1]:
        yield f"[DONE] must come once and last, it came at {done} of {len(frames)}"
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk.get("choices", [])]
    ends = [reason for reason in reasons if reason is not None]
    if len(ends) != 1 and not has_failed:
        yield f"one finish reason must come, there are {ends}"


def _responses(frames: Sequence[SseFrame], chunks: Sequence[Chunk], has_failed: bool) -> Iterator[str]:
    """Judge a Responses stream: numbered from 0 without a gap, one terminal event, named as its type."""
    numbers = [chunk.get("sequence_number") for chunk in chunks]
    if numbers != list(range(len(chunks))):
        yield f"sequence numbers have a gap: {numbers}"
    kinds = [str(chunk["type"]) for chunk in chunks]
    terminal = [kind for kind in kinds if kind in ("response.completed", "response.incomplete", "response.failed")]
    if len(terminal) != 1 or kinds[-1] != terminal[0]:
        yield f"one terminal event must come, and last; there are {terminal}"
    if [frame.event for frame in frames if frame.data != _DONE] != kinds:
        yield "a frame is not named as its type"


def _messages(frames: Sequence[SseFrame], chunks: Sequence[Chunk], has_failed: bool) -> Iterator[str]:
    """Judge a Messages stream: blocks open and close one after the other, and message_stop comes last."""
    kinds = [str(chunk["type"]) for chunk in chunks if chunk["type"] != "ping"]
    last = "error" if has_failed and "error" in kinds else "message_stop"
    if kinds[:1] != ["message_start"] and not has_failed:
        yield "it does not begin with message_start"
    if kinds.count(last) != 1 or kinds[-1] != last:
        yield f"{last} must come once and last"
    opened = [chunk["index"] for chunk in chunks if chunk["type"] == "content_block_start"]
    if opened != list(range(len(opened))):
        yield f"blocks are not numbered from 0: {opened}"


def _gemini(frames: Sequence[SseFrame], chunks: Sequence[Chunk], has_failed: bool) -> Iterator[str]:
    """Judge a Gemini stream: one finish reason at most for each candidate."""
    reasons = [
        candidate["finishReason"]
        for chunk in chunks
        for candidate in chunk.get("candidates", [])
        if "finishReason" in candidate
    ]
    if len(reasons) != 1 and not has_failed:
        yield f"one finish reason must come, there are {reasons}"


_ENDINGS: dict[str, Callable[[Sequence[SseFrame], Sequence[Chunk], bool], Iterator[str]]] = {
    CHAT: _chat,
    RESPONSES: _responses,
    MESSAGES: _messages,
    GEMINI: _gemini,
}


class _Amount(msgspec.Struct, frozen=True, kw_only=True):
    """What a run amounts to for its client: the text, and the calls that are the client's to make."""

    text: str
    calls: tuple[tuple[str, str], ...]


def _differences(run: PlayedRun, client: str, data: bytes) -> Iterator[str]:
    """Decode the stream and compare it with the journal."""
    decoder = PROTOCOLS[client].codec.decoder(CountingIds(), provider="treadle", model="script")
    events = [*decoder.feed(data), *decoder.finish()]
    ended = run.events[-1]
    assert isinstance(ended, RunEnded)
    if isinstance(events[-1], Failed) != (failure_of(ended) is not None):
        yield f"it ends {'broken' if isinstance(events[-1], Failed) else 'well'}, the run {ended.status}"
    elif not isinstance(events[-1], Failed) and (got := _heard(events)) != (kept := _kept(run)):
        yield f"it says {got.text[:200]!r} {got.calls}, the journal {kept.text[:200]!r} {kept.calls}"


def _heard(events: Sequence[ModelEvent]) -> _Amount:
    items = [event.item for event in events if isinstance(event, ItemDone)]
    return _Amount(
        text=_flat(text_of(item.content) for item in items if isinstance(item, MessageItem)),
        calls=tuple(_call(item) for item in items if isinstance(item, CallItem)),
    )


def _kept(run: PlayedRun) -> _Amount:
    kinds = ("assistant", "tool_call")
    items = [item_of_entry(entry) for entry in run.entries if entry.kind in kinds and not entry.is_input]
    calls = [item for item in items if isinstance(item, CallItem) and item.side == "client"]
    return _Amount(
        text=_flat(text_of(item.content) for item in items if isinstance(item, MessageItem)),
        calls=tuple(_call(item) for item in calls),
    )


def _flat(texts: Iterator[str]) -> str:
    """Join the texts of a run; how they are set apart is each protocol's own."""
    return "".join("".join(texts).split())


def _call(item: CallItem) -> tuple[str, str]:
    try:
        return item.name, canonical_json(read_json(item.arguments or "{}")).decode()
    except BadJson:
        return item.name, item.arguments
