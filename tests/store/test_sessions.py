"""The contract of sessions."""

import asyncio

import msgspec
import pytest

from store.sample import LEASE_S, OWNER, SetClock, run_row
from treadle.canon.errors import Conflict, NotFound
from treadle.store.journal import SessionRow, Store

SESSION = SessionRow(id="sess_1", name="work", created_at=1.0, updated_at=2.0, key_id="key_1")


async def start(store: Store, name: str, session_id: str | None = None) -> None:
    """Begin a run."""
    await store.start_run(run_row(name, session_id=session_id), [], owner=OWNER, lease_s=LEASE_S)


async def test_a_session_is_found_by_id_and_by_name(store: Store) -> None:
    """Both give the whole row, within its key only."""
    await store.create_session(SESSION)
    assert await store.find_session("sess_1") == SESSION
    assert await store.find_session("work", key_id="key_1") == SESSION
    assert await store.find_session("work", key_id="key_2") is None
    assert await store.find_session("play") is None


async def test_an_id_wins_over_a_name_and_the_last_used_over_the_others(store: Store) -> None:
    """A session named like another's id does not hide it; sessions without a name are not found by none."""
    await store.create_session(SESSION)
    await store.create_session(SessionRow(id="sess_2", name="sess_1", created_at=1.0, updated_at=9.0))
    await store.create_session(SessionRow(id="sess_3", name="work", created_at=1.0, updated_at=5.0))
    await store.create_session(SessionRow(id="sess_4", created_at=1.0, updated_at=5.0))
    assert await store.find_session("sess_1") == SESSION
    found = await store.find_session("work")
    assert found is not None
    assert found.id == "sess_3"
    assert await store.find_session("") is None


@pytest.mark.parametrize("taken", [{"id": "sess_1", "name": "other"}, {"id": "sess_2", "name": "work"}])
async def test_ids_and_names_within_a_key_are_taken_once(store: Store, taken: dict[str, str]) -> None:
    """A second session of that id, or of that name for the same key, is a conflict."""
    await store.create_session(SESSION)
    with pytest.raises(Conflict):
        await store.create_session(msgspec.structs.replace(SESSION, **taken))
    assert await store.list_sessions() == [SESSION]


async def test_sessions_without_a_name_are_many(store: Store) -> None:
    """No name is not a name."""
    for name in ("sess_1", "sess_2"):
        await store.create_session(SessionRow(id=name, created_at=1.0, updated_at=1.0))
    assert len(await store.list_sessions()) == 2


async def test_sessions_are_listed_last_used_first(store: Store) -> None:
    """Up to the limit, and within a key where one is named."""
    for n, used in enumerate((3.0, 9.0, 6.0)):
        row = SessionRow(id=f"sess_{n}", created_at=1.0, updated_at=used, key_id=f"key_{n}")
        await store.create_session(row)
    assert [row.id for row in await store.list_sessions()] == ["sess_1", "sess_2", "sess_0"]
    assert [row.id for row in await store.list_sessions(2)] == ["sess_1", "sess_2"]
    assert [row.id for row in await store.list_sessions(key_id="key_2")] == ["sess_2"]


async def test_the_head_moves_only_from_where_it_was_expected(store: Store, clock: SetClock) -> None:
    """A session that moved on meanwhile is a conflict; the move is its last use."""
    await store.create_session(SESSION)
    await start(store, "1", "sess_1")
    await start(store, "2", "sess_1")
    clock.now = 1_234.0
    await store.set_session_head("sess_1", "run_1", expected=None)
    with pytest.raises(Conflict, match="run_1"):
        await store.set_session_head("sess_1", "run_2", expected=None)
    moved = msgspec.structs.replace(SESSION, head_run_id="run_1", updated_at=1_234.0)
    assert await store.find_session("sess_1") == moved
    await store.set_session_head("sess_1", "run_2", expected="run_1")
    assert [row.id for row in await store.list_runs(session_id="sess_1")] == ["run_2", "run_1"]


async def test_of_many_moves_racing_exactly_one_wins(store: Store) -> None:
    """Twenty turns that all began at the same head: one is taken, the others hear of it."""
    await store.create_session(SESSION)
    for n in range(20):
        await start(store, str(n))
    moves = [store.set_session_head("sess_1", f"run_{n}", expected=None) for n in range(20)]
    outcomes = await asyncio.gather(*moves, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict"] * 19 + ["NoneType"]


async def test_unknown_sessions_and_heads_are_refused(store: Store) -> None:
    """By name, and a session's name does not do for its id where the head is moved."""
    await store.create_session(SESSION)
    await start(store, "1")
    for session_id in ("sess_0", "work"):
        with pytest.raises(NotFound, match=session_id):
            await store.set_session_head(session_id, "run_1", expected=None)
    with pytest.raises(NotFound, match="run_0"):
        await store.set_session_head("sess_1", "run_0", expected=None)
    with pytest.raises(NotFound, match="run_0"):
        await store.create_session(SessionRow(id="sess_2", created_at=1.0, updated_at=1.0, head_run_id="run_0"))
