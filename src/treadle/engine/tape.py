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

from collections.abc import Iterable, Sequence
from typing import Any, final

import msgspec

from treadle.canon.events import (
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
from treadle.canon.items import AnyItem, CallItem, MessageItem, ReasoningItem, RefusalPart, TextPart

Tape = list[list[Any]]
Delta = TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta
_Lane = tuple[str, int]
"""A text of an item: the code of its pieces and the number of its part."""


def record(events: Sequence[RunEvent]) -> Tape:
    """Write down how the events of one model call came."""
    told = _stretches(events)
    plain = _derivable(told)
    tape: Tape = []
    for event in told:
        if type(event) is _Stretch:
            if event.index in plain:
                code, part = event.lane
                tape.append([code, event.index, part, *[len(piece.text) for piece in event.pieces]])
            else:
                tape += [_as_it_was(piece) for piece in event.pieces]
        elif type(event) is ItemDone:
            tape.append(["=", event.index])
        elif type(event) is Noted:
            tape.append(["="])
        elif type(event) is ItemAdded and event.index in plain:
            tape.append(["+", event.index])
        else:
            tape.append(_as_it_was(event))
    return tape


@final
class _Stretch:
    """Pieces of one text of an item that came one after the other; `is_plain` if they are nothing but text."""

    __slots__ = ("index", "is_plain", "lane", "pieces")

    def __init__(self, index: int, lane: _Lane) -> None:
        self.index = index
        self.lane = lane
        self.is_plain = True
        self.pieces: list[Delta] = []


def _stretches(events: Sequence[RunEvent]) -> list[RunEvent | _Stretch]:
    """Put the pieces of texts together, and leave everything else where it stands."""
    told: list[RunEvent | _Stretch] = []
    last: _Stretch | None = None
    for event in events:
        if type(event) is TextDelta:
            place, is_plain = ("t", event.part), event.logprobs is None and event.extra is None
        elif type(event) is ArgumentsDelta:
            place, is_plain = ("a", 0), True
        elif type(event) is ReasoningDelta:
            place, is_plain = lane(event), True
        elif type(event) is RefusalDelta:
            place, is_plain = ("f", event.part), event.logprobs is None
        else:
            told.append(event)
            last = None
            continue
        if last is None or last.index != event.index or last.lane != place:
            last = _Stretch(event.index, place)
            told.append(last)
        last.pieces.append(event)
        if not is_plain:
            last.is_plain = False
    return told


def _as_it_was(event: RunEvent) -> list[Any]:
    return ["x", msgspec.Raw(msgspec.json.encode(event))]


def play(tape: Tape, told: Sequence[tuple[int, AnyItem | Noted]]) -> list[Numbered]:
    """Tell the events again; `told` are the items and notes of the call in the order of their entries' numbers.

    Raises: ValueError for a tape that does not fit its entries.
    """
    items, texts = _by_index(tape, told), dict[tuple[int, str, int], str]()
    for index, item in items.items():
        texts.update({(index, *place): text for place, text in pieces(item).items()})
    entries = iter(told)
    events: list[Numbered] = []
    for token in tape:
        match token:
            case ["+", int(index)]:
                events.append(Numbered(event=ItemAdded(index=index, item=emptied(items[index]))))
            case ["=", *index]:
                seq, said = next(entries)
                event = said if isinstance(said, Noted) else ItemDone(index=index[0], item=said)
                events.append(Numbered(event=event, seq=seq))
            case ["x", value]:
                events.append(Numbered(event=read_event(msgspec.json.encode(value))))
            case [str(code), int(index), int(part), *lengths]:
                rest = texts.get((index, code, part), "")
                for length in lengths:
                    events.append(Numbered(event=delta((code, part), index, rest[:length])))
                    rest = rest[length:]
                texts[index, code, part] = rest
            case _:
                raise ValueError(f"not a token of a tape: {token!r}")
    return events


def untaped(index: int, item: AnyItem) -> list[RunEvent]:
    """Tell an item without a tape: each of its texts in one piece."""
    deltas: list[RunEvent] = [delta(place, index, text) for place, text in pieces(item).items() if text]
    return [ItemAdded(index=index, item=emptied(item)), *deltas]


def pieces(item: AnyItem) -> dict[_Lane, str]:
    """Return the texts of an item that come in pieces."""
    if type(item) is CallItem:
        return {("a", 0): item.arguments}
    texts: dict[_Lane, str] = {}
    if type(item) is MessageItem:
        for number, part in enumerate(item.content):
            if type(part) is TextPart or type(part) is RefusalPart:
                texts["t" if type(part) is TextPart else "f", number] = part.text
    elif type(item) is ReasoningItem:
        texts.update({("s", number): text for number, text in enumerate(item.summary)})
        texts.update({("r", number): text for number, text in enumerate(item.text)})
    return texts


def emptied(item: AnyItem) -> AnyItem:
    """Return the item as it is when it begins: named, without its content."""
    if type(item) is MessageItem:
        return msgspec.structs.replace(item, content=())
    if type(item) is CallItem:
        return msgspec.structs.replace(item, arguments="")
    if type(item) is ReasoningItem:
        return msgspec.structs.replace(item, summary=(), text=())
    return item


def _derivable(events: Iterable[RunEvent | _Stretch]) -> set[int]:
    """Return the items whose pieces can be cut out of what they are in the end."""
    begun: dict[int, AnyItem] = {}
    said: dict[int, dict[_Lane, list[str]]] = {}
    bad: set[int] = set()
    good: set[int] = set()
    for event in events:
        if type(event) is ItemAdded:
            begun[event.index] = event.item
        elif type(event) is _Stretch:
            texts = [piece.text for piece in event.pieces]
            said.setdefault(event.index, {}).setdefault(event.lane, []).extend(texts)
            if not event.is_plain:
                bad.add(event.index)
        elif type(event) is ItemDone:
            lanes = {lane: "".join(texts) for lane, texts in said.get(event.index, {}).items()}
            is_cut_out = lanes.items() <= pieces(event.item).items()
            if is_cut_out and begun.get(event.index) == emptied(event.item):
                good.add(event.index)
    return good - bad


def lane(event: Delta) -> _Lane:
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


def delta(lane: _Lane, index: int, text: str) -> Delta:
    """Return a piece of an item's text as an event."""
    match lane:
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
            raise ValueError(f"not a code of a tape: {lane[0]!r}")


def _by_index(tape: Tape, told: Sequence[tuple[int, AnyItem | Noted]]) -> dict[int, AnyItem]:
    marks = [token[1:] for token in tape if token[0] == "="]
    if len(marks) != len(told):
        raise ValueError(f"the tape tells {len(marks)} entries, there are {len(told)}")
    return {mark[0]: said for mark, (_, said) in zip(marks, told, strict=True) if not isinstance(said, Noted)}
