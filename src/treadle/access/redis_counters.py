"""Shared rate limits and slots in Redis or Valkey, changed atomically by Lua scripts. Imported only if configured."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError

from treadle.access.sliding_window import Hit, Window
from treadle.core.errors import StoreError

ANSWER_S = 0.5
"""The timeout of one command: no request waits longer to be counted."""

CONNECTIONS_MAX = 32
"""The size of the pool; further commands wait, since a pool that does not wait fails under load."""

PREFIX = "treadle"
_NO_LIMIT = 0

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""
_COUNT = f"""{_NOW}
local window, limit, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local span, kept = math.floor(now / window), redis.call('HMGET', KEYS[1], 'span', 'count', 'before')
local last, count, before = tonumber(kept[1]) or span, tonumber(kept[2]) or 0, tonumber(kept[3]) or 0
if last ~= span then
  if last == span - 1 then before = count else before = 0 end
  count = 0
end
local over = now - span * window
local used = count + math.floor(math.min(before, limit) * (1 - over / window))
if limit == 0 or (cost > 0 and used + cost <= limit) then
  redis.call('HSET', KEYS[1], 'span', span, 'count', count + cost, 'before', before)
  redis.call('PEXPIRE', KEYS[1], 2 * window)
end
return {{count, before, over}}
"""
"""Counts if the limit allows it, or always without a limit; returns the counts before, and the time within the span.
The rule is that of `Window.take`, which computes the result from them."""

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
"""Slots are a sorted set whose members expire by the clock of Redis, so that the clocks of processes do not matter."""


class RedisCounter:
    """Fits `SharedCounter`, by the clock of Redis."""

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
        self._redis = Redis(connection_pool=self._pool)
        self._count = self._redis.register_script(_COUNT)
        self._enter = self._redis.register_script(_ENTER)
        self._keep = self._redis.register_script(_KEEP)

    async def take(self, name: str, limit: int, window_s: float) -> Hit:
        """Count one event if the limit allows it. Raises: StoreError."""
        return await self._hit(name, window_s, limit, 1)

    async def left(self, name: str, limit: int, window_s: float) -> Hit:
        """Return what is left of the limit. Raises: StoreError."""
        return await self._hit(name, window_s, limit, 0)

    async def add(self, name: str, window_s: float, cost: int) -> None:
        """Count a cost that was incurred already. Raises: StoreError."""
        await self._hit(name, window_s, _NO_LIMIT, cost)

    async def _hit(self, name: str, window_s: float, limit: int, cost: int) -> Hit:
        window_ms = int(window_s * 1000)
        async with _store_errors():
            key = f"{PREFIX}:window:{name}"
            count, before, over_ms = await self._count(keys=[key], args=[window_ms, limit, cost])
        window = Window(count=int(count), before=int(before))
        return window.take(limit, cost, int(over_ms) / window_ms, window_s)

    async def enter(self, name: str, member: str, limit: int, hold_s: float) -> bool:
        """Take one of `limit` slots, for `hold_s` unless renewed. Raises: StoreError."""
        async with _store_errors():
            return bool(await self._enter(keys=[f"{PREFIX}:{name}"], args=[int(hold_s * 1000), member, limit]))

    async def keep(self, name: str, members: Sequence[str], hold_s: float) -> None:
        """Renew the slots of these members. Raises: StoreError."""
        async with _store_errors():
            await self._keep(keys=[f"{PREFIX}:{name}"], args=[int(hold_s * 1000), *members])

    async def leave(self, name: str, member: str) -> None:
        """Release a slot. Raises: StoreError."""
        async with _store_errors():
            await self._redis.zrem(f"{PREFIX}:{name}", member)  # pyright: ignore[reportUnknownMemberType]

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.disconnect()


@asynccontextmanager
async def _store_errors() -> AsyncGenerator[None, None]:
    """Bound a command in time, and turn its failure into a StoreError."""
    try:
        async with asyncio.timeout(2 * ANSWER_S):
            yield
    except (RedisError, TimeoutError, OSError) as error:
        raise StoreError(f"Redis does not answer: {type(error).__name__}.") from error
