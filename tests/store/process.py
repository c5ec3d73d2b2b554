"""A process that uses a journal, for the tests that share, kill and starve one. Run as a program, not collected.

Each line of its output is something that was acknowledged before it was printed.
"""

import asyncio
import itertools
import resource
import signal
import sys

import msgspec

from store.sample import COMPLETED, OWNER, called, resulted, run_row, said
from treadle.core.errors import StoreError
from treadle.core.events import RunEnded
from treadle.journal.journal_interface import Chunk
from treadle.journal.sqlite.store import SqliteStore


def say(*words: object) -> None:
    """Tell the test, at once."""
    print(*words, flush=True)


async def write_runs(store: SqliteStore, name: str) -> None:
    """Write ten whole runs of twenty entries at the same time."""

    async def one(n: int) -> None:
        journal = await store.start_run(run_row(f"{name}{n}"), [said("go")], owner=name, lease_s=60.0)
        for k in range(9):
            await journal.append([called(f"call_{k}"), resulted(f"call_{k}")])
        await journal.finish([said("done", "assistant")], COMPLETED)

    await asyncio.gather(*(one(n) for n in range(10)))
    say("done")


async def write_until_killed(store: SqliteStore, name: str) -> None:
    """Append to three runs for ever and say each number that was acknowledged."""

    async def one(n: int) -> None:
        journal = await store.start_run(run_row(f"{name}{n}"), [said("go")], owner=OWNER, lease_s=60.0)
        while True:
            say(journal.run_id, await journal.append([said("more"), said("and more")]))

    await asyncio.gather(*(one(n) for n in range(3)))


async def write_on_a_small_disk(store: SqliteStore, name: str) -> None:
    """Fill what a file may hold, say how many writes were acknowledged, then get room and go on."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    journal = await store.start_run(run_row(name), [], owner=OWNER, lease_s=60.0)
    acknowledged = 0
    try:
        while True:
            acknowledged = await journal.append([said("x" * 10_000)])
    except StoreError as error:
        say("refused", error.info.code)
    try:
        await journal.append([said("x" * 10_000)])
    except StoreError as error:
        say("refused", error.info.code)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    head = await journal.append([said("room again")])
    say("went on", head - acknowledged)
    say("integrity", len(await store.entries(journal.run_id)) - head)


async def speak_until_cancelled(store: SqliteStore, name: str) -> None:
    """Tell three events at a time, and end when somebody asks for it."""
    journal = await store.start_run(run_row(name), [], owner=OWNER, lease_s=60.0)
    for first in itertools.count(1, 3):
        numbers = [first, first + 1, first + 2]
        await journal.write_chunk(Chunk(first=first, count=3, data=msgspec.json.encode(numbers)), keep_from=1)
        if await store.cancel_requests(OWNER) == [journal.run_id]:
            break
    await journal.finish([], RunEnded(status="cancelled", ended_at=1_010.0))
    say("cancelled")


MODES = {
    "speak": speak_until_cancelled,
    "write": write_runs,
    "hang": write_until_killed,
    "starve": write_on_a_small_disk,
}


async def main(mode: str, path: str, name: str) -> None:
    """Do one of the modes on the store at `path`."""
    store = SqliteStore(path)
    await store.open()
    say("open")
    await MODES[mode](store, name)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
