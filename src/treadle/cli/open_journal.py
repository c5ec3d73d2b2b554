"""Shared by commands on the journal: opens the configured store for reading, and finds runs in it."""

import argparse
import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from treadle.cli import command_base as command
from treadle.core.errors import ConfigError, NotFound, RequestError

if TYPE_CHECKING:
    from treadle.config import Settings
    from treadle.journal.journal_interface import RunRow, Store
    from treadle.runtime.database_clock import SharedClock

LAST = "last"
"""What the newest run can be called by."""

PAGE = 200
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_AGE = re.compile(r"([0-9]{1,9})([smhdw])")

T = TypeVar("T")


def with_store(args: argparse.Namespace, work: "Callable[[Store], Awaitable[T]]", *, may_create: bool = False) -> T:
    """Open the store that the flags name, do something with it, and close it; with `may_create` it may be new.

    Raises: ConfigError, StoreError, NotFound when there is no journal yet.
    """
    command.quiet_logs()
    settings = command.read_flags(args).settings

    async def main() -> T:
        async with opened(settings, may_create=may_create) as store:
            return await work(store)

    return asyncio.run(main())


@asynccontextmanager
async def opened(settings: "Settings", *, may_create: bool = False) -> "AsyncGenerator[Store, None]":
    """Open the store alone: no tool is loaded, no run is taken over.

    Raises: StoreError, NotFound.
    """
    import msgspec

    from treadle.config import ToolsSection, sqlite_path
    from treadle.config.settings import SQLITE
    from treadle.runtime import Runtime

    if settings.store.persistence == "off":
        raise ConfigError("store.persistence is off: nothing is kept", param="store.persistence")
    if not may_create and settings.store.url.startswith(SQLITE) and not sqlite_path(settings.store.url).exists():
        hint = "name another with --store; the first run makes one"
        raise NotFound(f"there is no journal at {sqlite_path(settings.store.url)}", hint=hint)
    alone = msgspec.structs.replace(settings, tools=ToolsSection(demo=False), upstream=(), route=(), record="")
    store = Runtime(alone).store
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def clock_of(store: "Store") -> "SharedClock":
    """Return the clock that the processes on this store go by. Raises: StoreError."""
    from treadle.runtime import SystemClock
    from treadle.runtime.database_clock import SharedClock

    clock = SharedClock(SystemClock())
    await clock.measure(store.server_time)
    return clock


async def find_run(store: "Store", name: str) -> "RunRow":
    """Return the run of that id or response id; `last` is the newest.

    Raises: NotFound.
    """
    if name == LAST:
        newest = await store.list_runs(limit=1)
        if not newest:
            raise NotFound("there is no run yet", param="run")
        return newest[0]
    row = await store.find_run(name)
    if row is None:
        hint = "treadle logs lists runs, treadle sessions conversations; `last` is the newest run"
        raise NotFound(f"there is no run {name!r}", param="run", hint=hint)
    return row


async def find_runs(
    store: "Store", names: Sequence[str], *, session: str | None = None, since: float | None = None
) -> "list[RunRow]":
    """Return the named runs, else those of a session, else all; oldest first, without those before `since`.

    Raises: NotFound.
    """
    from treadle.journal.session_operations import chain_of, get_session

    if names:
        rows = [await find_run(store, name) for name in dict.fromkeys(names)]
    elif session is not None:
        found = await get_session(store, session, key_id=None)
        rows = list(reversed(await chain_of(store, found.head_run_id)))
    else:
        rows = list(reversed(await _all_runs(store, since)))
    return [row for row in rows if since is None or row.created_at >= since]


async def _all_runs(store: "Store", since: float | None) -> "list[RunRow]":
    rows: list[RunRow] = []
    before: str | None = None
    while page := await store.list_runs(limit=PAGE, before=before):
        rows += page
        before = page[-1].id
        if since is not None and page[-1].created_at < since:
            break
    return rows


def read_since(text: str, now: float, *, flag: str = "--since") -> float:
    """Read a time: `2026-11-16`, `2026-11-16T08:30`, or an age such as `90m`, `12h`, `7d`.

    Raises: RequestError.
    """
    if age := _AGE.fullmatch(text.strip()):
        return now - int(age[1]) * _UNITS_S[age[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        hint = "a day (2026-11-16), a time (2026-11-16T08:30) or an age (90m, 12h, 7d)"
        raise RequestError(f"{flag} {text!r} is no time", param=flag.removeprefix("--"), hint=hint) from None


def aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of words as lines with straight columns."""
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
