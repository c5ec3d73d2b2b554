"""What counts how much is done: in this process, or for all processes together where they share a counter.

A shared counter that is away stops nobody: each process then counts for itself, and keeps to its part of the limit.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from treadle.access.sliding_window import Hit, SlidingWindow
from treadle.core.errors import StoreError

log = logging.getLogger("treadle.access")

AWAY_S = 1.0
"""How long a shared counter that did not answer is left alone."""


HOLD_S = 30.0
"""How long a place is held that nobody keeps: the process that had it may be dead. Who lives keeps it more often."""


class Shared(Protocol):
    """A counter that several processes share."""

    async def take(self, name: str, limit: int, window_s: float) -> Hit:
        """Do one thing if the limit allows it. Raises: StoreError."""
        ...

    async def left(self, name: str, limit: int, window_s: float) -> Hit:
        """Return what is left of what `add` counts. Raises: StoreError."""
        ...

    async def add(self, name: str, window_s: float, cost: int) -> None:
        """Count what was done already. Raises: StoreError."""
        ...

    async def enter(self, name: str, member: str, limit: int, hold_s: float) -> bool:
        """Take one of so many places, for so long unless it is kept; False, if none is free. Raises: StoreError."""
        ...

    async def keep(self, name: str, members: Sequence[str], hold_s: float) -> None:
        """Keep the places of these for so long from now. Raises: StoreError."""
        ...

    async def leave(self, name: str, member: str) -> None:
        """Give a place back. Raises: StoreError."""
        ...

    async def close(self) -> None:
        """Let go of its connections."""
        ...


class Limiter:
    """Counts by name. `replicas` is how many processes share a limit; `fell_back` hears of each count made alone."""

    def __init__(
        self,
        rates: SlidingWindow,
        monotonic: Callable[[], float],
        *,
        shared: Shared | None = None,
        replicas: int = 1,
        fell_back: Callable[[], None] = lambda: None,
    ) -> None:
        self._rates = rates
        self._monotonic = monotonic
        self._shared = shared
        self.is_shared = shared is not None
        """Whether others count along."""
        self._replicas = replicas
        self._fell_back = fell_back
        self._away_until = float("-inf")

    async def take(self, name: str, limit: int, window_s: float) -> Hit:
        """Do one thing if the limit allows it; what is refused does not count."""
        if self._shared is None:
            return self._rates.take(name, self._share(limit), window_s)
        if self._monotonic() >= self._away_until:
            try:
                return await self._shared.take(name, limit, window_s)
            except StoreError as error:
                self._lose(error)
        return self._rates.take(name, self._part(limit), window_s)

    async def left(self, name: str, limit: int, window_s: float) -> Hit:
        """Return what is left of what `add` counts."""
        if self._shared is None:
            return self._rates.take(name, self._share(limit), window_s, 0)
        if self._monotonic() >= self._away_until:
            try:
                return await self._shared.left(name, limit, window_s)
            except StoreError as error:
                self._lose(error)
        return self._rates.take(name, self._part(limit), window_s, 0)

    async def add(self, name: str, window_s: float, cost: int) -> None:
        """Count what was done already, whatever the limit."""
        if self._shared is not None and self._monotonic() >= self._away_until:
            try:
                await self._shared.add(name, window_s, cost)
            except StoreError as error:
                self._lose(error)
            else:
                return
        elif self._shared is not None:
            self._fell_back()
        self._rates.add(name, window_s, cost)

    async def enter(self, name: str, member: str, limit: int, here: int) -> bool:
        """Take one of so many places, of which `here` are taken in this process; False, if none is free."""
        if self._shared is None:
            return here < self._share(limit)
        if self._monotonic() >= self._away_until:
            try:
                return await self._shared.enter(name, member, limit, HOLD_S)
            except StoreError as error:
                self._lose(error)
        return here < self._part(limit)

    async def keep(self, places: Mapping[str, Sequence[str]]) -> None:
        """Keep places that were taken, of whatever is shared."""
        if self._shared is None or self._monotonic() < self._away_until:
            return
        try:
            for name, members in places.items():
                await self._shared.keep(name, members, HOLD_S)
        except StoreError as error:
            self._lose(error)

    async def leave(self, name: str, member: str) -> None:
        """Give a place back; where that cannot be told, it is free after a while by itself."""
        if self._shared is None or self._monotonic() < self._away_until:
            return
        try:
            await self._shared.leave(name, member)
        except StoreError as error:
            self._lose(error)

    async def close(self) -> None:
        """Let go of what is shared."""
        if self._shared is not None:
            await self._shared.close()

    def _part(self, limit: int) -> int:
        """Return what this process may do alone, and count that it does."""
        self._fell_back()
        return self._share(limit)

    def _share(self, limit: int) -> int:
        """Return this process's part of a limit."""
        return max(1, limit // self._replicas)

    def _lose(self, error: StoreError) -> None:
        self._away_until = self._monotonic() + AWAY_S
        log.warning("shared limits are away; this process counts alone", extra={"reason": error.message})
