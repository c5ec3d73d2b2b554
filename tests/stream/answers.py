"""What a stream amounts to, so that one table of shapes can judge every codec."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from treadle.core.events import (
    ArgumentsDelta,
    Failed,
    Finished,
    ItemAdded,
    ItemDone,
    ModelEvent,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
)
from treadle.core.items import (
    AnyItem,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    RefusalPart,
    TextPart,
    text_of,
)
from treadle.core.usage import Usage

CHUNK_SIZES = (1, 2, 3, 5, 7, 11, 23, 64, 256, 4096, 1 << 30)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one model call: items as (kind, content), how it ended, what was noted."""

    items: tuple[tuple[str, ...], ...] = ()
    stop: str | None = None
    error: str | None = None
    usage: Usage | None = None
    notes: tuple[str, ...] = ()


def pieces(body: bytes, size: int) -> list[bytes]:
    """Cut a body into pieces of one size."""
    return [body[start : start + size] for start in range(0, len(body), size)]


def decode(decoder: Any, body: bytes, size: int = 1 << 30) -> list[ModelEvent]:
    """Feed a body in pieces of one size and return all events."""
    events: list[ModelEvent] = []
    for piece in pieces(body, size):
        events += decoder.feed(piece)
    return events + decoder.finish()


def unsteady(events_at: Callable[[int], list[ModelEvent]]) -> dict[int, list[ModelEvent]]:
    """Return what a stream amounts to at each chunk size at which it is not what it is in one piece."""
    whole = merged(events_at(1 << 30))
    return {size: got for size in CHUNK_SIZES if (got := merged(events_at(size))) != whole}


def merged(events: Iterable[ModelEvent]) -> list[ModelEvent]:
    """Join adjacent deltas of the same item and part: the only thing that chunking may change."""
    result: list[ModelEvent] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta) and _continues(last, event):
            result[-1] = msgspec.structs.replace(last, text=last.text + event.text)  # type: ignore[union-attr]
        else:
            result.append(event)
    return result


def _continues(last: Any, event: Any) -> bool:
    if type(last) is not type(event):
        return False
    return last.index == event.index and getattr(last, "part", 0) == getattr(event, "part", 0)


def answer(events: list[ModelEvent]) -> Answer:
    """Fold events, checking on the way that they keep the contract of core/events.py."""
    check_contract(events)
    last = events[-1]
    notes = tuple(event.note.code for event in events if isinstance(event, Noted))
    items = tuple(_content(event.item) for event in events if isinstance(event, ItemDone))
    if isinstance(last, Failed):
        return Answer(items=items, error=last.error.code, notes=notes)
    assert isinstance(last, Finished)
    return Answer(items=items, stop=last.stop, usage=last.usage, notes=notes)


def check_contract(events: list[ModelEvent]) -> None:
    """Assert: one terminal, last; added before deltas before done; deltas add up; done in order of appearance."""
    terminals = [event for event in events if isinstance(event, Finished | Failed)]
    assert terminals == events[-1:]
    added: dict[int, AnyItem] = {}
    said: dict[int, dict[int, str]] = {}
    done: list[int] = []
    for event in events:
        if isinstance(event, ItemAdded):
            assert event.index not in added
            added[event.index] = event.item
            said[event.index] = {}
        elif isinstance(event, TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta):
            assert event.text or getattr(event, "extra", None)
            assert event.index not in done
            event.text.encode()
            # What stands in front is not always told first: a text that may become a call is held back.
            is_summary = isinstance(event, ReasoningDelta) and event.is_summary
            place = -1 if is_summary else event.part if isinstance(event, TextDelta | RefusalDelta) else 0
            said[event.index][place] = said[event.index].get(place, "") + event.text
        elif isinstance(event, ItemDone):
            assert event.item.id == added[event.index].id
            assert "".join([text for _, text in sorted(said[event.index].items())]) == _whole(event.item)
            done.append(event.index)
    assert done == sorted(done, key=list(added).index)
    if isinstance(events[-1], Finished):
        # A call that the end of the answer cut never ends.
        is_cut = events[-1].stop in ("length", "filtered")
        assert done == [at for at, item in added.items() if at in done or not (is_cut and isinstance(item, CallItem))]
    calls = [item.call_id for item in added.values() if isinstance(item, CallItem)]
    assert all(calls)
    assert len(calls) == len(set(calls))


def _whole(item: AnyItem) -> str:
    """Return what the deltas of an item must add up to."""
    if isinstance(item, MessageItem):
        return "".join(part.text for part in item.content if isinstance(part, TextPart | RefusalPart))
    return _content(item)[-1]


def _content(item: AnyItem) -> tuple[str, ...]:
    match item:
        case MessageItem():
            refusals = "".join(part.text for part in item.content if isinstance(part, RefusalPart))
            return ("refusal", refusals) if refusals else ("text", text_of(item.content))
        case ReasoningItem():
            return ("reasoning", "".join((*item.summary, *item.text)))
        case CallItem():
            return ("call", item.name, item.arguments)
        case OpaqueItem():
            return ("opaque", bytes(item.raw).decode(), "")
        case _:
            raise AssertionError(item)


def as_run(events: list[ModelEvent], response_id: str = "chatcmpl_0001") -> list[RunEvent]:
    """Return the run of one round that these model events make, all calls being the client's."""
    last = events[-1]
    between = [event for event in events if not isinstance(event, Finished | Failed)]
    started = RunStarted(run_id="run_0001", response_id=response_id, model="m", created_at=1_700_000_000.5)
    if isinstance(last, Failed):
        ended = RunEnded(status="failed", error=last.error)
    else:
        assert isinstance(last, Finished)
        status = {"calls": "requires_action", "length": "incomplete", "filtered": "incomplete"}.get(last.stop)
        ended = RunEnded(status=status or "completed", stop=last.stop, usage=last.usage)  # type: ignore[arg-type]
    return [started, *between, ended]
