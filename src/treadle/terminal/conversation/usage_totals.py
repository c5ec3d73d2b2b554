"""Tokens, money and time that a conversation has used. Unknown values are never shown as zero."""

import time
from collections.abc import Callable, Iterable

import msgspec

from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.core.usage import Usage, add_usage

BYTES_PER_TOKEN = 4
"""An estimate: the real usage of a round is known when it has ended."""
ASKED_EVERY_BYTES = 256


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


class Spending:
    """Compares the cost of a turn with a limit in US dollars; a streaming round counts by its length."""

    def __init__(self, limit_usd: float | None) -> None:
        self._limit_usd = limit_usd or 0.0
        self._settled_usd = 0.0
        self._open_bytes = 0
        self._asked_bytes = 0
        self.is_limited = limit_usd is not None

    def settle(self, cost_usd: float) -> bool:
        """Set the cost of the finished rounds; return whether that is too much."""
        if cost_usd > self._settled_usd:
            self._settled_usd = cost_usd
            self._open_bytes = self._asked_bytes = 0
        return self.is_limited and cost_usd > self._limit_usd

    def add(self, text: str, price: Callable[[Usage], float | None]) -> bool:
        """Add streamed text; return whether the estimate exceeds the limit, if the price is known here."""
        self._open_bytes += len(text.encode("utf-8", "replace"))
        if self._open_bytes - self._asked_bytes < ASKED_EVERY_BYTES:
            return False
        self._asked_bytes = self._open_bytes
        guess = price(Usage(output_tokens=self._open_bytes // BYTES_PER_TOKEN))
        return guess is not None and self._settled_usd + guess > self._limit_usd
