"""The contract of sessions."""

import asyncio
from typing import Any

import msgspec
import pytest

from store.sample import COMPLETED, LEASE_S, OWNER, SetClock, noted, resulted, run_row, said
from treadle.core.errors import Conflict, NotFound, ProtocolError
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import SessionRow, Store

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
    for name in ("1", "2"):
        journal = await store.start_run(run_row(name, session_id="sess_1"), [], owner=OWNER, lease_s=LEASE_S)
        await journal.finish([], COMPLETED)
    clock.now = 1_234.0
    await store.set_session_head("sess_1", "run_1", expected=None)
    with pytest.raises(Conflict, match="run_1"):
        await store.set_session_head("sess_1", "run_2", expected=None)
    moved = msgspec.structs.replace(SESSION, head_run_id="run_1", updated_at=1_234.0)
    assert await store.find_session("sess_1") == moved
    await store.set_session_head("sess_1", "run_2", expected="run_1")
    assert [row.id for row in await store.list_runs(session_id="sess_1")] == ["run_2", "run_1"]
    with pytest.raises(Conflict, match="run_2"):
        await store.set_session_head("sess_1", None, expected="run_1")
    await store.set_session_head("sess_1", None, expected="run_2")
    assert await store.find_session("sess_1") == msgspec.structs.replace(moved, head_run_id=None)


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


METADATA = msgspec.Raw(b'{"topic": "w\xc3\xa9ather",  "n":"\\u0000"}')


async def session(store: Store, name: str, updated_at: float = 1.0, **fields: Any) -> SessionRow:
    """Keep a session called `name`."""
    row = SessionRow(id=f"sess_{name}", name=name, created_at=1.0, updated_at=updated_at, **fields)
    await store.create_session(row)
    return row


async def turn(store: Store, name: str, session_id: str, *entries: Entry) -> None:
    """Keep a run of a session."""
    row = run_row(name, session_id=session_id)
    journal = await store.start_run(row, list(entries), owner=OWNER, lease_s=LEASE_S)
    await journal.finish([], COMPLETED)


async def names(store: Store, **narrowed: Any) -> list[str]:
    """Return the names of the sessions that a listing gives."""
    return [row.name for row in await store.list_sessions(**narrowed)]


async def test_kind_and_metadata_come_back_as_they_were(store: Store) -> None:
    """Byte for byte, by every way of finding the session."""
    row = await session(store, "a", kind="conversation", metadata=METADATA)
    assert await store.find_session("sess_a") == row
    assert await store.list_sessions(kind="conversation") == [row]


async def test_kinds_are_listed_apart(store: Store) -> None:
    """Conversations of the API do not show among the sessions."""
    await session(store, "a")
    await session(store, "b", kind="conversation")
    assert await names(store) == ["a"]
    assert await names(store, kind="conversation") == ["b"]


async def test_sessions_are_listed_in_pages(store: Store) -> None:
    """Pages join without a gap, also where several were used at the same time; an unknown cursor is named."""
    for name, used in (("a", 5.0), ("b", 7.0), ("c", 7.0), ("d", 7.0), ("e", 6.0)):
        await session(store, name, used, key_id="key_1")
    await session(store, "other", 6.5, key_id="key_2")
    pages = []
    before = None
    while page := await store.list_sessions(2, before=before, key_id="key_1"):
        pages.append([row.name for row in page])
        before = page[-1].id
    assert pages == [["d", "c"], ["b", "e"], ["a"]]
    assert await names(store, before="sess_other", key_id="key_1") == ["e", "a"]
    for unknown in ("sess_0", "sess_\udc80"):
        with pytest.raises(NotFound):
            await store.list_sessions(before=unknown)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("weather", ["asked", "answered", "named weather"]),
        ("WEATHER", ["asked", "answered", "named weather"]),
        ("ПОГОДА", ["named weather"]),
        ("100%", ["asked"]),
        ("a_b", ["answered"]),
        ("%", ["asked"]),
        ("_", ["answered"]),
        ("\\", ["asked"]),
        ("'", ["answered"]),
        ("after\x00nul", ["asked"]),
        ("half \ud83d", ["answered"]),
        ("secret", []),
        ("nothing like it", []),
        ("", ["asked", "answered", "named weather", "silent"]),
    ],
)
async def test_sessions_are_searched_by_name_and_by_what_was_said(store: Store, search: str, found: list[str]) -> None:
    """Without regard to case, in any script, no character standing for another; calls and notes are not searched."""
    for n, name in enumerate(("silent", "named weather", "answered", "asked")):
        await session(store, name, float(n))
    await turn(store, "1", "sess_asked", said("The Weather?", is_input=True), said("100% \\ after\x00nul"))
    await turn(store, "2", "sess_answered", said("hm"))
    half = Entry(kind="assistant", at=1.0, content="weather: a_b, it's HALF \ud83d")
    await turn(store, "3", "sess_answered", half)
    await turn(store, "4", "sess_named weather", said("погода"))
    await turn(store, "5", "sess_silent", resulted("call_1", "weather"), noted(b'"secret"'), said("weather", "system"))
    assert await names(store, search=search) == found


async def test_a_search_is_narrowed_and_paged_too(store: Store) -> None:
    """By key, kind, limit and cursor."""
    for n in range(4):
        await session(store, f"trip {n}", float(n), key_id=f"key_{n % 2}")
    await session(store, "trip", kind="conversation")
    assert await names(store, search="TRIP", limit=2) == ["trip 3", "trip 2"]
    assert await names(store, search="TRIP", before="sess_trip 2") == ["trip 1", "trip 0"]
    assert await names(store, search="TRIP", key_id="key_1") == ["trip 3", "trip 1"]
    assert await names(store, search="TRIP", kind="conversation") == ["trip"]


async def test_a_session_gets_another_name_or_other_metadata(store: Store) -> None:
    """What is not named stays, and its place in the list too."""
    row = await session(store, "a", 5.0, metadata=METADATA, key_id="key_1")
    renamed = msgspec.structs.replace(row, name="b")
    assert await store.update_session("sess_a", name="b") == renamed
    changed = msgspec.structs.replace(renamed, metadata=msgspec.Raw(b"{}"))
    assert await store.update_session("sess_a", metadata=msgspec.Raw(b"{}")) == changed
    assert await store.update_session("sess_a") == changed
    assert await store.update_session("sess_a", name="") == msgspec.structs.replace(changed, name="")
    assert await store.find_session("a") is None


async def test_a_name_taken_within_the_key_is_a_conflict(store: Store) -> None:
    """The session keeps its own; another key's name is free, and so is one's own."""
    await session(store, "a", key_id="key_1")
    await session(store, "b", key_id="key_1")
    await session(store, "c", key_id="key_2")
    with pytest.raises(Conflict):
        await store.update_session("sess_a", name="b", metadata=METADATA)
    assert await store.find_session("sess_a") == SessionRow(
        id="sess_a", name="a", created_at=1.0, updated_at=1.0, key_id="key_1"
    )
    assert (await store.update_session("sess_a", name="c")).name == "c"
    assert (await store.update_session("sess_a", name="c")).name == "c"


@pytest.mark.parametrize("unknown", ["sess_0", "work", "sess_\udc80"])
async def test_an_unknown_session_is_not_changed(store: Store, unknown: str) -> None:
    """A name does not do for an id."""
    await store.create_session(SESSION)
    with pytest.raises(NotFound):
        await store.update_session(unknown, name="x")
    assert await store.delete_session(unknown, with_runs=True) is False
    assert await store.list_sessions() == [SESSION]


async def test_names_are_exact_and_must_be_unicode(store: Store) -> None:
    """NUL is a character like others; a lone surrogate is refused by its field, in a new session and a new name."""
    await session(store, "a\x00b")
    found = await store.find_session("a\x00b")
    assert found is not None
    assert found.name == "a\x00b"
    with pytest.raises(ProtocolError, match=r"sessions\.name"):
        await store.create_session(SessionRow(id="sess_1", name="\ud800", created_at=1.0, updated_at=1.0))
    with pytest.raises(ProtocolError, match=r"sessions\.name"):
        await store.update_session(found.id, name="\ud800")
    assert await store.list_sessions() == [found]


async def test_a_deleted_session_leaves_its_runs(store: Store) -> None:
    """They stand alone from then on."""
    await session(store, "a")
    await turn(store, "1", "sess_a", said("kept"))
    assert await store.delete_session("sess_a", with_runs=False) is True
    assert await store.find_session("sess_a") is None
    assert await store.find_run("run_1") is not None
    assert [row.session_id for row in await store.list_runs()] == [None]
    assert [entry.content for entry in await store.entries("run_1")] == ["kept"]


async def test_a_session_is_deleted_with_its_runs(store: Store) -> None:
    """And with no others: what went on from them elsewhere is joined to what is left."""
    for name in "ab":
        await session(store, name)
    previous = None
    for name, owner in (("1", "sess_b"), ("2", "sess_a"), ("3", "sess_b")):
        row = run_row(name, conversation_id="conv", session_id=owner, previous_id=previous)
        journal = await store.start_run(row, [said(name, item_id=f"msg_{name}")], owner=OWNER, lease_s=LEASE_S)
        await journal.finish([], COMPLETED)
        await store.set_session_head(owner, row.id, expected="run_1" if name == "3" else None)
        previous = row.id
    assert await store.delete_session("sess_a", with_runs=True) is True
    assert await store.delete_session("sess_a", with_runs=True) is False
    assert await store.find_item("msg_2") == []
    assert [(row.id, row.previous_id) for row in await store.list_runs()] == [("run_3", "run_1"), ("run_1", None)]
    assert [entry.content for entry in await store.history("run_3")] == ["1", "3"]


@pytest.mark.parametrize("with_runs", [False, True])
async def test_a_session_with_a_live_run_is_not_deleted(store: Store, with_runs: bool) -> None:
    """Nothing of it goes, and the run in question is named."""
    await session(store, "a")
    await turn(store, "1", "sess_a")
    await start(store, "live", "sess_a")
    with pytest.raises(Conflict, match="run_live"):
        await store.delete_session("sess_a", with_runs=with_runs)
    assert [row.id for row in await store.list_runs(session_id="sess_a")] == ["run_live", "run_1"]
