"""How much may be done in a while: a sliding window, in the memory of this process. Pure, but for the time given.

A window is two counters: what was done in this minute, and what was done in the last one, of which the part counts
that still lies within sixty seconds. It needs no list of times, and is never off by more than the last minute was
uneven.
"""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

NAMES_MAX = 100_000
"""Windows kept; the one that was not asked for longest is forgotten first."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """Whether something may be done, what is left of the limit, and after how many seconds there is more."""

    allowed: bool
    limit: int
    remaining: int
    reset_s: float


class _Window:
    """One counter for this span and one for the last."""

    __slots__ = ("before", "count", "span")

    def __init__(self) -> None:
        self.span = 0
        self.count = 0.0
        self.before = 0.0

    def turn(self, span: int) -> None:
        if span != self.span:
            self.before = self.count if span == self.span + 1 else 0.0
            self.count = 0.0
            self.span = span


class Rates:
    """Sliding windows by name."""

    def __init__(self, monotonic: Callable[[], float], *, names_max: int = NAMES_MAX) -> None:
        self._monotonic = monotonic
        self._names_max = names_max
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def take(self, name: str, limit: int, window_s: float, cost: int = 1) -> Hit:
        """Do something of this cost if the limit allows it; what is refused does not count.

        A cost of 0 only asks whether anything is left.
        """
        window, used, part = self._look(name, window_s)
        allowed = used + cost <= limit if cost else used < limit
        if allowed:
            window.count += cost
            used += cost
        remaining = max(0, int(limit - used))
        return Hit(allowed=allowed, limit=limit, remaining=remaining, reset_s=window_s * (1.0 - part))

    def add(self, name: str, window_s: float, cost: int) -> None:
        """Count what was done already, whatever the limit."""
        self._look(name, window_s)[0].count += cost

    def _look(self, name: str, window_s: float) -> tuple[_Window, float, float]:
        """Return a window as it is now, what of it is used, and how much of the present span is over."""
        place = self._monotonic() / window_s
        span = int(place)
        window = self._windows.get(name)
        if window is None:
            window = self._windows[name] = _Window()
            window.span = span
            if len(self._windows) > self._names_max:
                self._windows.popitem(last=False)
        else:
            self._windows.move_to_end(name)
        window.turn(span)
        part = place - span
        return window, window.count + window.before * (1.0 - part), part
