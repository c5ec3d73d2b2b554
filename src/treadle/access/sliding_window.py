"""How much may be done in a while: a sliding window, in the memory of this process. Pure, but for the time given.

A window is two counters: what was done in this minute, and what was done in the last one, of which the part counts
that still lies within sixty seconds, in whole numbers. It needs no list of times, and is never off by more than the
last minute was uneven. What went over the limit in a minute counts as the limit in the next one, so that nobody waits
longer than a minute.
"""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

NAMES_MAX = 100_000
"""Windows kept; the one that was not asked for longest is forgotten first."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """Whether something may be done, what is left of the limit, and after how many seconds there is more.

    For what is refused that is when the same would be allowed, if nobody else did anything meanwhile.
    """

    allowed: bool
    limit: int
    remaining: int
    reset_s: float


class Window:
    """One counter for this span and one for the last."""

    __slots__ = ("before", "count", "span")

    def __init__(self, span: int = 0, count: int = 0, before: int = 0) -> None:
        self.span = span
        self.count = count
        self.before = before

    def take(self, limit: int, cost: int, part: float, window_s: float) -> Hit:
        """Count something of this cost if the limit allows it when so much of the span is over."""
        room = limit - max(cost, 1)
        allowed = self.used(part, limit) <= room
        spans = 1.0 - part if allowed else self.wait(room, part, limit)
        if allowed:
            self.count += cost
        remaining = max(0, limit - self.used(part, limit))
        return Hit(allowed=allowed, limit=limit, remaining=remaining, reset_s=window_s * spans)

    def turn(self, span: int) -> None:
        """Go on to a span: what was counted in the one before it begins to fade."""
        if span != self.span:
            self.before = self.count if span == self.span + 1 else 0
            self.count = 0
            self.span = span

    def used(self, part: float, limit: int) -> int:
        """Return what counts when so much of the span is over."""
        return self.count + int(min(self.before, limit) * (1.0 - part))

    def wait(self, room: int, part: float, limit: int) -> float:
        """Return after what part of a span no more than `room` is used: within this one, or when the next begins."""
        faded = 1.0 - (room - self.count + 1) / (min(self.before, limit) or 1)
        return max(0.0, min(1.0, faded) - part)


class SlidingWindow:
    """Sliding windows by name."""

    def __init__(self, monotonic: Callable[[], float], *, names_max: int = NAMES_MAX) -> None:
        self._monotonic = monotonic
        self._names_max = names_max
        self._windows: OrderedDict[str, Window] = OrderedDict()

    def take(self, name: str, limit: int, window_s: float, cost: int = 1) -> Hit:
        """Do something of this cost if the limit allows it; what is refused does not count.

        A cost of 0 only asks whether anything is left.
        """
        window, part = self._look(name, window_s)
        return window.take(limit, cost, part, window_s)

    def add(self, name: str, window_s: float, cost: int) -> None:
        """Count what was done already, whatever the limit."""
        self._look(name, window_s)[0].count += cost

    def _look(self, name: str, window_s: float) -> tuple[Window, float]:
        """Return a window as it is now, and how much of the present span is over."""
        place = self._monotonic() / window_s
        span = int(place)
        window = self._windows.get(name)
        if window is None:
            window = self._windows[name] = Window(span)
            if len(self._windows) > self._names_max:
                self._windows.popitem(last=False)
        else:
            self._windows.move_to_end(name)
        window.turn(span)
        return window, place - span
