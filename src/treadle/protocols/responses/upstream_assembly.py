"""Pieces of an answer become item events.

Items may be open side by side; each is done in the order in which it was shown. A call is shown once its name and
id are known. Nothing here knows the names of events or how an answer ends.
"""

from collections import Counter
from typing import Any, cast

import msgspec

from treadle.core import ids as prefixes
from treadle.core.events import ItemAdded, ItemDone, ModelEvent
from treadle.core.ids import IdSource
from treadle.core.items import CallKind
from treadle.protocols.decoding.assembly_base import AnswerBounds, AnswerTotals, Maker
from treadle.protocols.field_reader import OBJECT
from treadle.protocols.responses.tools import flat_name
from treadle.protocols.responses.upstream_content_parts import PartKind, Spoken
from treadle.protocols.responses.upstream_event import ITEM, NULL, ItemIn, is_null, is_object, read, word_of
from treadle.protocols.responses.upstream_item_builders import (
    Draft,
    OpaqueDraft,
    ReasoningDraft,
    ResponsesCallDraft,
    ResponsesMessageDraft,
    SpokenDraft,
    Voice,
    kind_of,
)
from treadle.protocols.responses.upstream_item_index import Family, ItemPosition, Named, Register

ITEMS_MAX = 1024

FAMILIES: dict[str, Family] = {
    "message": "message",
    "reasoning": "reasoning",
    "function_call": "call",
    "custom_tool_call": "call",
}
_NAMELESS = Named()
_CALL_FIELDS = frozenset(
    {"type", "id", "call_id", "name", "namespace", "arguments", "input", "status", "caller", "async"}
)
_DIFFERS = "an item ends otherwise than it was streamed"
_SPEAKERS: dict[PartKind, Family] = {
    "text": "message",
    "refusal": "message",
    "raw": "reasoning",
    "summary": "reasoning",
}


class ResponsesAssembly(AnswerTotals):
    """The items of one answer in the making."""

    def __init__(
        self, ids: IdSource, bounds: AnswerBounds, maker: Maker, taken_call_ids: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(ids, bounds, taken_call_ids)
        self._maker = maker
        self._register = Register()
        self._drafts: list[tuple[Family, Draft]] = []
        self._shown: list[Draft] = []
        self._done = 0
        self._has_ends = False
        self.is_streamed = True

    @property
    def has_calls(self) -> bool:
        """Tell whether the model called anything."""
        return any(family == "call" for family, _ in self._drafts)

    @property
    def calls_are_complete(self) -> bool:
        """Tell whether every call has a name and arguments that are a complete object, or none at all."""
        calls = [draft for _, draft in self._drafts if isinstance(draft, ResponsesCallDraft)]
        return all(call.name and (call.is_closed or call.is_whole) for call in calls)

    def add_text(self, place: ItemPosition, key: int, piece: Spoken) -> None:
        """Add to a part of a message or of reasoning, or begin it."""
        if not piece.text:
            return
        draft = self._spoken(place, piece.kind)
        if draft is None:
            return
        if draft.is_closed:
            self._meter.spoil("text came for an item that was done")
        else:
            draft.row.feed(key, piece)

    def end_text(self, place: ItemPosition, key: int, whole: Spoken) -> None:
        """Take the whole text of a part."""
        draft = self._spoken(place, whole.kind) if whole.text else None
        if draft is None:
            return
        if not draft.is_closed:
            draft.row.complete(key, whole)
        if draft.disagrees or (draft.is_closed and draft.row.contradicts(key, whole)):
            self._meter.spoil(_DIFFERS)

    def annotate(self, place: ItemPosition, key: int, annotation: msgspec.Raw) -> None:
        """Keep an annotation of a text; the list that comes with the whole text replaces them."""
        draft = self._register.of_piece("message", place)
        part = draft.row.find("text", key) if isinstance(draft, ResponsesMessageDraft) else None
        if part is not None and draft is not None and not draft.is_closed and is_object(annotation):
            self._meter.add_raw(annotation)
            part.annotations.append(annotation.copy())

    def add_arguments(self, place: ItemPosition, kind: CallKind, voice: Voice, text: str) -> None:
        """Add to the arguments of a call, or begin one whose name is still to come."""
        call = self._call(place, kind)
        if call is None:
            return
        if call.is_closed:
            if call.voice == voice:
                self._meter.spoil("arguments came for a call that was done")
            return
        call.feed(text, voice)
        self._check_arguments(call.arguments.size)

    def end_arguments(self, place: ItemPosition, kind: CallKind, whole: str, name: str = "") -> None:
        """Take the whole arguments of a call; some upstreams tell its name only here."""
        call = self._call(place, kind)
        if call is None:
            return
        call.name = call.name or name
        if not call.is_closed:
            self._show_if_ready(call)
            call.complete(whole)
        if call.disagrees or (name and name != call.name) or not call.has_said(whole):
            self._meter.spoil(_DIFFERS)
        self._check_arguments(call.arguments.size)

    def add_item(self, place: ItemPosition, raw: msgspec.Raw) -> None:
        """Begin an item."""
        item = self._item(raw)
        if item is not None:
            self._begin(_placed(place, item), item, raw)

    def begin_call(self, place: ItemPosition, name: msgspec.Raw, call_id: msgspec.Raw) -> None:
        """Begin a call by its names alone, as S2's events do."""
        self._begin(place, ItemIn(type="function_call", name=name, call_id=call_id), NULL)

    def end_item(self, place: ItemPosition, raw: msgspec.Raw) -> None:
        """Take a whole item; one that was never begun begins and ends here."""
        item = self._item(raw)
        if item is None:
            return
        family, place = _family(item), _placed(place, item)
        draft = self._register.of_done(family, place, _named(item))
        self._has_ends = True
        if draft is None or not draft.is_closed:
            self._end(family, place, draft, item, raw)
        elif draft.contradicts(item):
            self._meter.spoil(_DIFFERS)

    def end_output(self, raws: list[msgspec.Raw], *, is_cut: bool = False) -> None:
        """Take the output of the whole response: what was never streamed comes now, and what was must be in it.

        Minimal upstreams say no output at all, and that of a response that `is_cut` need not name what was cut.
        """
        items = [(raw, item) for raw in raws if (item := self._item(raw)) is not None]
        for position, (raw, item, draft) in enumerate(self._claimed(items)):
            family = _family(item)
            if draft is None:
                self._end(family, ItemPosition(item_id=word_of(item.id)), None, item, raw)
            elif not draft.is_closed:
                self._end(family, ItemPosition(item_id=word_of(item.id), output_index=position), draft, item, raw)
            elif draft.contradicts(item) and all(other.contradicts(item) for other in self._of(family)):
                self._meter.spoil(_DIFFERS)
        called = sum(1 for _, item in items if _family(item) == "call")
        if items and not is_cut and called < len(self._of("call")):
            self._meter.spoil("a call is not in the output of the response")

    def finish(self, *, is_cut: bool = False) -> None:
        """Close everything that is open; of an answer that `is_cut` calls that are not whole are left out."""
        for _, draft in self._drafts:
            if isinstance(draft, ResponsesCallDraft) and not draft.is_left_out:
                self._check_end(draft, is_cut=is_cut)
            if not draft.is_closed:
                self._close(draft)
        self._emit_done(is_over=True)
        if any(draft.is_respelt for _, draft in self._drafts):
            self.note("whole_differs", "kept", "an item was said again with other white space or spelling")
        self._note_left()

    def _check_end(self, call: ResponsesCallDraft, *, is_cut: bool) -> None:
        """Look whether a call is whole when the answer ends."""
        is_last = call is self._drafts[-1][1]
        if not is_cut:
            if not call.is_closed and self.is_streamed and (self._has_ends or not call.is_whole):
                self._meter.spoil("a call has not ended")
            return
        is_ended = call.arguments.is_closed or (not is_last and not call.arguments.is_open)
        if (call.is_closed and is_last and not call.is_whole) or not (call.is_closed or is_ended):
            self._leave_out(call)

    def _leave_out(self, call: ResponsesCallDraft) -> None:
        """Never end a call that the end of the answer cut."""
        call.is_left_out = call.is_closed = True
        self._note_cut(call.name, call.arguments.size)

    def _of(self, family: Family) -> list[Draft]:
        return [draft for kind, draft in self._drafts if kind == family]

    def _item(self, raw: msgspec.Raw) -> ItemIn | None:
        item = read(ITEM, raw)
        if item is not None and kind_of(item):
            return item
        self._meter.spoil("an item is none")
        return None

    def _begin(self, place: ItemPosition, item: ItemIn, raw: msgspec.Raw) -> None:
        family = _family(item)
        draft = self._register.of_added(family, place, _named(item)) or self._new(family, place, item, raw)
        if draft is None:
            return
        draft.is_announced = True
        draft.learn(item)
        if draft.announced is None:
            self._meter.add_raw(raw)
            draft.announced = item
        self._register.add(family, place, draft)
        self._show_if_ready(draft)

    def _spoken(self, place: ItemPosition, kind: PartKind) -> SpokenDraft | None:
        family = _SPEAKERS[kind]
        draft: Any = self._register.of_piece(family, place)
        return draft if draft is not None else cast("SpokenDraft | None", self._new(family, place, ItemIn(type=family)))

    def _call(self, place: ItemPosition, kind: CallKind) -> ResponsesCallDraft | None:
        draft: Any = self._register.of_piece("call", place)
        if draft is not None:
            return draft
        begun = ItemIn(type="custom_tool_call" if kind == "custom" else "function_call")
        return cast("ResponsesCallDraft | None", self._new("call", place, begun))

    def _new(self, family: Family, place: ItemPosition, item: ItemIn, raw: msgspec.Raw | None = None) -> Draft | None:
        if len(self._drafts) >= ITEMS_MAX:
            self._meter.refuse(f"more than {ITEMS_MAX} items in one answer")
            return None
        draft = self._make(family, item, raw)
        self._meter.add(place.item_id)
        self._drafts.append((family, draft))
        self._register.add(family, place, draft)
        if isinstance(draft, SpokenDraft):
            draft.learn(item)
            self._show(draft)
        return draft

    def _make(self, family: Family, item: ItemIn, raw: msgspec.Raw | None) -> Draft:
        send, meter = self._send, self._meter
        match family:
            case "message":
                return ResponsesMessageDraft(self._ids.new(prefixes.MESSAGE), send, meter)
            case "reasoning":
                return ReasoningDraft(self._ids.new(prefixes.REASONING), send, meter, self._maker)
            case "call":
                kind = "custom" if item.type == "custom_tool_call" else "function"
                return ResponsesCallDraft(self._ids.new(prefixes.CALL_ITEM), send, meter, kind)
            case "opaque":
                # Its id stands inside it too, and a client may refer to it by that.
                item_id = word_of(item.id) or self._ids.new(prefixes.ITEM)
                assert raw is not None, "an unknown item is never begun by a piece"
                meter.add_raw(raw)
                return OpaqueDraft(item_id, send, meter, raw)

    def _send(self, event: ModelEvent) -> None:
        self.events.append(event)

    def _show_if_ready(self, draft: Draft) -> None:
        if draft.index < 0 and draft.is_ready:
            self._show(draft)

    def _show(self, draft: Draft) -> None:
        draft.index = len(self._shown)
        self._shown.append(draft)
        if isinstance(draft, ResponsesCallDraft):
            draft.call_id = self._call_id(draft.upstream_id)
        self.events.append(ItemAdded(index=draft.index, item=draft.begun()))
        if isinstance(draft, ResponsesCallDraft):
            early = draft.release()
            if early:
                self.note("arguments_before_name", "buffered", f"{early} argument bytes came before the name")

    def _end(self, family: Family, place: ItemPosition, draft: Draft | None, item: ItemIn, raw: msgspec.Raw) -> None:
        is_new = draft is None
        if is_new and family == "call" and _is_garbled(item, raw):
            self._meter.spoil("the arguments of a call are not where they should be")
            return
        draft = draft or self._new(family, place, item, raw)
        if draft is None:
            return
        draft.learn(item)
        self._register.add(family, place, draft)
        self._show_if_ready(draft)
        if isinstance(draft, OpaqueDraft) and not is_new:
            draft.replace(raw)
        draft.settle(item)
        if isinstance(draft, ResponsesCallDraft) and word_of(item.status) == "incomplete":
            self._leave_out(draft)
        else:
            self._close(draft)

    def _close(self, draft: Draft) -> None:
        if isinstance(draft, ResponsesCallDraft):
            self._close_call(draft)
        else:
            draft.close()
        if draft.disagrees:
            self._meter.spoil(_DIFFERS)
        self._emit_done()

    def _close_call(self, call: ResponsesCallDraft) -> None:
        if not self._has_name(call.name):
            return
        if call.index < 0:
            self._show(call)
        call.close()
        self._check_arguments(call.arguments.size)
        self._note_repair(call.final)

    def _emit_done(self, *, is_over: bool = False) -> None:
        """Say of every closed item that it is done, up to the first one that is still open.

        A call at the end whose arguments are no object waits too: the end of the answer may tell that it was cut.
        """
        while self._done < len(self._shown) and self._shown[self._done].is_closed:
            draft = self._shown[self._done]
            is_call = isinstance(draft, ResponsesCallDraft)
            if self._meter.damage is not None or (
                is_call and not is_over and self._done == len(self._shown) - 1 and not draft.is_whole
            ):
                return
            self._done += 1
            if not (is_call and draft.is_left_out):
                self.events.append(ItemDone(index=draft.index, item=draft.item()))

    def _claimed(self, items: list[tuple[msgspec.Raw, ItemIn]]) -> list[tuple[msgspec.Raw, ItemIn, Draft | None]]:
        """Pair the items of the final output with the drafts they are: by their ids first, then by what is left."""
        taken: set[int] = set()
        found: list[Draft | None] = []
        for _, item in items:
            family = _family(item)
            draft = self._register.of_output(family, word_of(item.id), word_of(item.call_id))
            found.append(None if draft is None or id(draft) in taken else draft)
            taken.add(id(draft))
        if None in found:
            self._claim_left(items, found, taken)
        return [(raw, item, draft) for (raw, item), draft in zip(items, found, strict=True)]

    def _claim_left(self, items: list[tuple[msgspec.Raw, ItemIn]], found: list[Draft | None], taken: set[int]) -> None:
        """Find drafts for the items that were not found by their ids, among those that are not taken."""
        free: dict[Family, list[Draft]] = {}
        for family, draft in self._drafts:
            if id(draft) not in taken:
                free.setdefault(family, []).append(draft)
        left = Counter(_family(item) for (_, item), draft in zip(items, found, strict=True) if draft is None)
        for position, (_, item) in enumerate(items):
            if found[position] is None:
                family = _family(item)
                found[position] = self._unclaimed(free.get(family, []), family, position, item, left[family])
                left[family] -= 1

    def _unclaimed(self, free: list[Draft], family: Family, position: int, item: ItemIn, left: int) -> Draft | None:
        """Find a draft for an item whose ids say nothing; where there are enough for all, the next one is it."""
        if not free:
            return None
        at = self._register.at(family, position)
        draft = at if at is not None and at in free and at.fits(item) else free[0]
        if len(free) < left and not draft.fits(item):
            return None
        free.remove(draft)
        return draft


def _is_garbled(item: ItemIn, raw: msgspec.Raw) -> bool:
    """Tell whether a whole call has no arguments and a field that is not known: they may stand there."""
    return is_null(item.arguments) and is_null(item.input) and not OBJECT.decode(raw).keys() <= _CALL_FIELDS


def _family(item: ItemIn) -> Family:
    return FAMILIES.get(item.type or kind_of(item), "opaque")


def _placed(place: ItemPosition, item: ItemIn) -> ItemPosition:
    """Return the place of an item event: the item's own id is the one that its pieces use.

    Pieces of llama.cpp name a call that has no id, and stands at no place, by its call_id.
    """
    item_id = word_of(item.id)
    if not item_id and place.is_empty and _family(item) == "call":
        item_id = word_of(item.call_id)
    return msgspec.structs.replace(place, item_id=item_id) if item_id else place


def _named(item: ItemIn) -> Named:
    if item.call_id is NULL and item.name is NULL and item.namespace is NULL:
        return _NAMELESS
    name = flat_name(word_of(item.name), word_of(item.namespace) or None)
    return Named(call_id=word_of(item.call_id), name=name)
