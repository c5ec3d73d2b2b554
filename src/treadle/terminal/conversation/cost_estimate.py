"""What a turn may cost: what its finished rounds have cost, and what the one that streams will, by its length."""

from collections.abc import Callable

from treadle.core.usage import Usage

BYTES_PER_TOKEN = 4
"""A guess: what a round really used is known when it has ended."""
ASKED_EVERY_BYTES = 256


class Spending:
    """Counts against a limit in US dollars; without one it counts nothing."""

    def __init__(self, limit_usd: float | None) -> None:
        self._limit_usd = limit_usd or 0.0
        self._settled_usd = 0.0
        self._open_bytes = 0
        self._asked_bytes = 0
        self.is_limited = limit_usd is not None

    def settle(self, cost_usd: float) -> bool:
        """Learn what the finished rounds have cost; return whether that is too much."""
        if cost_usd > self._settled_usd:
            self._settled_usd = cost_usd
            self._open_bytes = self._asked_bytes = 0
        return self.is_limited and cost_usd > self._limit_usd

    def add(self, text: str, price: Callable[[Usage], float | None]) -> bool:
        """Learn what streams; return whether it is too much, as far as its price is known here."""
        self._open_bytes += len(text.encode("utf-8", "replace"))
        if self._open_bytes - self._asked_bytes < ASKED_EVERY_BYTES:
            return False
        self._asked_bytes = self._open_bytes
        guess = price(Usage(output_tokens=self._open_bytes // BYTES_PER_TOKEN))
        return guess is not None and self._settled_usd + guess > self._limit_usd
