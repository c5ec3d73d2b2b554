"""Forgets conversations that were not continued for a while, through the interface alone: the same on every store."""

import asyncio
from collections.abc import Callable

import msgspec

from treadle.journal.journal_interface import Store

PAGE = 200
AT_ONCE = 16


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """How much was forgotten, or would be."""

    conversations: int
    runs: int
    sessions: int


async def prune(store: Store, before: float, progress: Callable[[int, int], None], *, is_dry: bool = False) -> Pruned:
    """Forget whole conversations whose last run ended before a time, and sessions that are empty since then.

    Raises: StoreError.
    """
    old = await _old_runs(store, before)
    if not is_dry:
        await _forget(store, old, progress)
    forgotten = {run_id for run_id, _ in old}
    sessions = await _idle_sessions(store, before, forgotten)
    for name in sessions:
        if not is_dry:
            await store.delete_session(name, with_runs=False)
    return Pruned(conversations=len({each for _, each in old}), runs=len(old), sessions=len(sessions))


async def _forget(store: Store, runs: list[tuple[str, str]], progress: Callable[[int, int], None]) -> None:
    """Forget runs: several conversations at once share a commit, those of one go one after the other."""
    by_conversation: dict[str, list[str]] = {}
    for run_id, conversation in runs:
        by_conversation.setdefault(conversation, []).append(run_id)
    done = 0

    async def forget(run_ids: list[str]) -> None:
        nonlocal done
        for run_id in run_ids:
            await store.delete_run(run_id)
            done += 1
            progress(done, len(runs))

    waiting = list(by_conversation.values())
    for start in range(0, len(waiting), AT_ONCE):
        await asyncio.gather(*(forget(each) for each in waiting[start : start + AT_ONCE]))


async def _old_runs(store: Store, before: float) -> list[tuple[str, str]]:
    """Return the runs of the conversations that are over, newest first, each with its conversation."""
    living: set[str] = set()
    found: list[tuple[str, str]] = []
    last: str | None = None
    while page := await store.list_runs(limit=PAGE, before=last):
        for row in page:
            if row.ended_at is None or row.ended_at >= before:
                living.add(row.conversation_id)
            else:
                found.append((row.id, row.conversation_id))
        last = page[-1].id
    return [each for each in found if each[1] not in living]


async def _idle_sessions(store: Store, before: float, forgotten: set[str]) -> list[str]:
    found: list[str] = []
    for kind in ("session", "conversation"):
        last: str | None = None
        while page := await store.list_sessions(PAGE, kind=kind, before=last):
            found += [
                row.id
                for row in page
                if row.updated_at < before and (row.head_run_id is None or row.head_run_id in forgotten)
            ]
            last = page[-1].id
    return found
