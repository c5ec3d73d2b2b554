"""Many writes as one on PostgreSQL: who goes alone, who goes together, and what becomes of a group that fails."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import pytest

from treadle.canon.errors import Conflict, StoreError
from treadle.store.postgres.connection import Gone
from treadle.store.together import postgres as together
from treadle.store.together.postgres import Group


class Database:
    """Stands for the pool: it waits until it may answer, and may fail."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.alone: list[tuple[str, bool]] = []
        self.error: Exception | None = None
        self.undone: set[str] = set()
        self.may_answer = asyncio.Event()
        self.group: Group[str, str] = Group(self, self.send)  # type: ignore[arg-type]

    async def run(self, work: Callable[[Any], Awaitable[Any]], deadline: float) -> Any:
        """Fit `Pool.run`."""
        return await work(None)

    async def send(self, _: object, wishes: Sequence[str]) -> list[str | None]:
        """Do many at once."""
        self.groups.append(list(wishes))
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return [None if wish in self.undone else f"{wish} together" for wish in wishes]

    async def write(self, wish: str) -> str:
        """Make one write."""

        async def alone(in_doubt: bool) -> str:
            self.alone.append((wish, in_doubt))
            await self.may_answer.wait()
            if wish == "bad":
                raise Conflict("refused")
            return f"{wish} alone"

        return await self.group.write(wish, alone)

    async def begin(self, *wishes: str) -> list[asyncio.Task[str]]:
        """Make many writes at once, and let each go as far as it can."""
        tasks = [asyncio.create_task(self.write(wish)) for wish in wishes]
        for _ in range(10):
            await asyncio.sleep(0)
        return tasks


async def test_whoever_is_alone_goes_at_once() -> None:
    """One after the other, without a group."""
    database = Database()
    database.may_answer.set()
    assert [await database.write(wish) for wish in "ab"] == ["a alone", "b alone"]
    assert (database.alone, database.groups) == ([("a", False), ("b", False)], [])


async def test_those_who_wait_at_the_same_time_go_together() -> None:
    """A few go alone, the rest as one; each hears its own outcome."""
    database = Database()
    tasks = await database.begin("a", *"bcdef")
    assert (database.alone, database.groups) == ([("a", False)], [list("bcdef")])
    database.may_answer.set()
    assert await asyncio.gather(*tasks) == ["a alone", *(f"{wish} together" for wish in "bcdef")]
    again = await database.begin(*"ghi")
    assert await asyncio.gather(*again) == [f"{wish} together" for wish in "ghi"]
    assert await asyncio.gather(*(await database.begin("j"))) == ["j alone"]
    assert database.groups[1:] == [list("ghi")]


async def test_no_more_than_a_few_are_under_way() -> None:
    """What comes meanwhile waits, and goes when something has come back."""
    database = Database()
    tasks = [*(await database.begin(*"abc")), *(await database.begin(*"de"))]
    assert (database.alone, database.groups) == ([("a", False)], [["b", "c"]])
    database.may_answer.set()
    await asyncio.gather(*tasks)
    assert database.groups == [["b", "c"], ["d", "e"]]


async def test_a_group_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest goes with the next one."""
    monkeypatch.setattr(together, "TOGETHER_MAX", 2)
    database = Database()
    tasks = await database.begin(*"abcde")
    database.may_answer.set()
    await asyncio.gather(*tasks)
    assert database.groups == [["b", "c"], ["d", "e"]]


@pytest.mark.parametrize(
    ("error", "in_doubt"),
    [(Gone("lost"), True), (asyncpg.UniqueViolationError("taken"), False), (StoreError("no connection"), False)],
)
async def test_a_group_that_fails_is_taken_apart(error: Exception, in_doubt: bool) -> None:
    """Each goes alone, told whether it may have been done; only what is wrong itself fails."""
    database = Database()
    database.error = error
    tasks = await database.begin("a", "b", "bad", "c")
    database.may_answer.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["a alone", "b alone", "refused", "c alone"]
    assert database.alone == [("a", False), *((wish, in_doubt) for wish in ("b", "bad", "c"))]


async def test_what_a_group_left_out_goes_alone() -> None:
    """It is known not to be done."""
    database = Database()
    database.undone = {"c"}
    tasks = await database.begin(*"abcd")
    database.may_answer.set()
    assert await asyncio.gather(*tasks) == ["a alone", "b together", "c alone", "d together"]
    assert database.alone == [("a", False), ("c", False)]


async def test_a_caller_that_leaves_stops_nobody() -> None:
    """Neither while it waits alone nor while its group does."""
    database = Database()
    tasks = await database.begin(*"abcd")
    waiting = await database.begin("e")
    for task in (tasks[0], tasks[1], *waiting):
        task.cancel()
    await asyncio.wait({tasks[0], tasks[1], *waiting})
    database.may_answer.set()
    assert await asyncio.gather(*tasks[2:]) == ["c together", "d together"]
    assert await database.write("f") in ("f alone", "f together")
