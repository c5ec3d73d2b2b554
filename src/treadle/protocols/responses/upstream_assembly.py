"""Assembles the pieces of a Responses answer into items.

Items may be open side by side; each is done in the order in which it was opened. A call is opened once its name and
id are known. Events and the end of an answer are the business of `upstream_decoder`.
"""

from collections import Counter
from typing import Any, cast

import msgspec

from treadle.core import ids as prefixes
from treadle.core.events import ModelEvent
from treadle.core.ids import IdSource
from treadle.core.items import CallKind
from treadle.protocols.decoding.answer_meter import AnswerBounds
from treadle.protocols.decoding.item_builder import ItemBuilder
from treadle.protocols.decoding.item_drafts import BlobFactory, CallDraft, ItemDraft
from treadle.protocols.field_reader import OBJECT
from treadle.protocols.responses.content_parts import PROTOCOL
from treadle.protocols.responses.tools import flat_name
from treadle.protocols.responses.upstream_content_parts import PartKind, TextPiece
from treadle.protocols.responses.upstream_event import ITEM, NULL, ItemIn, is_null, is_object, read, word_of
from treadle.protocols.responses.upstream_item_drafts import (
    ArgumentEvents,
    Draft,
    Family,
    ResponsesCallDraft,
    ResponsesMessageDraft,
    ResponsesOpaqueDraft,
    ResponsesReasoningDraft,
    TextDraft,
    kind_of,
)
from treadle.protocols.responses.upstream_item_index import ItemPosition, Named, Register

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
_FAMILY_OF_PART: dict[PartKind, Family] = {
    "text": "message",
    "refusal": "message",
    "raw": "reasoning",
    "summary": "reasoning",
}


class ResponsesAssembly(ItemBuilder):
    """The items of one Responses answer."""

    is_streamed = True
    _has_ends = False

    def __init__(
        self,
        ids: IdSource,
        bounds: AnswerBounds,
        blobs: BlobFactory,
        taken_call_ids: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(ids, bounds, blobs, taken_call_ids)
        self._register = Register()
        self._drafts: list[Draft] = []

    @property
    def has_calls(self) -> bool:
        """Whether the model called anything."""
        return any(draft.family == "call" for draft in self._drafts)

    @property
    def calls_are_complete(self) -> bool:
        """Whether every call has a name and arguments that are a complete object, or none at all."""
        calls = [draft for draft in self._drafts if isinstance(draft, ResponsesCallDraft)]
        return all(call.name and (call.is_closed or call.is_whole) for call in calls)

    def add_text(self, place: ItemPosition, key: int, piece: TextPiece) -> None:
        """Add to a part of a message or of reasoning, or begin it."""
        if not piece.text:
            return
        draft = self._text_draft(place, piece.kind)
        if draft is None:
            return
        if draft.is_closed:
            self.meter.mark_damaged("text came for an item that was done")
        else:
            draft.row.feed(key, piece)

    def end_text(self, place: ItemPosition, key: int, whole: TextPiece) -> None:
        """Add the whole text of a part."""
        draft = self._text_draft(place, whole.kind) if whole.text else None
        if draft is None:
            return
        if not draft.is_closed:
            draft.row.complete(key, whole)
        if draft.disagrees or (draft.is_closed and draft.row.contradicts(key, whole)):
            self.meter.mark_damaged(_DIFFERS)

    def annotate(self, place: ItemPosition, key: int, annotation: msgspec.Raw) -> None:
        """Store an annotation of a text; the list that comes with the whole text replaces them."""
        draft = self._register.of_piece("message", place)
        part = draft.row.find("text", key) if isinstance(draft, ResponsesMessageDraft) else None
        if part is not None and draft is not None and not draft.is_closed and is_object(annotation):
            self.meter.add_raw(annotation)
            part.annotations.append(annotation.copy())

    def add_arguments(self, place: ItemPosition, kind: CallKind, source: ArgumentEvents, text: str) -> None:
        """Add to the arguments of a call, or begin one whose name is still to come."""
        call = self._call(place, kind)
        if call is None:
            return
        if call.is_closed:
            if call.source == source:
                self.meter.mark_damaged("arguments came for a call that was done")
            return
        self._append_arguments(call, call.feed(text, source))

    def end_arguments(self, place: ItemPosition, kind: CallKind, whole: str, name: str = "") -> None:
        """Add the whole arguments of a call; some upstreams send its name only here."""
        call = self._call(place, kind)
        if call is None:
            return
        call.name = call.name or name
        if not call.is_closed:
            self._open_if_ready(call)
            self._append_arguments(call, call.complete(whole))
        if call.disagrees or (name and name != call.name) or not call.is_same(whole):
            self.meter.mark_damaged(_DIFFERS)

    def add_item(self, place: ItemPosition, raw: msgspec.Raw) -> None:
        """Begin an item."""
        item = self._item(raw)
        if item is not None:
            self._start(_placed(place, item), item, raw)

    def start_call(self, place: ItemPosition, name: msgspec.Raw, call_id: msgspec.Raw) -> None:
        """Start a call by its names alone, as S2's events do."""
        self._start(place, ItemIn(type="function_call", name=name, call_id=call_id), NULL)

    def end_item(self, place: ItemPosition, raw: msgspec.Raw) -> None:
        """Add a whole item; one that never started starts and ends here."""
        item = self._item(raw)
        if item is None:
            return
        family, place = _family(item), _placed(place, item)
        draft = self._register.of_done(family, place, _named(item))
        self._has_ends = True
        if draft is None or not draft.is_closed:
            self._end(family, place, draft, item, raw)
        elif draft.contradicts(item):
            self.meter.mark_damaged(_DIFFERS)

    def end_output(self, raws: list[msgspec.Raw], *, is_cut: bool = False) -> None:
        """Add the output of the whole response: what was never streamed comes now, and what was must be in it.

        Minimal upstreams send no output at all, and that of a response that `is_cut` need not name what was cut.
        """
        items = [(raw, item) for raw in raws if (item := self._item(raw)) is not None]
        for position, (raw, item, draft) in enumerate(self._claimed(items)):
            family = _family(item)
            if draft is None:
                self._end(family, ItemPosition(item_id=word_of(item.id)), None, item, raw)
            elif not draft.is_closed:
                self._end(family, ItemPosition(item_id=word_of(item.id), output_index=position), draft, item, raw)
            elif draft.contradicts(item) and all(other.contradicts(item) for other in self._of(family)):
                self.meter.mark_damaged(_DIFFERS)
        called = sum(1 for _, item in items if _family(item) == "call")
        if items and not is_cut and called < len(self._of("call")):
            self.meter.mark_damaged("a call is not in the output of the response")

    def finish(self, *, is_cut: bool = False) -> None:
        """Close everything that is open; of an answer that `is_cut` calls that are not whole are left out."""
        for draft in self._drafts:
            if isinstance(draft, ResponsesCallDraft) and not draft.is_left_out:
                self._check_end(draft, is_cut=is_cut)
            if not draft.is_closed:
                self._close(draft)
        self._emit_done(is_final=True)
        if any(draft.is_respelt for draft in self._drafts):
            self.note("whole_differs", "kept", "an item was said again with other white space or spelling")
        self._note_rest()

    def _check_end(self, call: ResponsesCallDraft, *, is_cut: bool) -> None:
        """Check that a call is whole when the answer ends."""
        is_last = call is self._drafts[-1]
        if not is_cut:
            if not call.is_closed and self.is_streamed and (self._has_ends or not call.is_whole):
                self.meter.mark_damaged("a call has not ended")
            return
        is_ended = call.arguments.is_closed or (not is_last and not call.arguments.is_open)
        if (call.is_closed and is_last and not call.is_whole) or not (call.is_closed or is_ended):
            self._leave_out(call)

    def _of(self, family: Family) -> list[Draft]:
        return [draft for draft in self._drafts if draft.family == family]

    def _item(self, raw: msgspec.Raw) -> ItemIn | None:
        item = read(ITEM, raw)
        if item is not None and kind_of(item):
            return item
        self.meter.mark_damaged("an item is none")
        return None

    def _start(self, place: ItemPosition, item: ItemIn, raw: msgspec.Raw) -> None:
        family = _family(item)
        draft = self._register.of_added(family, place, _named(item)) or self._new(family, place, item, raw)
        if draft is None:
            return
        draft.add_names(item)
        if draft.announced is None:
            self.meter.add_raw(raw)
            draft.announced = item
        self._register.add(family, place, draft)
        self._open_if_ready(draft)

    def _text_draft(self, place: ItemPosition, kind: PartKind) -> TextDraft | None:
        family = _FAMILY_OF_PART[kind]
        draft: Any = self._register.of_piece(family, place)
        return draft if draft is not None else cast("TextDraft | None", self._new(family, place, ItemIn(type=family)))

    def _call(self, place: ItemPosition, kind: CallKind) -> ResponsesCallDraft | None:
        draft: Any = self._register.of_piece("call", place)
        if draft is not None:
            return draft
        item = ItemIn(type="custom_tool_call" if kind == "custom" else "function_call")
        return cast("ResponsesCallDraft | None", self._new("call", place, item))

    def _new(self, family: Family, place: ItemPosition, item: ItemIn, raw: msgspec.Raw | None = None) -> Draft | None:
        if len(self._drafts) >= ITEMS_MAX:
            self.meter.refuse(f"more than {ITEMS_MAX} items in one answer")
            return None
        draft = self._make(family, item, raw)
        self.meter.add(place.item_id)
        self._drafts.append(draft)
        self._register.add(family, place, draft)
        if isinstance(draft, TextDraft):
            draft.add_names(item)
            self._open(draft)
        return draft

    def _make(self, family: Family, item: ItemIn, raw: msgspec.Raw | None) -> Draft:
        send, meter = self._send, self.meter
        match family:
            case "message":
                return ResponsesMessageDraft(self._ids.new(prefixes.MESSAGE), send, meter)
            case "reasoning":
                return ResponsesReasoningDraft(self._ids.new(prefixes.REASONING), send, meter, self.blobs)
            case "call":
                kind = "custom" if item.type == "custom_tool_call" else "function"
                return ResponsesCallDraft(self._ids.new(prefixes.CALL_ITEM), meter, kind)
            case "opaque":
                # Its id stands inside it too, and a client may refer to it by that.
                item_id = word_of(item.id) or self._ids.new(prefixes.ITEM)
                assert raw is not None, "an unknown item is never started by a piece"
                meter.add_raw(raw)
                return ResponsesOpaqueDraft(item_id, PROTOCOL, raw)

    def _send(self, event: ModelEvent) -> None:
        self.events.append(event)

    def _open_if_ready(self, draft: Draft) -> None:
        if draft.index >= 0 or not draft.is_ready:
            return
        if isinstance(draft, ResponsesCallDraft):
            self._open_call(draft)
        else:
            self._open(draft)

    def _end(self, family: Family, place: ItemPosition, draft: Draft | None, item: ItemIn, raw: msgspec.Raw) -> None:
        is_new = draft is None
        if is_new and family == "call" and _is_garbled(item, raw):
            self.meter.mark_damaged("the arguments of a call are not where they should be")
            return
        draft = draft or self._new(family, place, item, raw)
        if draft is None:
            return
        draft.add_names(item)
        self._register.add(family, place, draft)
        self._open_if_ready(draft)
        if isinstance(draft, ResponsesOpaqueDraft) and not is_new:
            self.meter.add_raw(raw)
            draft.raw = raw.copy()
        if isinstance(draft, ResponsesCallDraft):
            self._append_arguments(draft, draft.complete(draft.arguments_of(item)))
        draft.settle(item)
        if isinstance(draft, ResponsesCallDraft) and word_of(item.status) == "incomplete":
            self._leave_out(draft)
        else:
            self._close(draft)

    def _close(self, draft: ItemDraft) -> None:
        if isinstance(draft, CallDraft) and not self._has_name(draft.name):
            return
        if isinstance(draft, TextDraft):
            draft.close()
        super()._close(draft)
        if isinstance(draft, Draft):
            draft.announced = None
            if draft.disagrees:
                self.meter.mark_damaged(_DIFFERS)
        self._emit_done()

    def _close_call(self, call: CallDraft) -> None:
        if call.index < 0:
            self._open_call(call)
        if isinstance(call, ResponsesCallDraft):
            if not call.streamed.chars and call.announced is not None:
                self._append_arguments(call, call.complete(call.arguments_of(call.announced)))
            self._append_arguments(call, call.streamed.end())
        super()._close_call(call)

    def _emit_done(self, *, is_final: bool = False) -> None:
        if self.meter.damage is None:
            super()._emit_done(is_final=is_final)

    def _may_change(self, draft: ItemDraft) -> bool:
        """The end of the answer may show that a call was cut."""
        return isinstance(draft, CallDraft) and not draft.is_whole

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
        for draft in self._drafts:
            if id(draft) not in taken:
                free.setdefault(draft.family, []).append(draft)
        left = Counter(_family(item) for (_, item), draft in zip(items, found, strict=True) if draft is None)
        for position, (_, item) in enumerate(items):
            if found[position] is None:
                family = _family(item)
                found[position] = self._unclaimed(free.get(family, []), family, position, item, left[family])
                left[family] -= 1

    def _unclaimed(self, free: list[Draft], family: Family, position: int, item: ItemIn, left: int) -> Draft | None:
        """Find a draft for an item with unknown ids: the next one, where there are enough for all."""
        if not free:
            return None
        at = self._register.at(family, position)
        draft = at if at is not None and at in free and at.fits(item) else free[0]
        if len(free) < left and not draft.fits(item):
            return None
        free.remove(draft)
        return draft


def _is_garbled(item: ItemIn, raw: msgspec.Raw) -> bool:
    """Whether a whole call has no arguments and an unknown field: they may stand there."""
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
