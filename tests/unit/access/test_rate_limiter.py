"""Counting alone and together: what is shared goes first, and stops nobody while it is away."""

from collections.abc import Sequence

from treadle.access.rate_limiter import AWAY_S, RateLimiter
from treadle.access.sliding_window import Hit, SlidingWindow
from treadle.core.errors import StoreError


class Together:
    """A shared counter that the test takes away."""

    def __init__(self) -> None:
        self.is_away = False
        self.asked = 0
        self.added = 0
        self.members: set[str] = set()
        self.is_closed = False

    async def take(self, name: str, limit: int, window_s: float) -> Hit:
        self._answer()
        return Hit(allowed=True, limit=limit, remaining=limit, reset_s=window_s)

    async def left(self, name: str, limit: int, window_s: float) -> Hit:
        return await self.take(name, limit, window_s)

    async def add(self, name: str, window_s: float, cost: int) -> None:
        self._answer()
        self.added += cost

    async def enter(self, name: str, member: str, limit: int, hold_s: float) -> bool:
        self._answer()
        if member not in self.members and len(self.members) >= limit:
            return False
        self.members.add(member)
        return True

    async def keep(self, name: str, members: Sequence[str], hold_s: float) -> None:
        self._answer()
        self.members.update(members)

    async def leave(self, name: str, member: str) -> None:
        self._answer()
        self.members.discard(member)

    async def close(self) -> None:
        self.is_closed = True

    def _answer(self) -> None:
        self.asked += 1
        if self.is_away:
            raise StoreError("away")


class Bench:
    """A limiter over a shared counter, and a clock that the test turns."""

    def __init__(self, replicas: int = 2) -> None:
        self.now = 0.0
        self.alone = 0
        self.shared = Together()
        rates = SlidingWindow(self.monotonic)
        self.limiter = RateLimiter(
            rates, self.monotonic, shared=self.shared, replicas=replicas, fell_back=self.fell_back
        )

    def monotonic(self) -> float:
        return self.now

    def fell_back(self) -> None:
        self.alone += 1


async def test_alone_it_counts_in_memory() -> None:
    """Two of two, and no more; what is added counts too."""
    limiter = RateLimiter(SlidingWindow(lambda: 0.0), lambda: 0.0)
    assert [(await limiter.take("a", 2, 60.0)).allowed for _ in range(3)] == [True, True, False]
    await limiter.add("b", 60.0, 5)
    assert (await limiter.left("b", 7, 60.0)).remaining == 2
    assert not (await limiter.left("b", 5, 60.0)).allowed
    await limiter.close()


async def test_what_is_shared_decides_while_it_is_there() -> None:
    """Nothing is counted in this process."""
    bench = Bench()
    assert all([(await bench.limiter.take("a", 1, 60.0)).allowed for _ in range(3)])
    await bench.limiter.add("a", 60.0, 5)
    assert (await bench.limiter.left("a", 1, 60.0)).allowed
    assert (bench.shared.added, bench.alone) == (5, 0)
    await bench.limiter.close()
    assert bench.shared.is_closed


async def test_while_it_is_away_each_process_keeps_to_its_part() -> None:
    """Half of four for one of two; every count made alone is counted, and the others are not waited for again."""
    bench = Bench()
    bench.shared.is_away = True
    assert [(await bench.limiter.take("a", 4, 60.0)).allowed for _ in range(3)] == [True, True, False]
    assert (bench.alone, bench.shared.asked) == (3, 1)
    await bench.limiter.add("b", 60.0, 3)
    assert (await bench.limiter.left("b", 8, 60.0)).remaining == 1
    assert bench.alone == 5
    assert (await bench.limiter.take("one", 1, 60.0)).allowed


async def test_it_is_asked_again_after_a_while() -> None:
    """And decides again once it answers."""
    bench = Bench(replicas=1)
    bench.shared.is_away = True
    await bench.limiter.take("a", 1, 60.0)
    bench.shared.is_away = False
    assert not (await bench.limiter.take("a", 1, 60.0)).allowed
    bench.now += AWAY_S
    assert (await bench.limiter.take("a", 1, 60.0)).allowed
    assert bench.shared.asked == 2


async def test_places_are_those_of_all_while_what_is_shared_is_there() -> None:
    """What this process has does not matter then; one that is given back is free."""
    bench = Bench()
    assert [await bench.limiter.enter("runs:a", name, 2, 0) for name in ("r1", "r2", "r3")] == [True, True, False]
    await bench.limiter.leave("runs:a", "r1")
    assert await bench.limiter.enter("runs:a", "r3", 2, 9)
    await bench.limiter.keep({"runs:a": ["r4"]})
    assert bench.shared.members == {"r2", "r3", "r4"}
    assert bench.alone == 0


async def test_places_are_counted_here_while_what_is_shared_is_away() -> None:
    """Each process keeps to its part, counted as alone; giving back and keeping harm nobody."""
    bench = Bench()
    bench.shared.is_away = True
    assert [await bench.limiter.enter("runs:a", "r1", 4, here) for here in (0, 1, 2)] == [True, True, False]
    await bench.limiter.leave("runs:a", "r1")
    await bench.limiter.keep({"runs:a": ["r1"]})
    bench.now = AWAY_S * 2
    await bench.limiter.leave("runs:a", "r1")
    bench.now = AWAY_S * 4
    await bench.limiter.keep({"runs:a": ["r1"]})
    assert bench.alone == 3
