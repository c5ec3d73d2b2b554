"""Rate limits and concurrency slots, counted in this process or in a counter that several processes share.

If the shared counter is unavailable, each process counts by itself against its share of the limit.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from treadle.access.sliding_window import Hit, SlidingWindow
from treadle.core.errors import StoreError

log = logging.getLogger("treadle.access")

AWAY_S = 1.0
"""How long a shared counter that did not answer is not used."""


HOLD_S = 30.0
"""How long a slot is held without renewal: its process may be dead. Live processes renew it more often."""


class SharedCounter(Protocol):
    """A counter that several processes share."""

    async def take(self, name: str, limit: int, window_s: float) -> Hit:
        """Count one event if the limit allows it. Raises: StoreError."""
        ...

    async def left(self, name: str, limit: int, window_s: float) -> Hit:
        """Return what is left of the limit. Raises: StoreError."""
        ...

    async def add(self, name: str, window_s: float, cost: int) -> None:
        """Count a cost that was incurred already. Raises: StoreError."""
        ...

    async def enter(self, name: str, member: str, limit: int, hold_s: float) -> bool:
        """Take one of `limit` slots, for `hold_s` unless renewed; False if none is free. Raises: StoreError."""
        ...

    async def keep(self, name: str, members: Sequence[str], hold_s: float) -> None:
        """Renew the slots of these members. Raises: StoreError."""
        ...

    async def leave(self, name: str, member: str) -> None:
        """Release a slot. Raises: StoreError."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class RateLimiter:
    """Counts by name. `replicas` processes share a limit; `fell_back` is called for each count made without them."""

    def __init__(
        self,
        rates: SlidingWindow,
        monotonic: Callable[[], float],
        *,
        shared: SharedCounter | None = None,
        replicas: int = 1,
        fell_back: Callable[[], None] = lambda: None,
    ) -> None:
        self._rates = rates
        self._monotonic = monotonic
        self._shared = shared
        self.is_shared = shared is not None
        """Whether other processes share the counter."""
        self._replicas = replicas
        self._fell_back = fell_back
        self._retry_at = float("-inf")

    async def take(self, name: str, limit: int, window_s: float) -> Hit:
        """Count one event if the limit allows it; a refused one does not count."""
        if self._shared is None:
            return self._rates.take(name, self._share(limit), window_s)
        if self._monotonic() >= self._retry_at:
            try:
                return await self._shared.take(name, limit, window_s)
            except StoreError as error:
                self._fall_back(error)
        return self._rates.take(name, self._own_share(limit), window_s)

    async def left(self, name: str, limit: int, window_s: float) -> Hit:
        """Return what is left of the limit."""
        if self._shared is None:
            return self._rates.take(name, self._share(limit), window_s, 0)
        if self._monotonic() >= self._retry_at:
            try:
                return await self._shared.left(name, limit, window_s)
            except StoreError as error:
                self._fall_back(error)
        return self._rates.take(name, self._own_share(limit), window_s, 0)

    async def add(self, name: str, window_s: float, cost: int) -> None:
        """Count a cost that was incurred already, whatever the limit."""
        if self._shared is not None and self._monotonic() >= self._retry_at:
            try:
                await self._shared.add(name, window_s, cost)
            except StoreError as error:
                self._fall_back(error)
            else:
                return
        elif self._shared is not None:
            self._fell_back()
        self._rates.add(name, window_s, cost)

    async def enter(self, name: str, member: str, limit: int, here: int) -> bool:
        """Take one of `limit` slots, of which `here` are taken in this process; False if none is free."""
        if self._shared is None:
            return here < self._share(limit)
        if self._monotonic() >= self._retry_at:
            try:
                return await self._shared.enter(name, member, limit, HOLD_S)
            except StoreError as error:
                self._fall_back(error)
        return here < self._own_share(limit)

    async def keep(self, places: Mapping[str, Sequence[str]]) -> None:
        """Renew slots in the shared counter."""
        if self._shared is None or self._monotonic() < self._retry_at:
            return
        try:
            for name, members in places.items():
                await self._shared.keep(name, members, HOLD_S)
        except StoreError as error:
            self._fall_back(error)

    async def leave(self, name: str, member: str) -> None:
        """Release a slot; if the shared counter is unavailable, the slot expires by itself."""
        if self._shared is None or self._monotonic() < self._retry_at:
            return
        try:
            await self._shared.leave(name, member)
        except StoreError as error:
            self._fall_back(error)

    async def close(self) -> None:
        """Close the shared counter."""
        if self._shared is not None:
            await self._shared.close()

    def _own_share(self, limit: int) -> int:
        """Return this process's share of a limit, and report the fallback."""
        self._fell_back()
        return self._share(limit)

    def _share(self, limit: int) -> int:
        """Return this process's share of a limit."""
        return max(1, limit // self._replicas)

    def _fall_back(self, error: StoreError) -> None:
        self._retry_at = self._monotonic() + AWAY_S
        log.warning("shared limits are away; this process counts alone", extra={"reason": error.message})
