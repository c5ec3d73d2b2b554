"""Counters in Redis or Valkey: the windows of `rates`, each kept and changed by a script there. Imported only where the
settings name one."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError

from treadle.access.sliding_window import Hit, Window
from treadle.core.errors import StoreError

ANSWER_S = 0.5
"""How long an answer may take: no request waits longer for being counted."""

CONNECTIONS_MAX = 32
"""Connections at once; further counts wait for one, since a pool without waiting fails under load."""

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
"""Counts if the limit allows it, and always without a limit; returns what was counted before, and the time in the span.
The rule is that of `Window.take`, which then says what came of it."""

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
    """Fits `Shared`, by the clock of Redis."""

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
        """Do one thing if the limit allows it. Raises: StoreError."""
        return await self._hit(name, window_s, limit, 1)

    async def left(self, name: str, limit: int, window_s: float) -> Hit:
        """Return what is left of what `add` counts. Raises: StoreError."""
        return await self._hit(name, window_s, limit, 0)

    async def add(self, name: str, window_s: float, cost: int) -> None:
        """Count what was done already. Raises: StoreError."""
        await self._hit(name, window_s, _NO_LIMIT, cost)

    async def _hit(self, name: str, window_s: float, limit: int, cost: int) -> Hit:
        window_ms = int(window_s * 1000)
        async with _answering():
            key = f"{PREFIX}:window:{name}"
            count, before, over_ms = await self._count(keys=[key], args=[window_ms, limit, cost])
        window = Window(count=int(count), before=int(before))
        return window.take(limit, cost, int(over_ms) / window_ms, window_s)

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
    except (RedisError, TimeoutError, OSError) as error:
        raise StoreError(f"Redis does not answer: {type(error).__name__}.") from error
