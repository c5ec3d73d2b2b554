"""A finished run told again from its journal, as the events its first readers saw.

What was streamed in pieces comes back in one piece; numbers are the journal's own.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.canon.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    Noted,
    Numbered,
    ReasoningDelta,
    RefusalDelta,
    RoundStarted,
    RunEvent,
    TextDelta,
    ToolFinished,
    ToolStarted,
    read_event,
)
from treadle.canon.items import AnyItem, CallItem, MessageItem, ReasoningItem, RefusalPart, ResultItem, TextPart
from treadle.canon.messages import ITEM_KINDS, Entry, item_of_entry
from treadle.canon.request import Note


class _Plan(msgspec.Struct):
    round: int
    fingerprint: str
    tools: int = 0
    final: bool = False


class _Bookkeeping(msgspec.Struct):
    source: str = ""
    duration_s: float = 0.0
    bytes: int = 0
    truncated: bool = False


class Teller:
    """Turns the entries of one run into its events."""

    def __init__(self) -> None:
        self._index = 0
        self._calls: dict[str, tuple[int, CallItem]] = {}
        self._started: set[str] = set()

    def tell(self, entry: Entry) -> list[Numbered]:
        """Return the events of one entry; the last of them carries its number."""
        if entry.is_input:
            return []
        events = self._events(entry)
        live = [Numbered(event=event) for event in events[:-1]]
        return [*live, *(Numbered(event=event, seq=entry.seq) for event in events[-1:])]

    def _events(self, entry: Entry) -> list[RunEvent]:
        data = entry.data or msgspec.Raw(b"{}")
        match entry.kind:
            case "status":
                return [read_event(bytes(data))]
            case "plan":
                plan = msgspec.json.decode(data, type=_Plan)
                return [
                    RoundStarted(round=plan.round, fingerprint=plan.fingerprint, tools=plan.tools, final=plan.final)
                ]
            case "note":
                return [Noted(note=msgspec.json.decode(data, type=Note))]
            case "tool_start":
                return self._start(entry, msgspec.json.decode(data, type=_Bookkeeping).source)
            case kind if kind in ITEM_KINDS:
                return self._item(item_of_entry(entry), entry)
            case _:
                return []

    def _start(self, entry: Entry, source: str) -> list[RunEvent]:
        index, call = self._calls[entry.call_id or ""]
        self._started.add(call.call_id)
        return [ToolStarted(index=index, call=call, source=source)]

    def _item(self, item: AnyItem, entry: Entry) -> list[RunEvent]:
        if isinstance(item, ResultItem):
            return self._result(item, entry)
        index, self._index = self._index, self._index + 1
        if isinstance(item, CallItem):
            self._calls[item.call_id] = (index, item)
        events: list[RunEvent] = [ItemAdded(index=index, item=_emptied(item)), *_deltas(index, item)]
        if isinstance(item, MessageItem) and item.is_partial:
            return events
        return [*events, ItemDone(index=index, item=item)]

    def _result(self, item: ResultItem, entry: Entry) -> list[RunEvent]:
        """Tell a result; a call that never really ran has no start of its own in the journal."""
        index, call = self._calls[item.call_id]
        kept = msgspec.json.decode(entry.data or msgspec.Raw(b"{}"), type=_Bookkeeping)
        started: list[RunEvent] = []
        if item.call_id not in self._started:
            started = [ToolStarted(index=index, call=call, source=kept.source)]
        finished = ToolFinished(
            index=index,
            call=call,
            result=item,
            source=kept.source,
            duration_s=kept.duration_s,
            output_bytes=kept.bytes,
            truncated=kept.truncated,
        )
        return [*started, finished]


def tell_all(entries: Sequence[Entry]) -> list[Numbered]:
    """Tell a whole journal."""
    teller = Teller()
    return [numbered for entry in entries for numbered in teller.tell(entry)]


def after_number(told: Sequence[Numbered], after: int) -> list[Numbered]:
    """Return what was told after the event numbered `after`."""
    last = max((n for n, numbered in enumerate(told) if 0 < numbered.seq <= after), default=-1)
    return list(told[last + 1 :])


def _emptied(item: AnyItem) -> AnyItem:
    changes: dict[str, Any] = {}
    match item:
        case MessageItem():
            changes = {"content": ()}
        case CallItem():
            changes = {"arguments": ""}
        case ReasoningItem():
            changes = {"summary": (), "text": ()}
        case _:
            pass
    return msgspec.structs.replace(item, **changes)


def _deltas(index: int, item: AnyItem) -> list[RunEvent]:
    match item:
        case MessageItem():
            return [
                TextDelta(index=index, text=part.text, part=position)
                if isinstance(part, TextPart)
                else RefusalDelta(index=index, text=part.text, part=position)
                for position, part in enumerate(item.content)
                if isinstance(part, TextPart | RefusalPart)
            ]
        case CallItem():
            return [ArgumentsDelta(index=index, text=item.arguments)] if item.arguments else []
        case ReasoningItem():
            summaries: list[RunEvent] = [
                ReasoningDelta(index=index, text=text, part=position, is_summary=True)
                for position, text in enumerate(item.summary)
            ]
            texts: list[RunEvent] = [
                ReasoningDelta(index=index, text=text, part=position) for position, text in enumerate(item.text)
            ]
            return summaries + texts
        case _:
            return []
