"""Sliding-window rate limits in the memory of this process. Pure, with an injected clock.

A window has two counters: the current minute, and the previous one, weighted by the part of it that is within the last
sixty seconds. It needs no list of timestamps, and its error is bounded by how uneven the previous minute was. A count
above the limit is carried over as the limit only, so that no wait is longer than a minute.
"""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

NAMES_MAX = 100_000
"""The number of windows kept; the least recently used is dropped first."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an event is allowed, what is left of the limit, and after how many seconds it resets.

    For a refused event `reset_s` is when it would be allowed if no other were counted before.
    """

    allowed: bool
    limit: int
    remaining: int
    reset_s: float


class Window:
    """The counters of the current and the previous span."""

    __slots__ = ("before", "count", "span")

    def __init__(self, span: int = 0, count: int = 0, before: int = 0) -> None:
        self.span = span
        self.count = count
        self.before = before

    def take(self, limit: int, cost: int, part: float, window_s: float) -> Hit:
        """Count a cost if the limit allows it; `part` is how much of the span is over."""
        room = limit - max(cost, 1)
        allowed = self.used(part, limit) <= room
        spans = 1.0 - part if allowed else self.wait(room, part, limit)
        if allowed:
            self.count += cost
        remaining = max(0, limit - self.used(part, limit))
        return Hit(allowed=allowed, limit=limit, remaining=remaining, reset_s=window_s * spans)

    def advance(self, span: int) -> None:
        """Move on to a span; the count of the one before it becomes `before`."""
        if span != self.span:
            self.before = self.count if span == self.span + 1 else 0
            self.count = 0
            self.span = span

    def used(self, part: float, limit: int) -> int:
        """Return the weighted count when `part` of the span is over."""
        return self.count + int(min(self.before, limit) * (1.0 - part))

    def wait(self, room: int, part: float, limit: int) -> float:
        """Return after what part of a span at most `room` is used: within this span, or when the next starts."""
        faded = 1.0 - (room - self.count + 1) / (min(self.before, limit) or 1)
        return max(0.0, min(1.0, faded) - part)


class SlidingWindow:
    """Sliding windows by name."""

    def __init__(self, monotonic: Callable[[], float], *, names_max: int = NAMES_MAX) -> None:
        self._monotonic = monotonic
        self._names_max = names_max
        self._windows: OrderedDict[str, Window] = OrderedDict()

    def take(self, name: str, limit: int, window_s: float, cost: int = 1) -> Hit:
        """Count a cost if the limit allows it; a refused one does not count.

        A cost of 0 only checks whether anything is left.
        """
        window, part = self._current(name, window_s)
        return window.take(limit, cost, part, window_s)

    def add(self, name: str, window_s: float, cost: int) -> None:
        """Count a cost that was incurred already, whatever the limit."""
        self._current(name, window_s)[0].count += cost

    def _current(self, name: str, window_s: float) -> tuple[Window, float]:
        """Return the window advanced to the current span, and how much of that is over."""
        place = self._monotonic() / window_s
        span = int(place)
        window = self._windows.get(name)
        if window is None:
            window = self._windows[name] = Window(span)
            if len(self._windows) > self._names_max:
                self._windows.popitem(last=False)
        else:
            self._windows.move_to_end(name)
        window.advance(span)
        return window, place - span
