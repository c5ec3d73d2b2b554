"""Old conversations are forgotten whole, and nothing else is: the same on every store."""

import msgspec

from store.sample import COMPLETED, LEASE_S, OWNER, run_row, said
from treadle.journal.journal_interface import SessionRow, Store
from treadle.journal.pruning import Pruned, prune

CUT = 5_000.0


async def ran(store: Store, name: str, ended_at: float | None, /, **fields: object) -> None:
    """Make a run that ended then, or has not ended."""
    journal = await store.start_run(run_row(name, **fields), [said(name)], owner=OWNER, lease_s=LEASE_S)
    if ended_at is not None:
        await journal.finish([], msgspec.structs.replace(COMPLETED, ended_at=ended_at))


async def fill(store: Store) -> None:
    """An old conversation of two, one that was gone on with, one that goes on, and a young one."""
    for name in ("old", "kept"):
        await store.create_session(SessionRow(id=f"sess_{name}", created_at=1.0, updated_at=1.0, name=name))
    await ran(store, "a1", 2_000.0, conversation_id="a")
    await ran(store, "a2", 3_000.0, conversation_id="a", previous_id="run_a1", session_id="sess_old")
    await ran(store, "b1", 2_000.0, conversation_id="b")
    await ran(store, "b2", 9_000.0, conversation_id="b", previous_id="run_b1", session_id="sess_kept")
    await ran(store, "c1", None, conversation_id="c")
    await ran(store, "c2", 2_000.0, conversation_id="c")
    await ran(store, "d1", CUT)
    await store.set_session_head("sess_old", "run_a2", expected=None)
    await store.set_session_head("sess_kept", "run_b2", expected=None)


async def left(store: Store) -> list[str]:
    """Return the runs that are there, oldest first."""
    return [row.id for row in reversed(await store.list_runs(limit=50))]


async def test_whole_conversations_that_are_over_are_forgotten(store: Store) -> None:
    """One that goes on, or was gone on with later, keeps all its runs; a session that is empty now goes too."""
    await fill(store)
    told: list[tuple[int, int]] = []
    before = max(CUT, 0.0)
    wanted = Pruned(conversations=1, runs=2, sessions=1)
    assert await prune(store, before, lambda done, total: told.append((done, total)), is_dry=True) == wanted
    assert (len(await left(store)), told) == (7, [])
    assert await prune(store, before, lambda done, total: told.append((done, total))) == wanted
    assert await left(store) == ["run_b1", "run_b2", "run_c1", "run_c2", "run_d1"]
    assert told == [(1, 2), (2, 2)]
    assert [row.id for row in await store.list_sessions()] == ["sess_kept"]
    assert await prune(store, before, lambda done, total: None) == Pruned(conversations=0, runs=0, sessions=0)
