"""Stores that go away under a server at work, for longer than it waits: a held lock, a silent network, a full disk."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from chaos.full import fill
from gateway.resuming import StoreAway
from postgres import postgres_server
from proxy import proxy_before

Place = tuple[list[str], StoreAway]
"""The addresses of the store for each process, and what takes it away and gives it back."""


@asynccontextmanager
async def locked_file(folder: Path) -> AsyncIterator[Place]:
    """One process on SQLite, and another program that begins to write to the file and does not end."""
    file = folder / "treadle.db"
    other = sqlite3.connect(file, timeout=60, isolation_level=None, check_same_thread=False)

    async def begin() -> None:
        await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")

    async def end() -> None:
        await asyncio.to_thread(other.execute, "ROLLBACK")

    try:
        yield [f"sqlite:///{file}"], StoreAway(begin, end)
    finally:
        other.close()


@asynccontextmanager
async def silent_database(folder: Path) -> AsyncIterator[Place]:
    """Two processes on PostgreSQL, whose network stands still for both."""
    async with _behind_proxy(2) as place:
        yield place


@asynccontextmanager
async def partition(folder: Path) -> AsyncIterator[Place]:
    """Two processes on PostgreSQL, whose network stands still for the first alone."""
    async with _behind_proxy(1) as place:
        yield place


@asynccontextmanager
async def _behind_proxy(count: int) -> AsyncIterator[Place]:
    server = postgres_server()
    async with proxy_before(server.socket_folder) as proxy:

        async def begin() -> None:
            proxy.stand_still()

        async def end() -> None:
            proxy.go_on()

        direct = server.url(server.new_schema())
        behind = direct.replace(str(server.socket_folder), str(proxy.folder))
        yield [*[behind] * count, *[direct] * (2 - count)], StoreAway(begin, end)


@asynccontextmanager
async def full_file(folder: Path) -> AsyncIterator[Place]:
    """One process on SQLite, on a disk that is filled. The folder must be on a small one."""
    async with _full(folder) as full:
        yield [f"sqlite:///{folder}/treadle.db"], full


@asynccontextmanager
async def _full(folder: Path) -> AsyncIterator[StoreAway]:
    filler = folder / "filler"

    async def begin() -> None:
        await asyncio.to_thread(fill, filler)

    async def end() -> None:
        filler.unlink()

    yield StoreAway(begin, end)


Outage = Callable[[Path], AbstractAsyncContextManager[Place]]
OUTAGES: dict[str, Outage] = {
    "a locked file": locked_file,
    "a silent database": silent_database,
    "a partition": partition,
}
DISKS: dict[str, Outage] = {"sqlite": full_file}
