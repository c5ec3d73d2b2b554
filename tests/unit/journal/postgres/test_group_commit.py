"""Many writes as one on PostgreSQL: who goes alone, who goes together, and what becomes of a group that fails."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import pytest

from treadle.core.errors import Conflict, StoreError
from treadle.journal.postgres import group_commit as together
from treadle.journal.postgres.connection import Gone
from treadle.journal.postgres.group_commit import Group


class Database:
    """Stands for the pool and its lines: it waits until it may answer, and may fail."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.alone: list[tuple[str, bool]] = []
        self.error: Exception | None = None
        self.undone: set[str] = set()
        self.may_answer = asyncio.Event()
        self.group: Group[str, str] = Group(self, self.send, 3.0)  # type: ignore[arg-type]

    def line(self) -> "Database":
        """Fit `Pool.line`."""
        return self

    async def run(self, work: Callable[[Any, float], Awaitable[Any]], within_s: float) -> Any:
        """Fit `Line.run`."""
        return await work(None, within_s)

    async def send(self, _: object, wishes: Sequence[str], within_s: float) -> list[str | None]:
        """Do many at once."""
        assert within_s == 3.0
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
    """One after the other, each as a group of its own."""
    database = Database()
    database.may_answer.set()
    assert [await database.write(wish) for wish in "ab"] == ["a together", "b together"]
    assert (database.alone, database.groups) == ([], [["a"], ["b"]])


async def test_those_who_wait_at_the_same_time_go_together() -> None:
    """One commit for all of them, beside one that is under way; each hears its own outcome."""
    database = Database()
    tasks = [*(await database.begin("a")), *(await database.begin(*"bcdef"))]
    assert database.groups == [["a"], list("bcdef")]
    database.may_answer.set()
    assert await asyncio.gather(*tasks) == [f"{wish} together" for wish in "abcdef"]
    assert database.alone == []


async def test_no_more_than_a_few_are_under_way() -> None:
    """All that comes meanwhile waits, and goes as one when something has come back."""
    database = Database()
    tasks = [task for some in ("a", "bc", "d", "ef") for task in await database.begin(*some)]
    assert database.groups == [["a"], ["b", "c"]]
    database.may_answer.set()
    await asyncio.gather(*tasks)
    assert database.groups == [["a"], ["b", "c"], ["d", "e", "f"]]


async def test_a_group_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest goes with the next one."""
    monkeypatch.setattr(together, "TOGETHER_MAX", 2)
    database = Database()
    tasks = await database.begin(*"abcde")
    assert database.groups == [["a", "b"], ["c", "d"]]
    database.may_answer.set()
    await asyncio.gather(*tasks)
    assert database.groups == [["a", "b"], ["c", "d"], ["e"]]


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
    assert database.alone == [(wish, in_doubt) for wish in ("a", "b", "bad", "c")]


async def test_what_a_group_left_out_goes_alone() -> None:
    """It is known not to be done."""
    database = Database()
    database.undone = {"c"}
    tasks = await database.begin(*"abcd")
    database.may_answer.set()
    assert await asyncio.gather(*tasks) == ["a together", "b together", "c alone", "d together"]
    assert database.alone == [("c", False)]


async def test_a_caller_that_leaves_stops_nobody() -> None:
    """Neither while it waits for its group to go nor while its group is under way."""
    database = Database()
    tasks = [*(await database.begin(*"abcd")), *(await database.begin("e"))]
    waiting = await database.begin(*"fg")
    for task in (tasks[0], waiting[0]):
        task.cancel()
    await asyncio.wait({tasks[0], waiting[0]})
    database.may_answer.set()
    assert await asyncio.gather(*tasks[1:], waiting[1]) == [f"{wish} together" for wish in "bcdeg"]
    assert database.groups == [list("abcd"), ["e"], ["f", "g"]]


@pytest.mark.parametrize("steps", [0, 1], ids=["before its first step", "amid it"])
async def test_those_of_a_group_that_is_cancelled_hear_of_it(steps: int) -> None:
    """As when a loop ends: each may have been done, goes alone, and the next group can go."""
    database = Database()
    told: list[tuple[str | None, bool]] = []
    database.group.join("a", lambda value, in_doubt: told.append((value, in_doubt)))
    for _ in range(steps + 1):
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (told, len(database.groups)) == ([(None, True)], steps)
    database.may_answer.set()
    assert await database.write("b") == "b together"
