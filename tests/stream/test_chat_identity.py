"""What Treadle writes as an upstream would, it reads as the same items, however the bytes are cut."""

from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.answers import check_contract, decode
from treadle.core.events import ArgumentsDelta, ItemAdded, ItemDone, RunEnded, RunEvent, RunStarted, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import AnyItem, CallItem, ImagePart, MessageItem, ReasoningItem, RefusalPart, TextPart
from treadle.core.json import write_json
from treadle.core.request import Request, Surface
from treadle.protocols.chat import Decoder, Encoder

_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
_TOKENS = st.none() | st.lists(st.builds(lambda token: {"token": token}, _TEXT), min_size=1, max_size=3)
_CITATIONS = st.none() | st.just([{"type": "url_citation", "url": "u", "start_index": 0, "end_index": 1}])
_JSON = st.dictionaries(_TEXT, st.integers() | _TEXT | st.lists(st.booleans()), max_size=3)


def _raw(value: Any) -> msgspec.Raw | None:
    return None if value is None else msgspec.Raw(write_json(value))


_TEXTS = st.builds(
    lambda text, tokens, marks: TextPart(text=text, logprobs=_raw(tokens), annotations=_raw(marks)),
    _TEXT,
    _TOKENS,
    _CITATIONS,
)
_REFUSALS = st.builds(lambda text, tokens: RefusalPart(text=text, logprobs=_raw(tokens)), _TEXT, _TOKENS)
_IMAGES = st.builds(lambda text: ImagePart(url=f"data:{text}"), _TEXT)


@st.composite
def _answers(draw: st.DrawFn) -> list[AnyItem]:
    """Return the items of one answer: thoughts, then words, then calls.

    Annotations are known at the end of the answer only, so they stand alone.
    """
    items: list[AnyItem] = []
    if draw(st.booleans()):
        items.append(ReasoningItem(text=(draw(_TEXT),)))
    calls = draw(st.integers(0, 3))
    texts = st.builds(lambda part: msgspec.structs.replace(part, annotations=None), _TEXTS) if calls else _TEXTS
    parts = (*draw(st.lists(texts, max_size=1)), *draw(st.lists(_REFUSALS, max_size=1)))
    parts = (*parts, *draw(st.lists(_IMAGES, max_size=2)))
    if parts:
        items.append(MessageItem(role="assistant", content=parts))
    for number in range(calls):
        arguments = write_json(draw(_JSON)).decode()
        kind, text = draw(st.sampled_from([("function", arguments), ("custom", draw(_TEXT))]))
        items.append(CallItem(call_id=f"call_{number}", name="f", arguments=text, kind=kind))  # type: ignore[arg-type]
    return items


def _run(items: list[AnyItem]) -> Iterator[RunEvent]:
    yield RunStarted(run_id="run_1", response_id="chatcmpl_1", model="m", created_at=1.0)
    for index, item in enumerate(items):
        empty = {"content": ()} if isinstance(item, MessageItem) else {}
        empty = {"arguments": ""} if isinstance(item, CallItem) else empty
        empty = {"text": ()} if isinstance(item, ReasoningItem) else empty
        yield ItemAdded(index=index, item=msgspec.structs.replace(item, **empty))
        if isinstance(item, CallItem):
            yield from (ArgumentsDelta(index=index, text=char) for char in item.arguments)
        elif isinstance(item, MessageItem) and isinstance(item.content[0], TextPart):
            yield TextDelta(index=index, text=item.content[0].text)
        yield ItemDone(index=index, item=item)
    has_calls = any(isinstance(item, CallItem) for item in items)
    yield RunEnded(status="requires_action" if has_calls else "completed", stop="calls" if has_calls else "done")


def _bare(item: AnyItem) -> AnyItem:
    changes = {"upstream_id": None} if isinstance(item, CallItem) else {}
    return msgspec.structs.replace(item, id="", **changes)


@settings(max_examples=2 * settings.default.max_examples)
@given(_answers(), st.integers(1, 64), st.booleans())
def test_what_is_written_to_a_client_is_read_from_an_upstream(items: list[AnyItem], size: int, streams: bool) -> None:
    """Text, refusals, images, logprobs, annotations, reasoning, functions and custom calls, streamed and whole."""
    encoder = Encoder(Request(protocol="chat", model="m", surface=Surface(stream=streams)), CountingIds())
    sent = b"".join(frame for event in _run(items) for frame in encoder.feed(event))
    events = decode(Decoder(CountingIds()), sent if streams else encoder.body(), size)
    check_contract(events)
    assert [_bare(event.item) for event in events if isinstance(event, ItemDone)] == items
