"""Stores that go away under a server at work, for longer than it waits: a held lock, a silent network, a full disk."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from chaos.full import fill
from gateway.resuming import StoreAway
from postgres import PostgresServer, postgres_server
from proxy import proxy_before
from treadle.journal.postgres.connection import UNREACHABLE, connect
from treadle.journal.store_url import PostgresAddress

FILLER = "filler"
ATTEMPTS_MAX = 20
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
    filler = folder / FILLER

    async def end() -> None:
        filler.unlink()

    yield [f"sqlite:///{folder}/treadle.db"], StoreAway(partial(asyncio.to_thread, fill, filler), end)


@asynccontextmanager
async def full_database(folder: Path) -> AsyncIterator[Place]:
    """Two processes on a PostgreSQL whose disk is filled: no table grows. Its folder must be on a small one."""
    async with _small_database(folder) as (database, stores):

        async def end() -> None:
            (folder / FILLER).unlink()
            await database.come_back()  # it may have met the end of its log, as below

        yield stores, StoreAway(partial(asyncio.to_thread, fill, folder / FILLER), end)


@asynccontextmanager
async def full_log(folder: Path) -> AsyncIterator[Place]:
    """The same, with no room for its write-ahead log: PostgreSQL stops, and whoever looks after it starts it again."""
    async with _small_database(folder) as (database, stores):

        async def begin() -> None:
            # Its own repair may find some room that its death made, and then it goes on.
            for attempt in range(ATTEMPTS_MAX):
                await asyncio.to_thread(fill, folder / f"{FILLER}{attempt}")
                with suppress(*UNREACHABLE):
                    await _write_log(stores[0])
                await asyncio.sleep(0.5)  # it ends, or begins to repair itself
                if database.has_ended:
                    return
            raise AssertionError("there was room for its log")

        async def end() -> None:
            for attempt in range(ATTEMPTS_MAX):
                (folder / f"{FILLER}{attempt}").unlink(missing_ok=True)
            await database.come_back()

        yield stores, StoreAway(begin, end)


async def _write_log(store: str) -> None:
    """Write to the log of a database until it cannot be reached any more."""
    connection = await connect(PostgresAddress(store))
    while True:
        await connection.execute("SELECT pg_logical_emit_message(false, 'full', repeat('x', 1000000))")
        await connection.execute("SELECT pg_switch_wal()")


@asynccontextmanager
async def _small_database(folder: Path) -> AsyncIterator[tuple[PostgresServer, list[str]]]:
    database = PostgresServer(on_disk=True)
    try:
        await database.come_back()
        assert os.listdir(folder), "the database is not on the small disk"
        yield database, [database.url("full")] * 2
    finally:
        database.remove()


Outage = Callable[[Path], AbstractAsyncContextManager[Place]]
OUTAGES: dict[str, Outage] = {
    "a locked file": locked_file,
    "a silent database": silent_database,
    "a partition": partition,
}
DISKS: dict[str, Outage] = {"sqlite": full_file, "postgresql": full_database, "postgresql-log": full_log}
