"""Continues an interrupted answer for clients that have seen its beginning, without repeating it.

A model call that died with its process is made again. Mostly the new answer is the same: it is compared with the old
one, and only what goes beyond that is sent. If it differs, a Responses stream closes the interrupted items and sends
new ones. Chat, Messages and Gemini have no event for that: there the stream ends in an error that says where the whole
answer can be read.
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
"""The code of the error that ends a stream whose answer diverged."""

_Delta = TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta
_ITEM_EVENTS = (ItemAdded, ItemDone, TextDelta, RefusalDelta, ReasoningDelta, ArgumentsDelta)
_ItemEvent = ItemAdded | ItemDone | _Delta
_Field = tuple[str, int]
"""Which text of an item: its kind, and which of several parts of that kind."""


def diverged(run_id: str) -> RunEnded:
    """Return the end of a stream whose client has seen text that is no longer part of the answer."""
    error = ErrorInfo(
        code=DIVERGED,
        message="The server was restarted during this answer, and the answer went on differently.",
        status=502,
        hint=f"the whole answer is at GET /treadle/v1/runs/{run_id}/events",
    )
    return RunEnded(status="failed", error=error)


class ReplayDiff:
    """Passes on the events of a run; after an interruption only what the client has not been sent yet.

    If the answers differ, a protocol that `closes` interrupted items gets the break and all of the new answer; the
    others get an error.
    """

    def __init__(self, *, closes: bool = False) -> None:
        self._closes = closes
        self._run_id = ""
        self._sent: list[RunEvent] = []
        self._repair: _Repair | None = None
        self._is_over = False

    def feed(self, event: RunEvent) -> list[RunEvent]:
        """Return the events to send; the last is a failure if the answers differ and the protocol cannot show it."""
        if self._repair is None and isinstance(event, TextDelta):
            self._sent.append(event)
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
            self._sent = []
        elif isinstance(event, _ITEM_EVENTS):
            self._sent.append(event)
        return [event]

    def _break(self, broken: RoundBroken) -> list[RunEvent]:
        self._repair = _Repair(broken, self._sent)
        # A protocol that closes items gets the break later, and only if the answers differ.
        return [] if self._closes else [broken]

    def _mended(self, repair: "_Repair", event: RunEvent) -> list[RunEvent]:
        if isinstance(event, RoundStarted) and event.round == repair.broken.round:
            return [event]
        try:
            if isinstance(event, _ITEM_EVENTS):
                events = repair.feed(event)
                self._sent += events
                return events
            if _ends_answer(event):
                repair.finish()
                self._repair = None
                self._sent = []
        except _Differs:
            return self._differ(repair, event)
        if isinstance(event, RunEnded):
            self._repair = None
        return [event]

    def _differ(self, repair: "_Repair", event: RunEvent) -> list[RunEvent]:
        """Close the interrupted items and send the new answer from its beginning, or end the stream."""
        if not self._closes:
            self._is_over = True
            return [diverged(self._run_id)]
        self._repair = None
        self._sent = [*repair.fresh]
        rest = [] if isinstance(event, _ITEM_EVENTS) else [event]
        if rest:
            self._sent = []
        return [repair.broken, *repair.fresh, *rest]


def _ends_answer(event: RunEvent) -> bool:
    """Return whether this event means that the model's answer is complete."""
    if isinstance(event, RunEnded):
        return failure_of(event) is None
    return isinstance(event, RoundStarted | ToolStarted | ToolFinished)


class _Differs(Exception):
    """The new answer is not the old one continued."""


class _SentItem:
    """An item of the interrupted answer as the client knows it."""

    def __init__(self, index: int, item: AnyItem) -> None:
        self.index = index
        self.item = item
        self.texts: dict[_Field, str] = {}
        self.is_done = False


class _Repair:
    """Compares the items of the new answer with those of the old one, in order.

    `fresh` holds the events of new items that are not done yet.
    """

    def __init__(self, broken: RoundBroken, sent: list[RunEvent]) -> None:
        self.broken = broken
        self.fresh: list[_ItemEvent] = []
        self._sent = _collect(sent)
        self._taken = 0
        self._pairs: dict[int, tuple[_SentItem, dict[_Field, int]]] = {}

    def feed(self, event: _ItemEvent) -> list[RunEvent]:
        """Return the part of an event that is new.

        Raises: _Differs.
        """
        self.fresh.append(event)
        sent = self._compare(event)
        if isinstance(event, ItemDone):
            self.fresh = [each for each in self.fresh if each.index != event.index]
        return sent

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
        """Check that nothing was sent that the new answer does not have.

        Raises: _Differs.
        """
        if self._taken < len(self._sent):
            raise _Differs

    def _take(self, index: int, item: AnyItem) -> bool:
        """Pair a new item with the sent one in its place, if there is one."""
        if index in self._pairs:
            return True
        if not _is_shown(item) or self._taken >= len(self._sent):
            return False
        sent = self._sent[self._taken]
        if not _is_same(sent.item, item):
            raise _Differs
        self._taken += 1
        self._pairs[index] = (sent, {})
        return True


def _collect(events: list[RunEvent]) -> list[_SentItem]:
    """Return the items that these events sent, in order of appearance."""
    found: dict[int, _SentItem] = {}
    pieces: dict[int, dict[_Field, list[str]]] = {}
    for event in events:
        if isinstance(event, ItemAdded | ItemDone):
            if _is_shown(event.item):
                sent = found.setdefault(event.index, _SentItem(event.index, event.item))
                sent.is_done = sent.is_done or isinstance(event, ItemDone)
                if isinstance(event, ItemDone):
                    sent.item = event.item
        elif isinstance(event, _Delta):
            pieces.setdefault(event.index, {}).setdefault(_field(event), []).append(event.text)
    for index, sent in found.items():
        sent.texts = {field: "".join(texts) for field, texts in pieces.get(index, {}).items()}
        if sent.is_done:
            sent.texts = _texts(sent.item)
    return list(found.values())


def _is_shown(item: AnyItem) -> bool:
    """Return whether a client sees the item while it streams: calls that Treadle runs are shown by their run."""
    if isinstance(item, CallItem):
        return item.side == "client"
    return isinstance(item, MessageItem | ReasoningItem | OpaqueItem)


def _is_same(sent: AnyItem, item: AnyItem) -> bool:
    """Return whether an item begins as the sent one did."""
    if isinstance(sent, CallItem) and isinstance(item, CallItem):
        return (sent.name, sent.kind) == (item.name, item.kind)
    if isinstance(sent, OpaqueItem) and isinstance(item, OpaqueItem):
        return bytes(sent.raw) == bytes(item.raw)
    return type(sent) is type(item)


def _grow(sent: _SentItem, positions: dict[_Field, int], delta: _Delta) -> list[RunEvent]:
    """Compare a piece of text with the same place of the sent one, and pass on what goes beyond it."""
    field = _field(delta)
    start = positions.get(field, 0)
    positions[field] = start + len(delta.text)
    known = sent.texts.get(field, "")[start:]
    overlap = min(len(known), len(delta.text))
    if known[:overlap] != delta.text[:overlap] or (sent.is_done and overlap < len(delta.text)):
        raise _Differs
    rest = delta.text[overlap:]
    if not rest:
        return []
    if overlap and isinstance(delta, TextDelta | RefusalDelta):
        return [msgspec.structs.replace(delta, index=sent.index, text=rest, logprobs=None)]
    return [msgspec.structs.replace(delta, index=sent.index, text=rest)]


def _close(sent: _SentItem, item: AnyItem) -> list[RunEvent]:
    """Pass on the end of an item that was not sent yet; a call keeps the id that the client knows."""
    whole = _texts(item)
    if sent.is_done:
        if whole != sent.texts:
            raise _Differs
        return []
    if not all(whole.get(field, "").startswith(text) for field, text in sent.texts.items()):
        raise _Differs
    if isinstance(item, CallItem) and isinstance(sent.item, CallItem):
        item = msgspec.structs.replace(item, call_id=sent.item.call_id, id=sent.item.id)
    return [ItemDone(index=sent.index, item=item)]


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
