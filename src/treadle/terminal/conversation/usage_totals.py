"""What a conversation has used: tokens, money, time. What is not known is never shown as nothing."""

import time
from collections.abc import Callable, Iterable

import msgspec

from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.core.usage import Usage, add_usage


class Totals:
    """Counts the turns of one terminal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: float | None = None
        self.turns = 0
        self.calls = 0
        self.usage: Usage | None = None
        self.cost: float | None = None
        self.has_unpriced = False
        self.last_s = 0.0

    def begin(self) -> None:
        """Begin a turn."""
        self._began = self._clock()

    def end(self, ended: RunEnded | None, cost: float | None) -> None:
        """End the turn."""
        self.last_s = self.seconds
        self._began = None
        if ended is None:
            return
        self.turns += 1
        self.calls += ended.calls
        self.usage = add_usage(self.usage, ended.usage)
        self.has_unpriced = self.has_unpriced or (cost is None and ended.usage is not None)
        self.cost = self.cost if cost is None else (self.cost or 0.0) + cost

    @property
    def seconds(self) -> float:
        """Return how long the turn lasts, or lasted."""
        return self.last_s if self._began is None else self._clock() - self._began


def tokens_text(usage: Usage | None) -> str:
    """Return token counts as text."""
    if usage is None:
        return "tokens unknown"
    total, sign = usage.total_tokens, "~" if usage.estimated else ""
    return f"{sign}{total} tokens" if total < 10_000 else f"{sign}{total / 1000:.1f}k tokens"


def cost_text(cost: float | None) -> str:
    """Return a cost as text."""
    return "cost unknown" if cost is None else f"${cost:.4f}" if cost < 1 else f"${cost:.2f}"


def time_text(seconds: float) -> str:
    """Return a duration as text."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


class _Reply(msgspec.Struct):
    usage: Usage | None = None


def usage_of(entries: Iterable[Entry]) -> Usage | None:
    """Return what the rounds in a journal have used so far."""
    usage: Usage | None = None
    for entry in entries:
        if entry.kind == "reply" and entry.data is not None:
            usage = add_usage(usage, msgspec.json.decode(entry.data, type=_Reply).usage)
    return usage
