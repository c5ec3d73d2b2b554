"""Keeps item ids stable for clients: an item that is repeated after a crash gets the id it started with."""

from collections.abc import Mapping, Sequence

import msgspec

from treadle.core.events import ItemAdded, RunEvent, RunRecovered
from treadle.core.ids import IdSource
from treadle.core.items import AnyItem, CallItem, Side


class StableItemIds:
    """The items that an interrupted call had started, in order, and the ids of its finished items, now void.

    Journals of older versions have no recovery mark. Replaying one changes no id, since each is recorded.
    """

    def __init__(self, ids: IdSource) -> None:
        self._ids = ids
        self._started: list[AnyItem | None] = []
        self._void_ids: set[str] = set()

    def expect(self, events: Sequence[RunEvent], open_items: Mapping[int, AnyItem], void_ids: Sequence[str]) -> None:
        """Expect the repeat of an interrupted call, given its events, open items, and the ids of its finished items."""
        if any(type(event) is RunRecovered for event in events):
            self._started = [open_items.get(event.index) for event in events if type(event) is ItemAdded]
            self._void_ids.update(void_ids)

    def forget(self) -> None:
        """Stop expecting: the next model call is a different one."""
        self._started = []

    def adopt(self, item: AnyItem) -> AnyItem | None:
        """Return the item with the ids of the one that it repeats, None if it repeats none.

        If the repeated call answers differently, its items keep their own ids.
        """
        started = self._started.pop(0) if self._started else None
        if started is None:
            return None
        if type(started) is not type(item) or getattr(started, "name", "") != getattr(item, "name", ""):
            self._started = []
            return None
        if type(item) is not CallItem or type(started) is not CallItem:
            return item if item.id == started.id else msgspec.structs.replace(item, id=started.id)
        upstream_id = item.upstream_id if item.call_id == started.call_id else item.call_id
        return msgspec.structs.replace(
            item, id=started.id, call_id=started.call_id, upstream_id=upstream_id, side=started.side
        )

    def with_unused_id(self, item: AnyItem) -> AnyItem:
        """Return the item with an id that no voided item has."""
        if item.id not in self._void_ids:
            return item
        return msgspec.structs.replace(item, id=self._ids.new(item.id.partition("_")[0]))


def with_started_ids(call: CallItem, started: CallItem, side: Side) -> CallItem:
    """Return a finished call with the ids it started with; its name, and so its side, may be known only now."""
    if call.call_id == started.call_id and call.upstream_id == started.upstream_id and call.side == side:
        return call
    return msgspec.structs.replace(call, call_id=started.call_id, upstream_id=started.upstream_id, side=side)
