"""Items under the ids that clients know them by: those that they began with, also before their process died."""

from collections.abc import Mapping, Sequence

import msgspec

from treadle.core.events import ItemAdded, RunEvent, RunRecovered
from treadle.core.ids import IdSource
from treadle.core.items import AnyItem, CallItem, Side


class StableItemIds:
    """What the broken call had begun, in order, and the ids of what it had ended, which no other item may get.

    Replaying an older journal, which does not say that the run was recovered, changes no id: there each is recorded.
    """

    def __init__(self, ids: IdSource) -> None:
        self._ids = ids
        self._started: list[AnyItem | None] = []
        self._void_ids: set[str] = set()

    def expect(self, said: Sequence[RunEvent], open_items: Mapping[int, AnyItem], void_ids: Sequence[str]) -> None:
        """Take note of a broken call: what was said of it, what it had not ended, and the ids of what it had."""
        if any(type(event) is RunRecovered for event in said):
            self._started = [open_items.get(event.index) for event in said if type(event) is ItemAdded]
            self._void_ids.update(void_ids)

    def forget(self) -> None:
        """Expect nothing more: another call is made."""
        self._started = []

    def adopt(self, item: AnyItem) -> AnyItem | None:
        """Return an item under the ids of the one in whose place it comes, None if it has none to take over.

        A call that answers differently has items of its own.
        """
        begun = self._started.pop(0) if self._started else None
        if begun is None:
            return None
        if type(begun) is not type(item) or getattr(begun, "name", "") != getattr(item, "name", ""):
            self._started = []
            return None
        if type(item) is not CallItem or type(begun) is not CallItem:
            return item if item.id == begun.id else msgspec.structs.replace(item, id=begun.id)
        upstream_id = item.upstream_id if item.call_id == begun.call_id else item.call_id
        return msgspec.structs.replace(
            item, id=begun.id, call_id=begun.call_id, upstream_id=upstream_id, side=begun.side
        )

    def with_unused_id(self, item: AnyItem) -> AnyItem:
        """Return an item under an id that none of a broken call has."""
        if item.id not in self._void_ids:
            return item
        return msgspec.structs.replace(item, id=self._ids.new(item.id.partition("_")[0]))


def with_started_ids(call: CallItem, begun: CallItem, side: Side) -> CallItem:
    """Return a whole call under the ids that it began with; its name, and so its side, may be known only now."""
    if call.call_id == begun.call_id and call.upstream_id == begun.upstream_id and call.side == side:
        return call
    return msgspec.structs.replace(call, call_id=begun.call_id, upstream_id=begun.upstream_id, side=side)
