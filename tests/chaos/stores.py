"""The stores that real processes share, and what the checker says of them afterwards."""

import asyncio
from pathlib import Path

import msgspec

from crash.checker import Effect, check, read
from postgres import postgres_server
from treadle.journal.journal_interface import RunRow
from treadle.journal.open_store import open_store

KINDS = ("sqlite", "postgresql")


def address(kind: str, folder: Path) -> str:
    """Return the address of a fresh store, as `treadle serve --store` takes it."""
    return f"sqlite:///{folder}/treadle.db" if kind == "sqlite" else postgres_server().url()


def violations(store: str, folder: Path) -> list[str]:
    """Check every run in the store."""
    return asyncio.run(_violations(store.removeprefix("sqlite:///"), folder))


def rows(store: str) -> list[RunRow]:
    """Return all runs in the store."""
    return asyncio.run(_rows(store.removeprefix("sqlite:///")))


async def _rows(place: str) -> list[RunRow]:
    store = open_store(place)
    await store.open()
    try:
        return await store.list_runs(limit=1_000)
    finally:
        await store.close()


async def _violations(place: str, folder: Path) -> list[str]:
    ledger = folder / "ledger"
    lines = ledger.read_bytes().splitlines() if ledger.exists() else []
    effects = [msgspec.json.decode(line, type=Effect) for line in lines]
    store = open_store(place)
    await store.open()
    try:
        runs = await store.list_runs(limit=1_000)
        assert runs, "nothing was run"
        return [problem for row in runs for problem in check(await read(store, row.id, effects))]
    finally:
        await store.close()
