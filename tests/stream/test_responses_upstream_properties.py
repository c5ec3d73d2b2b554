"""What holds for every answer of a Responses upstream, and that Treadle itself is one."""

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.answers import check_contract, decode, merged
from stream.responses_oracle import request
from treadle.core.events import (
    ArgumentsDelta,
    Finished,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
)
from treadle.core.ids import CountingIds
from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    MessageItem,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from treadle.core.usage import Usage
from treadle.protocols.responses import Decoder, Encoder
from treadle.protocols.responses.encrypted_content import unseal

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NAMES = st.text("abcdefgh_", min_size=1, max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


def _decoder() -> Decoder:
    return Decoder(CountingIds(), provider="up", model="m")


# -- broken input ---------------------------------------------------------------------------------------------------

KINDS = st.sampled_from(
    [
        *[
            f"response.{name}.{step}"
            for name in ("output_text", "refusal", "reasoning_text")
            for step in ("delta", "done")
        ],
        *[f"response.function_call_arguments.{step}" for step in ("delta", "done")],
        *[f"response.custom_tool_call_input.{step}" for step in ("delta", "done")],
        *[f"response.output_tool_call.{step}" for step in ("begin", "delta", "end")],
        *[f"response.reasoning_summary_text.{step}" for step in ("delta", "done")],
        *[f"response.{name}.done" for name in ("content_part", "reasoning_summary_part")],
        *[f"response.output_item.{step}" for step in ("added", "done")] * 4,
        "response.output_text.annotation.added",
        "response.completed",
        "response.created",
        "error",
        "",
    ]
)
IDS = st.sampled_from(["", "a", "b", "c"]) | st.none() | st.integers(0, 2)
INDEXES = st.integers(-1, 3) | st.none() | st.just("0")
TEXTS = st.sampled_from(["", "x", "xy", "{", '{"a":', "1}", '{"a":1}', "null", "\ud83d", "\ude00"]) | st.none() | VALUES
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["output_text", "refusal", "reasoning_text", "summary_text", "odd"])},
    optional={"text": TEXTS, "refusal": TEXTS, "annotations": VALUES, "logprobs": VALUES},
)
ITEMS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call", "mcp_call", ""]),
        "id": IDS,
        "call_id": IDS,
        "name": st.sampled_from(["f", "g", ""]),
        "arguments": TEXTS,
        "input": TEXTS,
        "content": st.lists(PARTS, max_size=3) | TEXTS,
        "summary": st.lists(PARTS, max_size=3) | TEXTS,
        "encrypted_content": TEXTS,
    },
)
EVENTS = st.fixed_dictionaries(
    {"type": KINDS},
    optional={
        "output_index": INDEXES,
        "item_id": IDS,
        "content_index": INDEXES,
        "summary_index": INDEXES,
        "delta": TEXTS,
        "text": TEXTS,
        "refusal": TEXTS,
        "arguments": TEXTS,
        "input": TEXTS,
        "name": st.sampled_from(["f", "g", ""]),
        "call_id": IDS,
        "annotation": VALUES,
        "logprobs": VALUES,
        "part": PARTS | VALUES,
        "item": ITEMS | VALUES,
        "response": st.fixed_dictionaries({}, optional={"status": TEXTS, "output": st.lists(ITEMS), "usage": VALUES}),
    },
)


def _end() -> bytes:
    return b'data: {"type":"response.completed","response":{"status":"completed"}}\n\n'


@given(st.binary(max_size=400), st.integers(1, 50))
def test_no_bytes_make_the_decoder_raise(data: bytes, size: int) -> None:
    """Whatever comes, the answer ends in exactly one Finished or Failed."""
    check_contract(decode(_decoder(), data, size))


@settings(max_examples=2 * settings.default.max_examples)
@given(st.lists(EVENTS, max_size=14), st.sampled_from([1, 2, 3, 5, 7, 11, 23, 64, 256, 4096]))
def test_no_soup_of_events_breaks_the_contract(events: list[dict[str, Any]], size: int) -> None:
    """Items begin, grow and end in order whatever the upstream mixes up, in every chunking alike."""
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + _end()
    whole = decode(_decoder(), body)
    check_contract(whole)
    assert merged(decode(_decoder(), body, size)) == merged(whole)


@given(VALUES | st.fixed_dictionaries({"output": st.lists(ITEMS), "status": TEXTS}))
def test_no_document_breaks_the_contract(value: Any) -> None:
    """A whole JSON body of any shape is an answer or a failure."""
    check_contract(decode(_decoder(), json.dumps(value).encode()))


# -- Treadle as an upstream -----------------------------------------------------------------------------------------

SPOKEN = st.lists(st.builds(TextPart, text=WORDS) | st.builds(RefusalPart, text=WORDS), max_size=3).map(tuple)
MESSAGES = st.builds(MessageItem, role=st.just("assistant"), content=SPOKEN, phase=st.none() | st.just("commentary"))
THOUGHTS = st.builds(
    ReasoningItem,
    summary=st.lists(WORDS, max_size=2).map(tuple),
    text=st.lists(WORDS, max_size=2).map(tuple),
    blobs=st.sampled_from([(), (Blob(provider="p", kind="encrypted_content", data="é", model="q"),)]),
)
ARGUMENTS = st.dictionaries(WORDS, VALUES, max_size=3).map(json.dumps)
CALLS = st.builds(CallItem, call_id=st.just(""), name=NAMES, arguments=ARGUMENTS) | st.builds(
    CallItem, call_id=st.just(""), name=NAMES, arguments=WORDS, kind=st.just("custom")
)
ANSWERS = st.lists(MESSAGES | THOUGHTS | CALLS, max_size=5)
USAGES = st.none() | st.builds(
    Usage,
    **{name: st.integers(0, 9) for name in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")},
)


def _named(items: list[AnyItem]) -> list[AnyItem]:
    named: list[AnyItem] = []
    for number, item in enumerate(items):
        item = msgspec.structs.replace(item, id=f"item_{number}")
        if isinstance(item, CallItem):
            item = msgspec.structs.replace(item, call_id=f"call_{number}")
        named.append(item)
    return named


def _deltas(index: int, item: AnyItem, cut: int) -> list[RunEvent]:
    match item:
        case MessageItem():
            return [
                (TextDelta if isinstance(part, TextPart) else RefusalDelta)(index=index, part=number, text=piece)
                for number, part in enumerate(item.content)
                for piece in _cut(part.text, cut)  # type: ignore[union-attr]
            ]
        case ReasoningItem():
            return [
                ReasoningDelta(index=index, part=number, text=piece, is_summary=texts is item.summary)
                for texts in (item.summary, item.text)
                for number, text in enumerate(texts)
                for piece in _cut(text, cut)
            ]
        case CallItem():
            return [ArgumentsDelta(index=index, text=piece) for piece in _cut(item.arguments, cut)]
        case _:
            return []


def _cut(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _run(items: list[AnyItem], cut: int, usage: Usage | None, order: list[int]) -> list[RunEvent]:
    """Return a run of these items; `order` says whose event comes next, so that items overlap."""
    queues: list[list[RunEvent]] = []
    for index, item in enumerate(items):
        empty: dict[str, Any] = {"content": (), "summary": (), "text": (), "arguments": "", "blobs": ()}
        begun = msgspec.structs.replace(item, **{k: v for k, v in empty.items() if k in item.__struct_fields__})
        queues.append(
            [ItemAdded(index=index, item=begun), *_deltas(index, item, cut), ItemDone(index=index, item=item)]
        )
    events: list[RunEvent] = [queue.pop(0) for queue in queues]
    for turn in order:
        queue = queues[turn % len(queues)] if queues else []
        if queue:
            events.append(queue.pop(0))
    calls = any(isinstance(item, CallItem) for item in items)
    started = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1.0)
    status = "requires_action" if calls else "completed"
    rest = [event for queue in queues for event in queue]
    return [started, *events, *rest, RunEnded(status=status, stop="calls" if calls else "done", usage=usage)]


def _compared(item: AnyItem) -> Any:
    """Return what of an item must survive: everything but the ids, which every server gives itself."""
    match item:
        case MessageItem():
            return (item.role, item.content, item.phase)
        case ReasoningItem():
            sealed = [blob for blob in item.blobs if blob.kind == "encrypted_content"]
            opened = unseal(sealed[0].data) if sealed and sealed[0].provider == "up" else item.blobs
            return (item.summary, item.text, opened)
        case CallItem():
            return (item.call_id, item.name, item.arguments, item.kind)
        case _:
            return item


def _without_item_ids(item: AnyItem) -> AnyItem:
    if isinstance(item, ReasoningItem):
        kept = tuple(blob for blob in item.blobs if blob.kind != "item_id")
        return msgspec.structs.replace(item, blobs=kept)
    return item


@settings(max_examples=2 * settings.default.max_examples)
@given(
    items=ANSWERS,
    cut=st.integers(1, 6),
    usage=USAGES,
    order=st.lists(st.integers(0, 9), max_size=30),
    size=st.sampled_from([1, 2, 3, 5, 7, 11, 23, 64, 256, 4096, 1 << 30]),
    extended=st.booleans(),
    streams=st.booleans(),
)
def test_treadle_is_an_upstream_of_treadle(
    items: list[AnyItem],
    cut: int,
    usage: Usage | None,
    order: list[int],
    size: int,
    extended: bool,
    streams: bool,
) -> None:
    """What our server writes, streamed or whole, our decoder reads as the same items, stop and usage."""
    asked = request(stream=streams)
    encoder = Encoder(asked, CountingIds(namespace="s"), extended=extended)
    named = _named(items)
    raw = b"".join(frame for event in _run(named, cut, usage, order) for frame in encoder.feed(event))
    events = decode(_decoder(), raw if streams else encoder.body(), size)
    check_contract(events)
    found = [_without_item_ids(event.item) for event in events if isinstance(event, ItemDone)]
    assert [_compared(item) for item in found] == [_compared(item) for item in named]
    stop = "calls" if any(isinstance(item, CallItem) for item in items) else "done"
    assert events[-1] == Finished(stop=stop, usage=usage, raw_stop="completed")
