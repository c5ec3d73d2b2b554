"""A broken answer put right for clients that have seen its beginning and whose protocol cannot take it back.

A model call that died with its process is made again. Chat, Messages and Gemini have no word for that, so what was
told before the break must be the beginning of what is told after it: the new answer is compared with the old one and
told from where that stopped. If it differs, the telling ends in an error that says where all of it can be read.
"""

import msgspec

from treadle.canon.endings import failure_of
from treadle.canon.errors import ErrorInfo
from treadle.canon.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.canon.items import (
    AnyItem,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    RefusalPart,
    TextPart,
)

DIVERGED = "stream_diverged"
"""The code of the error in which a stream ends that cannot go on as it began."""

_Delta = TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta
_ITEM_EVENTS = (ItemAdded, ItemDone, TextDelta, RefusalDelta, ReasoningDelta, ArgumentsDelta)
_Field = tuple[str, int]
"""Which text of an item: its kind, and which of several parts of that kind."""


def diverged(run_id: str) -> RunEnded:
    """Return the end of a stream whose client has seen what does not count any more."""
    error = ErrorInfo(
        code=DIVERGED,
        message="The server was restarted during this answer, and the answer went on differently.",
        status=502,
        hint=f"the whole answer is at GET /treadle/v1/runs/{run_id}/events",
    )
    return RunEnded(status="failed", error=error)


class Mend:
    """Passes the events of a run on; after a break only what the client has not been told yet."""

    def __init__(self) -> None:
        self._run_id = ""
        self._told: list[RunEvent] = []
        self._repair: _Repair | None = None
        self._is_over = False

    @property
    def run_id(self) -> str:
        """Return which run is told, once it has begun."""
        return self._run_id

    def feed(self, event: RunEvent) -> list[RunEvent]:
        """Return the events to tell; the last of all is a failure if the answers differ."""
        if self._repair is None and isinstance(event, TextDelta):
            self._told.append(event)
            return [event]
        if self._is_over:
            return []
        if isinstance(event, RunStarted):
            self._run_id = event.run_id
        elif isinstance(event, RoundBroken):
            self._repair = _Repair(event.round, self._told)
        elif self._repair is not None:
            return self._mended(self._repair, event)
        elif isinstance(event, RoundStarted):
            self._told = []
        elif isinstance(event, _ITEM_EVENTS):
            self._told.append(event)
        return [event]

    def _mended(self, repair: "_Repair", event: RunEvent) -> list[RunEvent]:
        if isinstance(event, RoundStarted) and event.round == repair.round:
            return [event]
        try:
            if isinstance(event, _ITEM_EVENTS):
                events = repair.feed(event)
                self._told += events
                return events
            if _ends_answer(event):
                repair.finish()
                self._repair = None
                self._told = []
        except _Differs:
            self._is_over = True
            return [diverged(self._run_id)]
        if isinstance(event, RunEnded):
            self._repair = None
        return [event]


def _ends_answer(event: RunEvent) -> bool:
    """Tell whether a model's answer is whole when this happens."""
    if isinstance(event, RunEnded):
        return failure_of(event) is None
    return isinstance(event, RoundStarted | ToolStarted | ToolFinished)


class _Differs(Exception):
    """The new answer is not the old one continued."""


class _Told:
    """An item of the broken answer as the client knows it."""

    def __init__(self, index: int, item: AnyItem) -> None:
        self.index = index
        self.item = item
        self.texts: dict[_Field, str] = {}
        self.is_done = False


class _Repair:
    """Compares the items of the new answer with those of the old one, one after the other."""

    def __init__(self, round: int, told: list[RunEvent]) -> None:
        self.round = round
        self._told = _collect(told)
        self._taken = 0
        self._pairs: dict[int, tuple[_Told, dict[_Field, int]]] = {}

    def feed(self, event: RunEvent) -> list[RunEvent]:
        """Return what of an event is new.

        Raises: _Differs.
        """
        match event:
            case ItemAdded():
                return [] if self._take(event.index, event.item) else [event]
            case ItemDone():
                self._take(event.index, event.item)
                pair = self._pairs.get(event.index)
                return [event] if pair is None else _close(pair[0], event.item)
            case TextDelta() | RefusalDelta() | ReasoningDelta() | ArgumentsDelta():
                pair = self._pairs.get(event.index)
                return [event] if pair is None else _grow(*pair, event)
            case _:
                return [event]

    def finish(self) -> None:
        """Check that nothing was told which the new answer does not have.

        Raises: _Differs.
        """
        if self._taken < len(self._told):
            raise _Differs

    def _take(self, index: int, item: AnyItem) -> bool:
        """Pair a new item with the told one in its place, if there is one."""
        if index in self._pairs:
            return True
        if not _is_shown(item) or self._taken >= len(self._told):
            return False
        told = self._told[self._taken]
        if not _is_same(told.item, item):
            raise _Differs
        self._taken += 1
        self._pairs[index] = (told, {})
        return True


def _collect(events: list[RunEvent]) -> list[_Told]:
    """Return the items that these events told, in order of appearance."""
    found: dict[int, _Told] = {}
    pieces: dict[int, dict[_Field, list[str]]] = {}
    for event in events:
        if isinstance(event, ItemAdded | ItemDone):
            if _is_shown(event.item):
                told = found.setdefault(event.index, _Told(event.index, event.item))
                told.is_done = told.is_done or isinstance(event, ItemDone)
                if isinstance(event, ItemDone):
                    told.item = event.item
        elif isinstance(event, _Delta):
            pieces.setdefault(event.index, {}).setdefault(_field(event), []).append(event.text)
    for index, told in found.items():
        told.texts = {field: "".join(texts) for field, texts in pieces.get(index, {}).items()}
        if told.is_done:
            told.texts = _texts(told.item)
    return list(found.values())


def _is_shown(item: AnyItem) -> bool:
    """Tell whether a client sees the item while it is said: calls that Treadle runs are shown by their run."""
    if isinstance(item, CallItem):
        return item.side == "client"
    return isinstance(item, MessageItem | ReasoningItem | OpaqueItem)


def _is_same(told: AnyItem, item: AnyItem) -> bool:
    """Tell whether an item begins as the one did that was told."""
    if isinstance(told, CallItem) and isinstance(item, CallItem):
        return (told.name, told.kind) == (item.name, item.kind)
    if isinstance(told, OpaqueItem) and isinstance(item, OpaqueItem):
        return bytes(told.raw) == bytes(item.raw)
    return type(told) is type(item)


def _grow(told: _Told, heard: dict[_Field, int], delta: _Delta) -> list[RunEvent]:
    """Compare a piece of text with the same place of the told one, and pass on what goes beyond it."""
    field = _field(delta)
    start = heard.get(field, 0)
    heard[field] = start + len(delta.text)
    known = told.texts.get(field, "")[start:]
    overlap = min(len(known), len(delta.text))
    if known[:overlap] != delta.text[:overlap] or (told.is_done and overlap < len(delta.text)):
        raise _Differs
    rest = delta.text[overlap:]
    if not rest:
        return []
    if overlap and isinstance(delta, TextDelta | RefusalDelta):
        return [msgspec.structs.replace(delta, index=told.index, text=rest, logprobs=None)]
    return [msgspec.structs.replace(delta, index=told.index, text=rest)]


def _close(told: _Told, item: AnyItem) -> list[RunEvent]:
    """Pass on the whole of an item whose end was not told; a call keeps the id that the client knows."""
    whole = _texts(item)
    if told.is_done:
        if whole != told.texts:
            raise _Differs
        return []
    if not all(whole.get(field, "").startswith(text) for field, text in told.texts.items()):
        raise _Differs
    if isinstance(item, CallItem) and isinstance(told.item, CallItem):
        item = msgspec.structs.replace(item, call_id=told.item.call_id, id=told.item.id)
    return [ItemDone(index=told.index, item=item)]


def _field(delta: _Delta) -> _Field:
    match delta:
        case TextDelta():
            return "text", delta.part
        case RefusalDelta():
            return "refusal", delta.part
        case ReasoningDelta():
            return "summary" if delta.is_summary else "thought", delta.part
        case ArgumentsDelta():
            return "arguments", 0


def _texts(item: AnyItem) -> dict[_Field, str]:
    """Return the texts of a whole item, by the fields in which they are streamed."""
    match item:
        case MessageItem():
            return {
                ("text" if isinstance(part, TextPart) else "refusal", position): part.text
                for position, part in enumerate(item.content)
                if isinstance(part, TextPart | RefusalPart)
            }
        case ReasoningItem():
            summary = {("summary", position): text for position, text in enumerate(item.summary)}
            return summary | {("thought", position): text for position, text in enumerate(item.text)}
        case CallItem():
            return {("arguments", 0): item.arguments}
        case _:
            return {}
