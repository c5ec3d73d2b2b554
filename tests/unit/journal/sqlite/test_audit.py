"""The audit of a SQLite file that somebody has changed by hand."""

from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.hash_chain import LOST, entry_hash, old_hash
from treadle.journal.journal_interface import INLINE_BYTES_MAX, RunJournal, RunRow, RunSearch
from treadle.journal.sqlite.store import SqliteStore

ROW = RunRow(id="run_1", response_id="resp_1", conversation_id="conv_1", protocol="chat", model="demo", created_at=1.0)
LARGE = Entry(kind="note", at=1.0, content="4", data=b'"' + b"x" * INLINE_BYTES_MAX + b'"')  # type: ignore[arg-type]
ENTRIES = [Entry(kind="user", at=1.0, content=str(seq)) for seq in (1, 2, 3)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """An open store on a file."""
    opened = SqliteStore(str(tmp_path / "a.db"), clock=iter(range(100)).__next__)
    await opened.open()
    yield opened
    await opened.close()


async def written(store: SqliteStore, *, is_ended: bool) -> RunJournal:
    """Keep a run of five entries, the fourth with data out of line."""
    journal = await store.start_run(ROW, ENTRIES, owner="o", lease_s=1.0)
    last = Entry(kind="assistant", at=2.0, content="5")
    if is_ended:
        await journal.append([LARGE])
        await journal.finish([last], RunEnded(status="completed", ended_at=2.0))
    else:
        await journal.append([LARGE, last])
    return journal


async def broken(store: SqliteStore, *statements: str) -> list[tuple[int, str]]:
    """Run statements on the file as somebody else would; return number and kind of the lines that are not sound."""
    connection = apsw.Connection(store.path)
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return [(line.seq, line.kind) for line in await store.audit("run_1") if line.sha256 != line.expected]


async def age(store: SqliteStore, count: int) -> None:
    """Give the first entries of the run the hashes of the old form, and those after them what follows."""
    connection = apsw.Connection(store.path)
    sha256 = ""
    for entry in await store.entries("run_1"):
        form = old_hash if entry.seq <= count else entry_hash
        sha256 = form(sha256, "run_1", entry.seq, 1, entry)
        connection.execute("UPDATE events SET sha256 = ? WHERE seq = ?", (sha256, entry.seq))
    connection.execute("UPDATE leases SET sha256 = ?", (sha256,))
    connection.execute("UPDATE runs SET sha256 = ? WHERE ended_at IS NOT NULL", (sha256,))
    connection.close()


TAMPERED = {
    "content": (["UPDATE events SET content = '2 ' WHERE seq = 2"], [(2, "user")]),
    "kind": (["UPDATE events SET kind = 'system' WHERE seq = 2"], [(2, "system")]),
    "time": (["UPDATE events SET at = 7.0 WHERE seq = 2"], [(2, "user")]),
    "side": (["UPDATE events SET is_input = 1 WHERE seq = 2"], [(2, "user")]),
    "call": (["UPDATE events SET call_id = 'call_1' WHERE seq = 2"], [(2, "user")]),
    "data": (["UPDATE events SET data = '{}' WHERE seq = 2"], [(2, "user")]),
    "large data": (["UPDATE blobs SET data = x'00'"], [(4, "note")]),
    "lost large data": (["UPDATE events SET blob = NULL WHERE seq = 4"], [(4, "note")]),
    "epoch": (["UPDATE events SET epoch = 2 WHERE seq = 2"], [(2, "user")]),
    "hash": (["UPDATE events SET sha256 = NULL WHERE seq = 5"], [(5, "assistant")]),
    "first lost": (["DELETE FROM events WHERE seq = 1"], [(1, LOST), (2, "user")]),
    "one lost": (["DELETE FROM events WHERE seq = 3"], [(3, LOST), (4, "note")]),
    "last lost": (["DELETE FROM events WHERE seq = 5"], [(5, LOST)]),
    "all lost": (["DELETE FROM events"], [(1, LOST)]),
    "closed gap": (
        ["DELETE FROM events WHERE seq = 3", "UPDATE events SET seq = seq - 1 WHERE seq > 3"],
        [(3, "note"), (4, "assistant"), (5, LOST)],
    ),
    "swapped": (
        [
            "UPDATE events SET seq = 99 WHERE seq = 2",
            "UPDATE events SET seq = 2 WHERE seq = 3",
            "UPDATE events SET seq = 3 WHERE seq = 99",
        ],
        [(2, "user"), (3, "user"), (4, "note")],
    ),
    "swapped words": (
        ["UPDATE events SET content = CASE seq WHEN 2 THEN '3' ELSE '2' END WHERE seq IN (2, 3)"],
        [(2, "user"), (3, "user")],
    ),
    "added": (
        [
            "INSERT INTO events (run, seq, epoch, kind, is_input, at, content)"
            " SELECT run, 6, 1, 'user', 0, 1.0, 'forged' FROM events WHERE seq = 1"
        ],
        [(6, "user")],
    ),
}


@pytest.mark.parametrize("old", [0, 2, 5], ids=["new", "grown", "old"])
@pytest.mark.parametrize("is_ended", [True, False], ids=["ended", "live"])
@pytest.mark.parametrize("name", TAMPERED)
async def test_what_was_changed_by_hand_is_found(store: SqliteStore, name: str, is_ended: bool, old: int) -> None:
    """Which line it is, in an ended run and in a live one, with hashes of today, of before, and of both."""
    statements, found = TAMPERED[name]
    await written(store, is_ended=is_ended)
    await age(store, old)
    assert await broken(store) == []
    assert await broken(store, *statements) == found


async def test_a_run_from_before_is_gone_on_with(store: SqliteStore) -> None:
    """Its new entries follow from the old ones, and all of them are sound."""
    await written(store, is_ended=False)
    await age(store, 5)
    [(_, journal)] = await store.claim_abandoned("p", 1.0, 1)
    await journal.append([Entry(kind="note", at=1.0)])
    await journal.finish([LARGE], RunEnded(status="completed", ended_at=2.0))
    assert await broken(store) == []
    lines = await store.audit("run_1")
    assert [line.seq for line in lines] == [*range(1, 8)]
    previous = lines[4].sha256
    assert lines[5].sha256 == entry_hash(previous, "run_1", 6, 2, Entry(kind="note", at=1.0))
    assert await broken(store, "UPDATE events SET content = 'x' WHERE seq IN (5, 6)") == [(5, "assistant"), (6, "note")]


async def test_the_chain_of_a_live_run_is_fenced_with_it(store: SqliteStore) -> None:
    """What comes after a forged hash of the last entry does not follow from it."""
    journal = await written(store, is_ended=False)
    assert await broken(store, "UPDATE leases SET sha256 = 'forged'") == [(5, "assistant")]
    await journal.append([Entry(kind="note", at=1.0)])
    assert await broken(store) == [(6, "note")]


async def test_entries_exchanged_between_runs_are_found(store: SqliteStore) -> None:
    """An entry moved whole from one run to another does not fit there, nor does the next one after it."""
    await written(store, is_ended=True)
    other = RunRow(
        id="run_2", response_id="resp_2", conversation_id="conv_2", protocol="chat", model="demo", created_at=1.0
    )
    await store.start_run(other, ENTRIES, owner="o", lease_s=1.0)
    exchange = [
        "UPDATE events SET seq = 99 WHERE seq = 2 AND run = 2",
        "UPDATE events SET run = 2 WHERE seq = 2 AND run = 1",
        "UPDATE events SET run = 1, seq = 2 WHERE seq = 99",
    ]
    assert await broken(store, *exchange) == [(2, "user"), (3, "user")]


async def test_bytes_that_are_no_text_are_a_change_and_no_traceback(store: SqliteStore) -> None:
    """Of the entry and of the reading and searching of its run."""
    await written(store, is_ended=True)
    assert await broken(store, "UPDATE events SET content = x'61ff00' WHERE seq = 2") == [(2, "user")]
    assert (await store.entries("run_1"))[1].content == "a\udcff\x00"
    assert [row.id for row in await store.search_runs(RunSearch(text="a"), limit=5)] == ["run_1"]
