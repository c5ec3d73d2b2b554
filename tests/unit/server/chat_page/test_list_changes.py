"""The changes of lists: told once, in order, with numbers by which one goes on, and never while nobody listens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from treadle.core.errors import StoreError
from treadle.server.chat_page import list_changes as module
from treadle.server.chat_page.list_changes import ListChange, ListChanges

BOUND_S = 5.0


class HandClock:
    """A clock whose sleepers wait until the test lets them go on."""

    def __init__(self) -> None:
        self.ticks: asyncio.Queue[None] = asyncio.Queue()

    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await self.ticks.get()


class Shelf:
    """Rows that a test changes."""

    def __init__(self) -> None:
        self.rows: dict[str, object] = {"a": {"n": 1}}
        self.looks = 0
        self.fails = False

    async def refresh(self) -> dict[str, object]:
        self.looks += 1
        if self.fails:
            raise StoreError("away")
        return dict(self.rows)


@pytest.fixture
def shelf() -> Shelf:
    """One row."""
    return Shelf()


@pytest.fixture
async def changes(shelf: Shelf) -> ListChanges:
    """The changes of a shelf that has been looked at once."""
    made = ListChanges({"thing": shelf.refresh}, HandClock())
    await made.refresh()
    return made


async def _next(told: AsyncIterator[list[ListChange]]) -> list[tuple[int, str, bytes]]:
    async with asyncio.timeout(BOUND_S):
        batch = await anext(told)
    return [(change.number, change.topic, change.data) for change in batch]


async def test_what_was_there_already_is_no_change(changes: ListChanges, shelf: Shelf) -> None:
    """The first look only learns; after it new and other rows are told, whole."""
    async with aclosing(changes.follow(0)) as told:
        shelf.rows = {"a": {"n": 2}, "b": {"n": 1}}
        assert await _next(told) == [(1, "thing", b'{"n":2}'), (2, "thing", b'{"n":1}')]
        shelf.rows = {"b": {"n": 1}}
        await changes.refresh()
        assert await _next(told) == [(3, "gone", b'{"topic":"thing","id":"a"}')]


async def test_a_row_pushed_out_by_others_is_not_gone(
    changes: ListChanges, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where as many rows are seen as are looked at, a missing one may just be older."""
    monkeypatch.setattr(module, "WINDOW", 1)
    shelf.rows = {"b": {"n": 1}}
    await changes.refresh()
    async with aclosing(changes.follow(0)) as told:
        assert await _next(told) == [(1, "thing", b'{"n":1}')]


async def test_a_cursor_goes_on_where_it_was(changes: ListChanges, shelf: Shelf) -> None:
    """Nothing is told twice, nothing left out; a cursor of another process, or of long ago, is not known."""
    start = changes.cursor()
    for n in range(3):
        shelf.rows = {"a": {"n": n + 10}}
        await changes.refresh()
    place = changes.place(start)
    assert place == 0
    async with aclosing(changes.follow(1)) as told:
        assert [number for number, _, _ in await _next(told)] == [2, 3]
    assert changes.place(changes.cursor()) == 3
    epoch = start.partition(".")[0]
    for cursor in ("", "x", f"{epoch}.", f"{epoch}.99", f"{epoch}.-1", "other.0", f"{epoch}.{'9' * 20}"):
        assert changes.place(cursor) is None


async def test_only_so_much_is_kept(changes: ListChanges, shelf: Shelf) -> None:
    """Whoever was away longer reads the lists again."""
    start = changes.cursor()
    for n in range(module.CHANGES_MAX + 1):
        shelf.rows = {"a": {"n": n + 10}}
        await changes.refresh()
    assert changes.place(start) is None


async def test_nobody_is_looked_after_when_nobody_listens(changes: ListChanges, shelf: Shelf) -> None:
    """The task ends with the last listener and begins again with the next."""
    first, second = changes.follow(0), changes.follow(0)
    shelf.rows = {"a": {"n": 5}}
    assert await _next(first) == await _next(second)
    await first.aclose()
    await second.aclose()
    looks = shelf.looks
    await asyncio.sleep(0)
    assert shelf.looks == looks
    shelf.rows = {"a": {"n": 6}}
    async with aclosing(changes.follow(1)) as third:
        assert await _next(third) == [(2, "thing", b'{"n":6}')]


async def test_a_store_that_is_away_is_looked_at_again(changes: ListChanges, shelf: Shelf) -> None:
    """The failure is nobody's end."""
    shelf.fails = True
    await changes.refresh()
    shelf.fails = False
    shelf.rows = {"a": {"n": 7}}
    await changes.refresh()
    async with aclosing(changes.follow(0)) as told:
        assert await _next(told) == [(1, "thing", b'{"n":7}')]


@pytest.mark.parametrize("number", ["", "-1", "1e3", "99", "0" * 17, "\u00b2", "\u0661"])
async def test_a_cursor_that_was_never_given_out_is_no_place(changes: ListChanges, number: str) -> None:
    """Whatever stands behind the right beginning, also digits of other scripts."""
    epoch = changes.cursor().partition(".")[0]
    assert changes.place(f"{epoch}.{number}") is None
