"""A broken answer put right for clients that have seen its beginning.

A model call that died with its process is made again. Mostly it says the same: the new answer is compared with the old
one and told from where that stopped. If it differs, Responses closes the items that were broken off and gets new ones.
Chat, Messages and Gemini have no word for that; there the telling ends in an error that says where all of it can be
read.
"""

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
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
from treadle.core.items import (
    AnyItem,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from treadle.core.run_endings import failure_of

DIVERGED = "stream_diverged"
"""The code of the error in which a stream ends that cannot go on as it began."""

_Delta = TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta
_ITEM_EVENTS = (ItemAdded, ItemDone, TextDelta, RefusalDelta, ReasoningDelta, ArgumentsDelta)
_ItemEvent = ItemAdded | ItemDone | _Delta
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


class ReplayDiff:
    """Passes the events of a run on; after a break only what the client has not been told yet.

    If the answers differ, a protocol that `closes` what was broken off is told the break and all of the new answer;
    for the others that is the end.
    """

    def __init__(self, *, closes: bool = False) -> None:
        self._closes = closes
        self._run_id = ""
        self._told: list[RunEvent] = []
        self._repair: _Repair | None = None
        self._is_over = False

    def feed(self, event: RunEvent) -> list[RunEvent]:
        """Return the events to tell; the last of all is a failure if the answers differ and the protocol cannot."""
        if self._repair is None and isinstance(event, TextDelta):
            self._told.append(event)
            return [event]
        if self._is_over:
            return []
        if isinstance(event, RunStarted):
            self._run_id = event.run_id
        elif isinstance(event, RoundBroken):
            return self._break(event)
        elif self._repair is not None:
            return self._mended(self._repair, event)
        elif isinstance(event, RoundStarted):
            self._told = []
        elif isinstance(event, _ITEM_EVENTS):
            self._told.append(event)
        return [event]

    def _break(self, broken: RoundBroken) -> list[RunEvent]:
        self._repair = _Repair(broken, self._told)
        # An item that nobody was told needs no end.
        return [] if self._closes else [broken]

    def _mended(self, repair: "_Repair", event: RunEvent) -> list[RunEvent]:
        if isinstance(event, RoundStarted) and event.round == repair.broken.round:
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
            return self._differ(repair, event)
        if isinstance(event, RunEnded):
            self._repair = None
        return [event]

    def _differ(self, repair: "_Repair", event: RunEvent) -> list[RunEvent]:
        """Close what was broken off and tell the new answer from its beginning, or end."""
        if not self._closes:
            self._is_over = True
            return [diverged(self._run_id)]
        self._repair = None
        self._told = [*repair.fresh]
        rest = [] if isinstance(event, _ITEM_EVENTS) else [event]
        if rest:
            self._told = []
        return [repair.broken, *repair.fresh, *rest]


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
    """Compares the items of the new answer with those of the old one, one after the other.

    `fresh` is what the new answer has said of items that it has not ended yet.
    """

    def __init__(self, broken: RoundBroken, told: list[RunEvent]) -> None:
        self.broken = broken
        self.fresh: list[_ItemEvent] = []
        self._told = _collect(told)
        self._taken = 0
        self._pairs: dict[int, tuple[_Told, dict[_Field, int]]] = {}

    def feed(self, event: _ItemEvent) -> list[RunEvent]:
        """Return what of an event is new.

        Raises: _Differs.
        """
        self.fresh.append(event)
        told = self._compare(event)
        if isinstance(event, ItemDone):
            self.fresh = [each for each in self.fresh if each.index != event.index]
        return told

    def _compare(self, event: _ItemEvent) -> list[RunEvent]:
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
