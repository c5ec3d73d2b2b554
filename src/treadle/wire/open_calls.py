"""The calls of a history that still want a result, found by id, by name or by age.

Finding and closing one costs the same however many are open, since a request may hold thousands. What a result means
to the call that it answers is the protocols' affair.
"""

from collections import deque
from collections.abc import Iterable

from treadle.canon.items import CallItem


class OpenCalls:
    """Open calls in the order in which they were made; each can be taken once."""

    def __init__(self, calls: Iterable[CallItem] = ()) -> None:
        self._made = 0
        self._open: dict[int, CallItem] = {}
        self._by_id: dict[str, deque[int]] = {}
        self._by_name: dict[str, deque[int]] = {}
        for call in calls:
            self.add(call)

    def add(self, call: CallItem) -> None:
        """Add a call as the youngest; it is known by its own id and by its upstream's."""
        place, self._made = self._made, self._made + 1
        self._open[place] = call
        self._by_name.setdefault(call.name, deque()).append(place)
        for call_id in {call.call_id, call.upstream_id or call.call_id}:
            self._by_id.setdefault(call_id, deque()).append(place)

    def take_id(self, call_id: str) -> CallItem | None:
        """Close the oldest call of that id and return it."""
        return self._take(self._by_id.get(call_id))

    def take_name(self, name: str) -> CallItem | None:
        """Close the oldest call of that name and return it."""
        return self._take(self._by_name.get(name))

    def take_oldest(self) -> CallItem | None:
        """Close the oldest call and return it."""
        place = next(iter(self._open), None)
        return None if place is None else self._open.pop(place)

    def _take(self, places: deque[int] | None) -> CallItem | None:
        # A call stands in several queues and leaves the others when they reach it, so each place is passed once.
        while places:
            call = self._open.pop(places.popleft(), None)
            if call is not None:
                return call
        return None
