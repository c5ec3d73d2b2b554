"""The tape of a model call: in which pieces its items came, small enough to be kept beside them.

The items of a call are journalled whole. The tape adds only what they do not say: the order of things and the
lengths of the pieces. So the journal tells every event again exactly, which makes any place in a stream a place
where a reader can go on. What cannot be cut out of a finished item (a piece with logprobs, an item that never
ended) is on the tape word for word. Tokens, each a list:

    ["+", index]                        an item begins
    [code, index, part, length, …]      pieces of its text: t text, f refusal, r reasoning, s summary, a arguments
    ["=", index] and ["="]              the next entry of the call is told: an item's end, or a note
    ["x", event]                        an event as it was
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
"""A text of an item: the code of its pieces and the number of its part."""
_CODES = ("t", "f", "r", "s", "a")


def encode_deltas(events: Sequence[RunEvent]) -> DeltaLog:
    """Write down how the events of one model call came."""
    tape: DeltaLog = []
    begun: dict[int, AnyItem] = {}
    said: dict[int, dict[_TextKey, list[str]]] = {}
    odd: set[int] = set()
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
                begun[event.index] = event.item
                tape.append(["+", event.index])
            elif type(event) is ItemDone:
                if not _is_derivable(event.item, begun.pop(event.index, None), said.pop(event.index, None)):
                    odd.add(event.index)
                tape.append(["=", event.index])
            else:
                tape.append(["="] if type(event) is Noted else _verbatim(event))
            continue
        if place != last:
            last, lengths = place, [*place]
            tape.append(lengths)
            texts = said.setdefault(event.index, {}).setdefault((place[0], place[2]), [])
        lengths.append(len(event.text))
        texts.append(event.text)
        if not is_plain:
            odd.add(event.index)
    # What is left has never ended.
    odd.update(begun, said)
    return _with_verbatim_items(tape, events, odd) if odd else tape


def message_parts(events: Sequence[RunEvent], index: int) -> tuple[TextPart | RefusalPart, ...]:
    """Return what was said so far of the message at that index."""
    texts: dict[tuple[int, bool], list[str]] = {}
    for event in events:
        if isinstance(event, TextDelta | RefusalDelta | ReasoningDelta) and event.index == index:
            texts.setdefault((event.part, type(event) is RefusalDelta), []).append(event.text)
    return tuple(
        RefusalPart(text="".join(texts_of_item)) if is_refusal else TextPart(text="".join(texts_of_item))
        for (_, is_refusal), texts_of_item in sorted(texts.items())
    )


def _is_derivable(item: AnyItem, begun: AnyItem | None, said: dict[_TextKey, list[str]] | None) -> bool:
    """Tell whether how an item began, and the pieces it came in, can be cut out of what it is in the end."""
    if said:
        whole = texts_of_item(item)
        for place, texts in said.items():
            if "".join(texts) != whole.get(place):
                return False
    return begun == empty_item(item)


def _with_verbatim_items(tape: DeltaLog, events: Sequence[RunEvent], odd: set[int]) -> DeltaLog:
    """Put what was said of some items on the tape word for word."""
    told: DeltaLog = []
    at = 0
    for token in tape:
        count = len(token) - 3 if token[0] in _CODES else 1
        if token[0] not in ("=", "x") and token[1] in odd:
            told += [_verbatim(event) for event in events[at : at + count]]
        else:
            told.append(token)
        at += count
    return told


def _verbatim(event: RunEvent) -> list[Any]:
    return ["x", msgspec.Raw(msgspec.json.encode(event))]


def replay_events(tape: DeltaLog, told: Sequence[tuple[int, AnyItem | Noted]]) -> list[Numbered]:
    """Tell the events again; `told` are the items and notes of the call in the order of their entries' numbers.

    Raises: ValueError for a tape that does not fit its entries.
    """
    items, texts = _items_by_index(tape, told), dict[tuple[int, str, int], str]()
    for index, item in items.items():
        texts.update({(index, *place): text for place, text in texts_of_item(item).items()})
    entries = iter(told)
    events: list[Numbered] = []
    for token in tape:
        match token:
            case ["+", int(index)]:
                events.append(Numbered(event=ItemAdded(index=index, item=empty_item(items[index]))))
            case ["=", *index]:
                seq, said = next(entries)
                event = said if isinstance(said, Noted) else ItemDone(index=index[0], item=said)
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
                raise ValueError(f"not a token of a tape: {token!r}")
    return events


def events_of_item(index: int, item: AnyItem) -> list[RunEvent]:
    """Tell an item without a tape: each of its texts in one piece."""
    deltas: list[RunEvent] = [make_delta(place, index, text) for place, text in texts_of_item(item).items() if text]
    return [ItemAdded(index=index, item=empty_item(item)), *deltas]


def texts_of_item(item: AnyItem) -> dict[_TextKey, str]:
    """Return the texts of an item that come in pieces."""
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
    """Return the item as it is when it begins: named, without its content."""
    if type(item) is MessageItem:
        return msgspec.structs.replace(item, content=())
    if type(item) is CallItem:
        return msgspec.structs.replace(item, arguments="")
    if type(item) is ReasoningItem:
        return msgspec.structs.replace(item, summary=(), text=())
    return item


def text_key(event: Delta) -> _TextKey:
    """Return which text of its item a piece belongs to."""
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
    """Return a piece of an item's text as an event."""
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
            raise ValueError(f"not a code of a tape: {key[0]!r}")


def _items_by_index(tape: DeltaLog, told: Sequence[tuple[int, AnyItem | Noted]]) -> dict[int, AnyItem]:
    marks = [token[1:] for token in tape if token[0] == "="]
    if len(marks) != len(told):
        raise ValueError(f"the tape tells {len(marks)} entries, there are {len(told)}")
    return {mark[0]: said for mark, (_, said) in zip(marks, told, strict=True) if not isinstance(said, Noted)}
