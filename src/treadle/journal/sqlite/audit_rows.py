"""Reads all that is stored of one run for its audit, as a job on any connection.

It names what SQLite stores differently from how Treadle writes it: bytes in the place of a text read the same.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import apsw

from treadle.core.errors import NotFound
from treadle.journal.audit_records import OF_RUNS, LeaseColumns, entry_faults, make_evidence
from treadle.journal.hash_chain import StoredEntry, plan_fingerprint
from treadle.journal.journal_interface import Evidence
from treadle.journal.sqlite.connection import select
from treadle.journal.sqlite.row_mapping import (
    SEALED_FIELDS,
    STORED_ENTRY_FIELDS,
    bind_text,
    read_sealed,
    read_stored_entry,
)

_ROW = f"""
SELECT r.n, l.head, l.sha256, l.epoch, l.session_id, {SEALED_FIELDS}
FROM runs r LEFT JOIN leases l ON l.run = r.n WHERE r.id = ?
"""
_ENTRIES = f"""
SELECT e.blob, e.fingerprint, {STORED_ENTRY_FIELDS} FROM events e LEFT JOIN blobs b ON b.sha256 = e.blob
WHERE e.run = ? ORDER BY e.seq
"""
_BLOBS = "SELECT u.blob, b.data FROM blob_uses u LEFT JOIN blobs b ON b.sha256 = u.blob WHERE u.run = ?"
_TEXTS = ("name", "call_id", "item_id", "content", "data")


def collect(connection: apsw.Connection, run_id: str) -> Evidence:
    """Return all that is stored of a run, as it is at one moment.

    Raises: NotFound.
    """
    connection.execute("SAVEPOINT evidence")
    try:
        found = select(connection, _ROW, bind_text(run_id))
        if not found:
            raise NotFound(f"there is no run {run_id!r}")
        run, *held = found[0][:5]
        entries = select(connection, _ENTRIES, run)
        blobs = dict(select(connection, _BLOBS, run))
    finally:
        connection.execute("RELEASE evidence")
    sealed = read_sealed(found[0][5:])
    lease = None if held[0] is None else LeaseColumns(*held)
    stored = [read_stored_entry(values[2:]) for values in entries]
    faults = [fault for values, each in zip(entries, stored, strict=True) for fault in _faults(values, each, blobs)]
    return make_evidence(sealed, lease, stored, blobs, faults)


def strays(connection: apsw.Connection) -> dict[str, int]:
    """Return how many rows belong to runs that are not there, by table."""
    sql = "SELECT count(*) FROM {} WHERE run NOT IN (SELECT n FROM runs)"
    counts = {table: select(connection, sql.format(table))[0][0] for table in OF_RUNS}
    return {table: count for table, count in counts.items() if count}


def _faults(values: Sequence[Any], stored: StoredEntry, blobs: dict[str, Any]) -> Iterator[str]:
    blob, fingerprint, _, _, seq, _, is_input, _, *texts, inline, _ = values
    if is_input not in (0, 1):
        yield f"entry {seq} is neither input nor not"
    for name, value in zip(_TEXTS, [*texts, inline], strict=True):
        if isinstance(value, bytes) and _is_text(value):
            yield f"the {name} of entry {seq} is not kept as text"
    expected = bind_text(plan_fingerprint(stored.entry))
    yield from entry_faults(
        stored, blob=blob, is_inline=inline is not None, blobs=blobs, fingerprint=fingerprint, expected=expected
    )


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
