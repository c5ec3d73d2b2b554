"""Finds the item that an event belongs to.

Upstreams name an item by its id, by its place, by both, or change one of the two between events. An id together
with a place is believed first, then the id, then the place; each kind of item is looked up among its own.
"""

import msgspec

from treadle.protocols.responses.upstream_item_drafts import Draft, Family, ResponsesCallDraft


class ItemPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How an event names its item."""

    item_id: str = ""
    output_index: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has neither id nor index."""
        return not self.item_id and self.output_index is None


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """What distinguishes two calls, whatever their places."""

    call_id: str = ""
    name: str = ""

    def contradicts(self, draft: Draft) -> bool:
        """Whether this is another call than the draft's."""
        if not isinstance(draft, ResponsesCallDraft):
            return False
        if self.call_id and draft.upstream_id:
            return self.call_id != draft.upstream_id
        return bool(self.name and draft.name) and self.name != draft.name


class Register:
    """The drafts of one answer by every name they go by; the latest of a name counts."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[Family, str, int | None], Draft] = {}
        self._ids: dict[tuple[Family, str], Draft] = {}
        self._indexes: dict[tuple[Family, int | None], Draft] = {}
        self._calls: dict[str, Draft] = {}
        self._latest: dict[Family, Draft] = {}
        self._places: dict[int, int | None] = {}

    def add(self, family: Family, place: ItemPosition, draft: Draft) -> None:
        """Let a draft go by this place too."""
        self._pairs[family, place.item_id, place.output_index] = draft
        self._latest[family] = draft
        if place.item_id:
            self._ids[family, place.item_id] = draft
        if place.output_index is not None:
            self._indexes[family, place.output_index] = draft
            self._places[id(draft)] = place.output_index
        if isinstance(draft, ResponsesCallDraft) and draft.upstream_id:
            self._calls.setdefault(draft.upstream_id, draft)

    def of_piece(self, family: Family, place: ItemPosition) -> Draft | None:
        """Return the draft that a piece of content belongs to; it may be closed if the piece names it by its id."""
        if place.item_id:
            known = self._pairs.get((family, place.item_id, place.output_index))
            if known is not None:
                return known
        elif place.is_empty:
            return _if_open(self._latest.get(family))
        named = self._named(family, place)
        return named if named is not None else _if_open(self._indexes.get((family, place.output_index)))

    def of_added(self, family: Family, place: ItemPosition, named: Named) -> Draft | None:
        """Return the draft that an announcement repeats, or that pieces before it have started; None is a new item."""
        if place.is_empty:
            return None
        same = self._pairs.get((family, place.item_id, place.output_index))
        early = self._ids.get((family, place.item_id)) or self._indexes.get((family, place.output_index))
        for draft in (same, early if early is not None and early.announced is None else None):
            if draft is not None and not draft.is_closed and not named.contradicts(draft):
                return draft
        return None

    def of_done(self, family: Family, place: ItemPosition, named: Named) -> Draft | None:
        """Return the draft that a whole item ends; a closed one has been ended before."""
        if place.is_empty:
            draft = self._calls.get(named.call_id) or _if_open(self._latest.get(family))
            return None if draft is None or named.contradicts(draft) else draft
        known = self._pairs.get((family, place.item_id, place.output_index))
        if known is not None and not named.contradicts(known):
            return known
        for draft in (self._ids.get((family, place.item_id)), self._calls.get(named.call_id)):
            if draft is not None and not named.contradicts(draft) and self._may_be_at(draft, place):
                return draft
        draft = _if_open(self._indexes.get((family, place.output_index)))
        return None if draft is None or named.contradicts(draft) else draft

    def of_output(self, family: Family, item_id: str, call_id: str) -> Draft | None:
        """Return the draft of an item of the final output, by its own ids alone."""
        return self._ids.get((family, item_id)) or (self._calls.get(call_id) if family == "call" else None)

    def at(self, family: Family, output_index: int) -> Draft | None:
        """Return the draft at a place."""
        return self._indexes.get((family, output_index))

    def _named(self, family: Family, place: ItemPosition) -> Draft | None:
        known = self._pairs.get((family, place.item_id, place.output_index))
        if known is not None and (place.item_id or not known.is_closed):
            return known
        return self._ids.get((family, place.item_id)) if place.item_id else None

    def _may_be_at(self, draft: Draft, place: ItemPosition) -> bool:
        """Whether a place can mean a draft: an open one always, a closed one only at its own place."""
        return not draft.is_closed or place.output_index in (None, self._places.get(id(draft)))


def _if_open(draft: Draft | None) -> Draft | None:
    return draft if draft is not None and not draft.is_closed else None
