"""The contract of forgetting: J11, and what happens to the runs around a forgotten one."""

import asyncio
import hashlib

import msgspec
import pytest

from store.sample import COMPLETED, LEASE_S, OWNER, noted, numbered, planned, resulted, run_row, said
from treadle.core.errors import Conflict, ErrorInfo, NotFound
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.core.usage import Usage
from treadle.journal.journal_interface import (
    INLINE_BYTES_MAX,
    INPUT_INLINE_BYTES_MAX,
    RunJournal,
    RunRow,
    SessionRow,
    Store,
)

LARGE = b'"' + b"x" * INLINE_BYTES_MAX + b'"'


async def start(store: Store, row: RunRow, entries: list[Entry]) -> RunJournal:
    """Begin a run with these entries as its input."""
    return await store.start_run(row, entries, owner=OWNER, lease_s=LEASE_S)


async def ended(store: Store, name: str, entries: list[Entry] | None = None, /, **fields: object) -> None:
    """Begin and end a run."""
    journal = await start(store, run_row(name, **fields), entries or [])
    await journal.finish([], COMPLETED)


async def blob_is_there(store: Store, name: str) -> bool:
    """Tell whether a blob can be read."""
    try:
        return bool(await store.get_blob(name, 0, 1))
    except NotFound:
        return False


async def test_a_deleted_run_is_gone_by_every_way(store: Store) -> None:
    """Row, entries, items, calls and blobs; a second deletion finds nothing."""
    await ended(store, "1", [said("secret", item_id="msg_1"), noted(LARGE)])
    handle = await store.put_blob(b"long output", run_id="run_1")
    assert await store.delete_run("resp_1") is True
    assert await store.delete_run("resp_1") is False
    assert await store.find_run("run_1") is None
    assert await store.find_item("msg_1") == []
    assert await blob_is_there(store, handle) is False
    with pytest.raises(NotFound):
        await store.entries("run_1")


async def test_a_blob_lives_as_long_as_one_run_uses_it(store: Store) -> None:
    """Two runs with the same bytes: the first to go leaves them, the last takes them along."""
    await ended(store, "1", [noted(LARGE)])
    await ended(store, "2", [noted(LARGE)])
    name = await store.put_blob(LARGE, run_id="run_1")
    await store.delete_run("run_1")
    assert await store.entries("run_2") == numbered([noted(LARGE)])
    await store.delete_run("run_2")
    assert await blob_is_there(store, name) is False


async def test_shared_input_outlives_whoever_forgets_it_meanwhile(store: Store) -> None:
    """A conversation is begun again, longer each time, while the run before it is deleted: nothing of it goes amiss."""
    talk = [resulted(f"call_{n}", f"{n}" * INPUT_INLINE_BYTES_MAX, is_input=True) for n in range(12)]
    await ended(store, "2", talk[:2])
    for n in range(3, len(talk)):
        # Two runs that hold the same, one of which brings something new, and one that holds it and goes.
        again, longer = ended(store, f"again_{n}", talk[: n - 1]), ended(store, str(n), talk[:n])
        await asyncio.gather(again, store.delete_run(f"run_{n - 1}"), longer)
        await store.delete_run(f"run_again_{n}")
        assert await store.entries(f"run_{n}") == numbered(talk[:n])
    await store.delete_run(f"run_{len(talk) - 1}")
    names = [hashlib.sha256(bytes(entry.data or b"")).hexdigest() for entry in talk]
    assert [name for name in names if await blob_is_there(store, name)] == []


async def test_deleting_in_the_middle_joins_the_chain(store: Store) -> None:
    """The run after the deleted one continues the run before it, and so does a session that stood there."""
    chain = [None, "run_1", "run_2"]
    await store.create_session(SessionRow(id="sess_1", created_at=1.0, updated_at=1.0))
    for name, previous_id in zip("123", chain, strict=True):
        await ended(store, name, [said(name)], conversation_id="conv", previous_id=previous_id)
    await store.set_session_head("sess_1", "run_2", expected=None)
    await store.delete_run("run_2")
    assert [entry.content for entry in await store.history("run_3")] == ["1", "3"]
    session = await store.find_session("sess_1")
    assert session is not None
    assert session.head_run_id == "run_1"


async def test_deleting_the_root_leaves_a_new_root(store: Store) -> None:
    """The next run then continues nothing."""
    await ended(store, "1", [said("1")], conversation_id="conv")
    await ended(store, "2", [said("2")], conversation_id="conv", previous_id="run_1")
    await store.delete_run("run_1")
    found = await store.find_run("run_2")
    assert found is not None
    assert found.previous_id is None
    assert [entry.content for entry in await store.history("run_2")] == ["2"]


async def test_a_purged_run_keeps_only_its_numbers(store: Store) -> None:
    """Entries, request, blobs and the words of the error go; status, usage and counts stay."""
    request = msgspec.Raw(b'{"instructions":"secret"}')
    row = run_row(store=False, request=request)
    journal = await start(store, row, [said("secret", item_id="msg_1"), noted(LARGE)])
    handle = await store.put_blob(b"secret output", run_id="run_1")
    error = ErrorInfo(code="boom", message="you said: secret", status=502, hint="secret", param="secret")
    end = RunEnded(status="failed", usage=Usage(input_tokens=3), error=error, rounds=2, calls=1, ended_at=1_010.0)
    await journal.finish([resulted("call_1", "secret")], end)
    await store.purge_run("run_1")
    assert await store.entries("run_1") == []
    assert await store.find_item("msg_1") == []
    assert await blob_is_there(store, handle) is False
    assert await store.find_run("run_1") == run_row(
        store=False,
        status="failed",
        stop="done",
        usage=Usage(input_tokens=3),
        error=ErrorInfo(code="boom", message="", status=502),
        rounds=2,
        calls=1,
        ended_at=1_010.0,
    )
    await store.purge_run("run_1")


async def test_a_live_run_is_not_purged(store: Store) -> None:
    """While a run lasts its journal protects it."""
    await start(store, run_row(store=False), [said("needed")])
    with pytest.raises(Conflict, match="not ended"):
        await store.purge_run("run_1")
    assert await store.entries("run_1") == numbered([said("needed")])


async def test_an_unknown_run_is_not_purged(store: Store) -> None:
    """Purging nothing is an error, so that a wrong id is not taken for success."""
    with pytest.raises(NotFound, match="run_0"):
        await store.purge_run("run_0")


async def test_expiry_takes_ended_runs_past_their_time(store: Store) -> None:
    """Runs without a time, before it, or not ended stay."""
    await ended(store, "never")
    await ended(store, "later", expires_at=2_000.5)
    await ended(store, "now", expires_at=2_000.0)
    await ended(store, "past", expires_at=1_500.0)
    await start(store, run_row("live", expires_at=1_500.0), [])
    assert await store.expire(2_000.0) == 2
    assert [row.id for row in await store.list_runs()] == ["run_live", "run_later", "run_never"]
    assert await store.expire(2_000.0) == 0


async def test_a_conversation_expires_as_a_whole(store: Store) -> None:
    """A run that others of its conversation still need stays until the last of them is past its time."""
    await ended(store, "1", conversation_id="conv", expires_at=1_500.0)
    await ended(store, "2", conversation_id="conv", previous_id="run_1", expires_at=3_000.0)
    assert await store.expire(2_000.0) == 0
    assert await store.expire(3_000.0) == 2
    assert await store.list_runs() == []


async def test_a_live_run_keeps_its_conversation(store: Store) -> None:
    """Neither what it continues nor itself goes before it has ended, whatever the time and stored or not."""
    await ended(store, "1", conversation_id="conv", expires_at=1_500.0)
    live = await start(store, run_row("2", conversation_id="conv", previous_id="run_1", expires_at=1_500.0), [])
    unstored = await start(store, run_row("3", store=False, expires_at=1_500.0), [])
    assert await store.expire(2_000.0) == 0
    await live.finish([], COMPLETED)
    await unstored.finish([], COMPLETED)
    assert await store.expire(2_000.0) == 3


async def test_a_run_that_is_not_stored_expires_alone(store: Store) -> None:
    """It does not wait for the stored conversation that it continued."""
    await ended(store, "1", [said("kept")], conversation_id="conv")
    await ended(store, "2", conversation_id="conv", previous_id="run_1", store=False, expires_at=1_500.0)
    assert await store.expire(2_000.0) == 1
    assert [row.id for row in await store.list_runs()] == ["run_1"]


async def test_a_purged_or_expired_plan_is_not_found_any_more(store: Store) -> None:
    """A fingerprint is content too."""
    for name in "ab":
        await ended(store, name, [planned("f1")], expires_at=1_500.0)
    await store.purge_run("run_a")
    assert [row.id for row in await store.list_runs(fingerprint="f1")] == ["run_b"]
    await store.expire(2_000.0)
    assert await store.list_runs(fingerprint="f1") == []


async def test_expiry_works_through_more_than_a_batch(store: Store) -> None:
    """A chain longer than one transaction takes goes completely."""
    previous_id = None
    for n in range(230):
        await ended(store, str(n), conversation_id="conv", previous_id=previous_id, expires_at=1_500.0)
        previous_id = f"run_{n}"
    assert await store.expire(2_000.0) == 230
    assert await store.list_runs() == []
