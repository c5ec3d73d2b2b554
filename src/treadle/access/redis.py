"""Counters in Redis or Valkey, by the library `limits`. Imported only where the settings name one."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import StorageError
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError

from treadle.access.rates import Hit
from treadle.canon.errors import StoreError

ANSWER_S = 0.5
"""How long an answer may take: no request waits longer for being counted."""

CONNECTIONS_MAX = 32
"""Connections at once; further counts wait for one, since a pool without waiting fails under load."""

PREFIX = "treadle"

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""
_ENTER = f"""{_NOW}
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) and not redis.call('ZSCORE', KEYS[1], ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
"""
_KEEP = f"""{_NOW}
for place = 2, #ARGV do redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[place]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""
"""Places are a set whose members go when their time is over, by the clock of Redis: nobody else's is asked."""


class RedisRates:
    """Fits `Shared`. Requests are counted in a sliding window, what is added afterwards in a fixed one."""

    def __init__(self, url: str, password: str = "") -> None:
        address = url.replace("valkey", "redis", 1) if url.startswith("valkey") else url
        given = {"password": password} if password else {}
        self._pool = BlockingConnectionPool.from_url(
            address,
            max_connections=CONNECTIONS_MAX,
            timeout=ANSWER_S,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            **given,
        )
        options = {"connection_pool": self._pool}
        self._storage = RedisStorage(
            "redis://",  # the address is the pool's
            wrap_exceptions=True,
            implementation="redispy",
            key_prefix=PREFIX,
            **options,  # pyright: ignore[reportArgumentType]
        )
        self._windows = SlidingWindowCounterRateLimiter(self._storage)
        self._redis = Redis(connection_pool=self._pool)
        self._enter = self._redis.register_script(_ENTER)
        self._keep = self._redis.register_script(_KEEP)

    async def take(self, name: str, limit: int, window_s: float) -> Hit:
        """Do one thing if the limit allows it. Raises: StoreError."""
        item = RateLimitItemPerSecond(limit, int(window_s))
        async with _answering():
            is_allowed = await self._windows.hit(item, name)
            stats = await self._windows.get_window_stats(item, name)
        reset_s = min(window_s, max(0.0, stats.reset_time - time.time()))
        return Hit(allowed=is_allowed, limit=limit, remaining=stats.remaining if is_allowed else 0, reset_s=reset_s)

    async def left(self, name: str, limit: int, window_s: float) -> Hit:
        """Return what is left of what `add` counts. Raises: StoreError."""
        async with _answering():
            count = await self._storage.get(name)
            reset_s = max(0.0, await self._storage.get_expiry(name) - time.time()) if count else window_s
        remaining = max(0, limit - count)
        return Hit(allowed=count < limit, limit=limit, remaining=remaining, reset_s=min(window_s, reset_s))

    async def add(self, name: str, window_s: float, cost: int) -> None:
        """Count what was done already. Raises: StoreError."""
        async with _answering():
            await self._storage.incr(name, int(window_s), amount=cost)

    async def enter(self, name: str, member: str, limit: int, hold_s: float) -> bool:
        """Take one of so many places, for so long unless it is kept. Raises: StoreError."""
        async with _answering():
            return bool(await self._enter(keys=[f"{PREFIX}:{name}"], args=[int(hold_s * 1000), member, limit]))

    async def keep(self, name: str, members: Sequence[str], hold_s: float) -> None:
        """Keep the places of these for so long from now. Raises: StoreError."""
        async with _answering():
            await self._keep(keys=[f"{PREFIX}:{name}"], args=[int(hold_s * 1000), *members])

    async def leave(self, name: str, member: str) -> None:
        """Give a place back. Raises: StoreError."""
        async with _answering():
            await self._redis.zrem(f"{PREFIX}:{name}", member)  # pyright: ignore[reportUnknownMemberType]

    async def close(self) -> None:
        """Let go of the connections."""
        await self._pool.disconnect()


@asynccontextmanager
async def _answering() -> AsyncGenerator[None, None]:
    """Bound an exchange, and say in our words that it failed."""
    try:
        async with asyncio.timeout(2 * ANSWER_S):
            yield
    except (StorageError, RedisError, TimeoutError, OSError) as error:
        raise StoreError(f"Redis does not answer: {type(error).__name__}.") from error
