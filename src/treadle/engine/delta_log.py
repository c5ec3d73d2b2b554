"""Records how a model call's items were split into deltas, so that the journal can reproduce every event exactly.

The items themselves are journalled whole. The log adds the order of events and the length of each delta, so a reader
can resume a stream at any event. What cannot be derived from a finished item (a delta with logprobs, an item that
never ended) is stored verbatim. Tokens, each a list:

    ["+", index]                        an item starts
    [code, index, part, length, …]      its deltas: t text, f refusal, r reasoning, s summary, a arguments
    ["=", index] and ["="]              the next entry of the call: a finished item, or a note
    ["x", event]                        an event, verbatim
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    Noted,
    Numbered,
    ReasoningDelta,
    RefusalDelta,
    RunEvent,
    TextDelta,
    read_event,
)
from treadle.core.items import AnyItem, CallItem, MessageItem, ReasoningItem, RefusalPart, TextPart

DeltaLog = list[list[Any]]
Delta = TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta
_TextKey = tuple[str, int]
"""Identifies one text of an item: the code of its deltas and the number of its part."""
_CODES = ("t", "f", "r", "s", "a")


def encode_deltas(events: Sequence[RunEvent]) -> DeltaLog:
    """Return the log of one model call's events."""
    log: DeltaLog = []
    started: dict[int, AnyItem] = {}
    texts_by_index: dict[int, dict[_TextKey, list[str]]] = {}
    underivable: set[int] = set()
    last: tuple[str, int, int] | None = None
    lengths: list[Any] = []
    texts: list[str] = []
    for event in events:
        if type(event) is TextDelta:
            place, is_plain = ("t", event.index, event.part), event.logprobs is None and event.extra is None
        elif type(event) is ArgumentsDelta:
            place, is_plain = ("a", event.index, 0), True
        elif type(event) is ReasoningDelta:
            place, is_plain = ("s" if event.is_summary else "r", event.index, event.part), True
        elif type(event) is RefusalDelta:
            place, is_plain = ("f", event.index, event.part), event.logprobs is None
        else:
            last = None
            if type(event) is ItemAdded:
                started[event.index] = event.item
                log.append(["+", event.index])
            elif type(event) is ItemDone:
                if not _is_derivable(event.item, started.pop(event.index, None), texts_by_index.pop(event.index, None)):
                    underivable.add(event.index)
                log.append(["=", event.index])
            else:
                log.append(["="] if type(event) is Noted else _verbatim(event))
            continue
        if place != last:
            last, lengths = place, [*place]
            log.append(lengths)
            texts = texts_by_index.setdefault(event.index, {}).setdefault((place[0], place[2]), [])
        lengths.append(len(event.text))
        texts.append(event.text)
        if not is_plain:
            underivable.add(event.index)
    # What is left never ended, so no finished item is journalled to derive it from.
    underivable.update(started, texts_by_index)
    return _with_verbatim_items(log, events, underivable) if underivable else log


def message_parts(events: Sequence[RunEvent], index: int) -> tuple[TextPart | RefusalPart, ...]:
    """Return the content received so far of the message at that index."""
    texts: dict[tuple[int, bool], list[str]] = {}
    for event in events:
        if isinstance(event, TextDelta | RefusalDelta | ReasoningDelta) and event.index == index:
            texts.setdefault((event.part, type(event) is RefusalDelta), []).append(event.text)
    return tuple(
        RefusalPart(text="".join(pieces)) if is_refusal else TextPart(text="".join(pieces))
        for (_, is_refusal), pieces in sorted(texts.items())
    )


def _is_derivable(item: AnyItem, started: AnyItem | None, texts_by_key: dict[_TextKey, list[str]] | None) -> bool:
    """Return whether an item's start and its deltas can be derived from the finished item."""
    if texts_by_key:
        whole = texts_of_item(item)
        for place, texts in texts_by_key.items():
            if "".join(texts) != whole.get(place):
                return False
    return started == empty_item(item)


def _with_verbatim_items(log: DeltaLog, events: Sequence[RunEvent], underivable: set[int]) -> DeltaLog:
    """Replace the tokens of some items by their events, verbatim."""
    tokens: DeltaLog = []
    at = 0
    for token in log:
        count = len(token) - 3 if token[0] in _CODES else 1
        if token[0] not in ("=", "x") and token[1] in underivable:
            tokens += [_verbatim(event) for event in events[at : at + count]]
        else:
            tokens.append(token)
        at += count
    return tokens


def _verbatim(event: RunEvent) -> list[Any]:
    return ["x", msgspec.Raw(msgspec.json.encode(event))]


def replay_events(log: DeltaLog, saved: Sequence[tuple[int, AnyItem | Noted]]) -> list[Numbered]:
    """Return the events of a call; `saved` are its items and notes with their sequence numbers, in order.

    Raises: ValueError for a log that does not fit its entries.
    """
    items, texts = _items_by_index(log, saved), dict[tuple[int, str, int], str]()
    for index, item in items.items():
        texts.update({(index, *place): text for place, text in texts_of_item(item).items()})
    entries = iter(saved)
    events: list[Numbered] = []
    for token in log:
        match token:
            case ["+", int(index)]:
                events.append(Numbered(event=ItemAdded(index=index, item=empty_item(items[index]))))
            case ["=", *index]:
                seq, item = next(entries)
                event = item if isinstance(item, Noted) else ItemDone(index=index[0], item=item)
                events.append(Numbered(event=event, seq=seq))
            case ["x", value]:
                events.append(Numbered(event=read_event(msgspec.json.encode(value))))
            case [str(code), int(index), int(part), *lengths]:
                rest = texts.get((index, code, part), "")
                for length in lengths:
                    events.append(Numbered(event=make_delta((code, part), index, rest[:length])))
                    rest = rest[length:]
                texts[index, code, part] = rest
            case _:
                raise ValueError(f"not a token of a delta log: {token!r}")
    return events


def events_of_item(index: int, item: AnyItem) -> list[RunEvent]:
    """Return the events of an item that has no log: each of its texts as one delta."""
    deltas: list[RunEvent] = [make_delta(place, index, text) for place, text in texts_of_item(item).items() if text]
    return [ItemAdded(index=index, item=empty_item(item)), *deltas]


def texts_of_item(item: AnyItem) -> dict[_TextKey, str]:
    """Return the texts of an item that are streamed as deltas."""
    if type(item) is CallItem:
        return {("a", 0): item.arguments}
    texts: dict[_TextKey, str] = {}
    if type(item) is MessageItem:
        for number, part in enumerate(item.content):
            if type(part) is TextPart:
                texts["t", number] = part.text
            elif type(part) is RefusalPart:
                texts["f", number] = part.text
    elif type(item) is ReasoningItem:
        texts.update({("s", number): text for number, text in enumerate(item.summary)})
        texts.update({("r", number): text for number, text in enumerate(item.text)})
    return texts


def empty_item(item: AnyItem) -> AnyItem:
    """Return the item as it is when it starts: with its name and ids, without content."""
    if type(item) is MessageItem:
        return msgspec.structs.replace(item, content=())
    if type(item) is CallItem:
        return msgspec.structs.replace(item, arguments="")
    if type(item) is ReasoningItem:
        return msgspec.structs.replace(item, summary=(), text=())
    return item


def text_key(event: Delta) -> _TextKey:
    """Return which text of its item a delta belongs to."""
    match event:
        case TextDelta():
            return "t", event.part
        case RefusalDelta():
            return "f", event.part
        case ReasoningDelta():
            return "s" if event.is_summary else "r", event.part
        case ArgumentsDelta():
            return "a", 0


def make_delta(key: _TextKey, index: int, text: str) -> Delta:
    """Return a piece of an item's text as a delta."""
    match key:
        case "t", part:
            return TextDelta(index=index, text=text, part=part)
        case "f", part:
            return RefusalDelta(index=index, text=text, part=part)
        case "s", part:
            return ReasoningDelta(index=index, text=text, part=part, is_summary=True)
        case "r", part:
            return ReasoningDelta(index=index, text=text, part=part)
        case "a", _:
            return ArgumentsDelta(index=index, text=text)
        case _:
            raise ValueError(f"not a code of a delta log: {key[0]!r}")


def _items_by_index(log: DeltaLog, entries: Sequence[tuple[int, AnyItem | Noted]]) -> dict[int, AnyItem]:
    marks = [token[1:] for token in log if token[0] == "="]
    if len(marks) != len(entries):
        raise ValueError(f"the delta log names {len(marks)} entries, there are {len(entries)}")
    return {mark[0]: item for mark, (_, item) in zip(marks, entries, strict=True) if not isinstance(item, Noted)}
