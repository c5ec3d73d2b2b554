"""Reads all that is stored of one run for its audit.

It names what PostgreSQL stores differently from how Treadle writes it: a text can be marked so that it reads the same.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from treadle.core.errors import NotFound
from treadle.journal.audit_records import OF_RUNS, LeaseColumns, entry_faults, make_evidence
from treadle.journal.hash_chain import StoredEntry, plan_fingerprint
from treadle.journal.journal_interface import Evidence
from treadle.journal.postgres.connection import Connection
from treadle.journal.postgres.row_mapping import (
    ENTRY_FIELDS,
    SEALED_FIELDS,
    bind_data,
    bind_text,
    read_data,
    read_entry,
    read_sealed,
    read_text,
)

_ROW = f"""
SELECT r.n, l.head, l.sha256, l.epoch, l.session_id, {SEALED_FIELDS}
FROM runs r LEFT JOIN leases l ON l.run = r.n WHERE r.id = $1
"""
_ENTRIES = f"""
SELECT e.blob, e.fingerprint, e.epoch, e.sha256, {ENTRY_FIELDS} FROM events e LEFT JOIN blobs b ON b.sha256 = e.blob
WHERE e.run = $1 ORDER BY e.seq
"""
_BLOBS = "SELECT u.blob, b.data FROM blob_uses u LEFT JOIN blobs b ON b.sha256 = u.blob WHERE u.run = $1"
_TEXTS = ("name", "call_id", "item_id", "content")


async def collect(connection: Connection, run_id: str) -> Evidence:
    """Return all that is stored of a run, as it is at one moment.

    Raises: NotFound.
    """
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        found = await connection.fetchrow(_ROW, bind_text(run_id))
        if found is None:
            raise NotFound(f"there is no run {run_id!r}")
        values = tuple(found)
        entries = [tuple(each) for each in await connection.fetch(_ENTRIES, values[0])]
        blobs = {each[0]: each[1] for each in await connection.fetch(_BLOBS, values[0])}
    sealed = read_sealed(values[5:])
    lease = None if values[1] is None else LeaseColumns(values[1], values[2], values[3], read_text(values[4]))
    stored = [StoredEntry(read_entry(each[4:]), each[2], each[3]) for each in entries]
    faults = [fault for values, each in zip(entries, stored, strict=True) for fault in _faults(values, each, blobs)]
    return make_evidence(sealed, lease, stored, blobs, faults)


async def strays(connection: Connection) -> dict[str, int]:
    """Return how many rows belong to runs that are not there, by table."""
    sql = "SELECT count(*) FROM {} t WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.n = t.run)"
    counts = {table: await connection.fetchval(sql.format(table)) for table in OF_RUNS}
    return {table: count for table, count in counts.items() if count}


def _faults(values: Sequence[Any], stored: StoredEntry, blobs: dict[str, Any]) -> Iterator[str]:
    blob, fingerprint, _, _, seq, _, _, _, *texts, inline, _ = values
    for name, value in zip(_TEXTS, texts, strict=True):
        if value is not None and bind_text(read_text(value)) != value:
            yield f"the {name} of entry {seq} is not kept as it would be written"
    if inline is not None and bind_data(read_data(inline)) != inline:
        yield f"the data of entry {seq} is not kept as it would be written"
    expected = bind_text(plan_fingerprint(stored.entry))
    yield from entry_faults(
        stored, blob=blob, is_inline=inline is not None, blobs=blobs, fingerprint=fingerprint, expected=expected
    )
