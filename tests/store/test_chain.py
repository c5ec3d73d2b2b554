"""The contract of the chain, J13: every entry carries the hash of itself and of what came before."""

import pytest

from store.sample import COMPLETED, LEASE_S, OTHER, OWNER, SetClock, called, noted, resulted, run_row, said
from treadle.core.errors import Conflict, NotFound
from treadle.core.journal_entries import Entry
from treadle.journal.hash_chain import entry_hash
from treadle.journal.journal_interface import INLINE_BYTES_MAX, Store
from treadle.journal.run_row_hash import root_hash

ODD = [
    Entry(kind="status", at=-0.0),
    Entry(kind="note", at=0.1, content="\udc80", name="", call_id="\x00", item_id="é"),
    noted(b"\x00\xff not json"),
    noted(b""),
    noted(b'"' + b"x" * INLINE_BYTES_MAX + b'"'),
    said("naïve 🜁", is_input=True),
]


async def sound(store: Store, run_id: str) -> list[tuple[int, int, str]]:
    """Return number, epoch and kind of each line, after checking that all are sound and chained."""
    lines = await store.audit(run_id)
    assert [line.sha256 for line in lines] == [line.expected for line in lines]
    assert all(len(line.sha256) == 64 and line.run_id == run_id for line in lines)
    return [(line.seq, line.epoch, line.kind) for line in lines]


async def test_every_entry_is_chained_whatever_it_holds(store: Store) -> None:
    """Input, appends and the end; texts that are not Unicode, data out of line, no data at all."""
    journal = await store.start_run(run_row(), ODD, owner=OWNER, lease_s=LEASE_S)
    await journal.append([called("call_1"), resulted("call_1")])
    await journal.append([])
    assert len(await sound(store, "run_1")) == 8
    await journal.finish([said("bye")], COMPLETED)
    assert await sound(store, "run_1") == [
        (1, 1, "status"),
        *((seq, 1, "note") for seq in range(2, 6)),
        (6, 1, "user"),
        (7, 1, "tool_call"),
        (8, 1, "tool_result"),
        (9, 1, "user"),
    ]


async def test_the_chain_is_the_same_on_every_engine(store: Store) -> None:
    """Whoever has the entries computes the same hashes as the store."""
    journal = await store.start_run(run_row(), ODD, owner=OWNER, lease_s=LEASE_S)
    await journal.finish([said("bye")], COMPLETED)
    expected, previous = [], root_hash(run_row(), len(ODD))
    for entry in await store.entries("run_1"):
        previous = entry_hash(previous, "run_1", entry.seq, 1, entry)
        expected.append(previous)
    assert [line.sha256 for line in await store.audit("run_1")] == expected


async def test_the_chain_goes_on_over_a_take_over(store: Store, clock: SetClock) -> None:
    """The next owner's first entry carries the hash of the last owner's last one."""
    journal = await store.start_run(run_row(), [said("a")], owner=OWNER, lease_s=LEASE_S)
    for epoch in (2, 3):
        clock.now += LEASE_S
        [(_, taken)] = await store.claim_abandoned(OTHER, LEASE_S, 1)
        assert taken.epoch == epoch
        await taken.append([said(f"by {epoch}")])
        with pytest.raises(Exception, match="taken"):
            await journal.append([said("zombie")])
    assert await sound(store, "run_1") == [(1, 1, "user"), (2, 2, "user"), (3, 3, "user")]


async def test_a_refused_write_leaves_no_trace_in_the_chain(store: Store) -> None:
    """What was rolled back is not hashed either."""
    journal = await store.start_run(run_row(), [], owner=OWNER, lease_s=LEASE_S)
    await journal.append([called("call_1")])
    with pytest.raises(Conflict):
        await journal.append([said("with it"), called("call_1")])
    await journal.append([resulted("call_1")])
    with pytest.raises(Conflict):
        await journal.finish([resulted("call_1")], COMPLETED)
    await journal.finish([], COMPLETED)
    assert await sound(store, "run_1") == [(1, 1, "tool_call"), (2, 1, "tool_result")]


async def test_equal_entries_of_two_runs_have_different_hashes(store: Store) -> None:
    """A line cannot be moved from one run to another."""
    for name in "ab":
        await store.start_run(run_row(name), [said("same")], owner=OWNER, lease_s=LEASE_S)
    [[left], [right]] = [await store.audit(f"run_{name}") for name in "ab"]
    assert left.sha256 != right.sha256


async def test_a_run_without_entries_has_an_empty_audit(store: Store) -> None:
    """Live and ended; a run that is not there is another matter."""
    journal = await store.start_run(run_row(), [], owner=OWNER, lease_s=LEASE_S)
    assert await store.audit("run_1") == []
    await journal.finish([], COMPLETED)
    assert await store.audit("run_1") == []


@pytest.mark.parametrize("name", ["run_0", "", "resp_1", "run_\udc80"])
async def test_an_unknown_run_is_not_audited(store: Store, name: str) -> None:
    """An audit of nothing would look sound."""
    await store.start_run(run_row(), [], owner=OWNER, lease_s=LEASE_S)
    with pytest.raises(NotFound):
        await store.audit(name)


async def test_forgetting_takes_whole_runs_out_of_the_chain(store: Store) -> None:
    """A purge or a deletion leaves nothing that looks broken, neither there nor in the runs around it."""
    previous_id = None
    for name in ("1", "2", "3"):
        row = run_row(name, conversation_id="conv", previous_id=previous_id)
        journal = await store.start_run(row, [said(name), noted(ODD[4].data or b"")], owner=OWNER, lease_s=LEASE_S)
        await journal.finish([], COMPLETED)
        previous_id = row.id
    await store.purge_run("run_1")
    await store.delete_run("run_2")
    assert await store.audit("run_1") == []
    assert await sound(store, "run_3") == [(1, 1, "user"), (2, 1, "note")]
    with pytest.raises(NotFound):
        await store.audit("run_2")
