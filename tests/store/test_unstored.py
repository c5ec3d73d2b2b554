"""What is not to be stored: gone with the end of its run, or kept for the run that comes next alone."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from store.sample import COMPLETED, LEASE_S, OTHER, called, planned, resulted, run_row, said
from store.test_retention import blob_is_there, start
from treadle.core.errors import ErrorInfo, StoreError
from treadle.core.events import RunEnded
from treadle.journal.journal_interface import RunSearch, SessionRow, Store
from treadle.journal.memory_store import MemoryStore
from treadle.journal.postgres import run_writer as postgres_run
from treadle.journal.sqlite import leased_writes as sqlite_fence

OPEN = RunEnded(status="requires_action", stop="calls", ended_at=1_010.0, rounds=1)
SECRET = "a secret nobody keeps"
LARGE = said(SECRET + "x" * 100_000)
TURN = [
    said(SECRET, item_id="msg_1", is_input=True),
    planned("f1"),
    called("call_1", arguments=f'{{"city":"{SECRET}"}}'),
    resulted("call_1", SECRET),
]


async def test_a_run_ends_and_is_purged_in_one_step(store: Store) -> None:
    """Numbers and codes stay; entries, request, blobs and the words of the error are never there of an ended run."""
    row = run_row(store=False, request=msgspec.Raw(b'{"instructions":"secret"}'))
    journal = await start(store, row, [*TURN, LARGE])
    handle = await store.put_blob(SECRET.encode(), run_id="run_1")
    error = ErrorInfo(code="boom", message=SECRET, status=502, hint=SECRET)
    ended = RunEnded(status="failed", error=error, rounds=1, calls=1, ended_at=1_010.0)
    assert await journal.finish([said("the end")], ended, forget=["run_1"]) == 6
    assert await store.entries("run_1", for_next=True) == []
    assert await store.history("run_1", for_next=True) == []
    assert await blob_is_there(store, handle) is False
    wordless = ErrorInfo(code="boom", message="", status=502)
    assert await store.find_run("run_1") == run_row(
        store=False, status="failed", stop="done", error=wordless, rounds=1, calls=1, ended_at=1_010.0
    )
    assert await store.audit("run_1") == []


async def test_a_run_whose_content_cannot_be_purged_has_not_ended(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one transaction: a process that dies between the two leaves a run that another one ends and purges."""
    if isinstance(store, MemoryStore):
        return  # what is held in memory dies with its process

    def broken(*_: object) -> None:
        raise StoreError("the process dies here")

    journal = await start(store, run_row(store=False), TURN)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_fence, "purge_ended", broken)
        patch.setattr(postgres_run, "purge_ended", broken)
        with pytest.raises(StoreError, match="dies here"):
            await journal.finish([], COMPLETED, forget=["run_1"])
    found = await store.find_run("run_1")
    assert found is not None
    assert (found.status, len(await store.entries("run_1"))) == ("running", len(TURN))
    await journal.finish([], COMPLETED, forget=["run_1"])
    assert await store.entries("run_1", for_next=True) == []


async def test_a_run_of_one_write_is_purged_with_it(store: Store) -> None:
    """Begun, ended and forgotten at once."""
    starting = store.start_run(run_row(store=False), TURN, owner="o", lease_s=LEASE_S, is_private=True)
    await (await starting).finish([said("the end")], COMPLETED, forget=["run_1"])
    assert await store.entries("run_1", for_next=True) == []
    found = await store.find_run("run_1")
    assert found is not None
    assert found.status == "completed"


async def test_the_memory_of_another_run_goes_with_the_end(store: Store) -> None:
    """The run that took it up ends; what has not ended, or is not there, is left alone."""
    memory = await start(store, run_row(store=False), TURN)
    await memory.finish([], OPEN)
    going = await start(store, run_row("2", store=False), TURN[:1])
    last = await start(store, run_row("3"), [said("kept", is_input=True)])
    await last.finish([said("done")], COMPLETED, forget=["run_1", "run_2", "run_gone"])
    assert await store.entries("run_1", for_next=True) == []
    assert [entry.content for entry in await store.entries("run_2")] == [SECRET]
    assert [entry.content for entry in await store.entries("run_3")] == ["kept", "done"]
    await going.finish([], COMPLETED, forget=["run_2"])


async def test_a_lost_lease_purges_nothing(store: Store) -> None:
    """The fence is part of the write: whoever took the run over still needs what it holds."""
    memory = await start(store, run_row(store=False), TURN)
    await memory.finish([], OPEN)
    journal = await start(store, run_row("2", store=False), TURN[:1])
    await store.end_leases("owner_a")
    [(_, taken)] = await store.claim_abandoned(OTHER, LEASE_S, 5)
    with pytest.raises(Exception, match="taken the run over"):
        await journal.finish([], COMPLETED, forget=["run_1", "run_2"])
    assert len(await store.entries("run_1", for_next=True)) == len(TURN)
    assert len(await store.entries("run_2")) == 1
    await taken.finish([], COMPLETED, forget=["run_2"])


async def _entries(store: Store) -> Any:
    return await store.entries("run_1")


async def _history(store: Store) -> Any:
    return await store.history("run_1")


async def _item(store: Store) -> Any:
    return await store.find_item("msg_1")


async def _questions(store: Store) -> Any:
    return [*await store.questions(["run_1"])]


async def _text(store: Store) -> Any:
    return await store.search_runs(RunSearch(text="secret"))


async def _tool(store: Store) -> Any:
    return await store.search_runs(RunSearch(tool="get_weather"))


async def _plan(store: Store) -> Any:
    return await store.list_runs(fingerprint="f1")


async def _session(store: Store) -> Any:
    return await store.list_sessions(search="secret")


READERS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "entries": _entries,
    "history": _history,
    "an item by its id": _item,
    "questions": _questions,
    "search by text": _text,
    "search by tool": _tool,
    "runs by plan": _plan,
    "sessions by text": _session,
}


@pytest.mark.parametrize("reader", READERS)
async def test_an_open_turn_that_is_not_stored_is_found_by_no_reader(store: Store, reader: str) -> None:
    """The same run, stored, is found by each of them; the run that comes next still gets it."""
    for name, is_stored, expected in (("1", False, False), ("2", True, True)):
        if is_stored:
            await store.delete_run("run_1")
            await store.delete_session("sess_1", with_runs=False)
        await store.create_session(SessionRow(id="sess_1", created_at=1.0, updated_at=1.0))
        row = run_row("1", response_id=f"resp_{name}", store=is_stored, session_id="sess_1")
        await (await start(store, row, TURN)).finish([], OPEN)
        assert bool(await READERS[reader](store)) == expected
        assert len(await store.entries("run_1", for_next=True)) == len(TURN)
        assert len(await store.history("run_1", for_next=True)) == 3
        [turn] = await store.find_turns(["call_1"], [SECRET])
        assert (turn.run_id, turn.is_kept) == ("run_1", is_stored)


async def test_what_goes_on_from_an_open_turn_shows_nothing_of_it(store: Store) -> None:
    """The history of a stored run ends where what is not stored begins."""
    await (await start(store, run_row(store=False), TURN)).finish([], OPEN)
    row = run_row("2", conversation_id="conv_1", previous_id="run_1")
    await (await start(store, row, [said("and now?", is_input=True)])).finish([], COMPLETED)
    assert [entry.content for entry in await store.history("run_2")] == ["and now?"]
    assert len(await store.history("run_2", for_next=True)) == 4


async def test_an_open_turn_expires(store: Store) -> None:
    """Nothing of it is left then, whoever asks."""
    await (await start(store, run_row(store=False, expires_at=1_500.0), TURN)).finish([], OPEN)
    assert await store.expire(1_499.0) == 0
    assert await store.expire(1_500.0) == 1
    assert await store.find_turns(["call_1"], [SECRET]) == []
    assert await store.find_run("run_1") is None
