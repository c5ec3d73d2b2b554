"""Collects what is stored of one run for its audit, and finds what is wrong with it apart from its hashes.

Found the same way on every engine. Pure.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import Status
from treadle.core.usage import Usage
from treadle.journal.hash_chain import StoredEntry, audit_lines, is_rooted
from treadle.journal.journal_interface import Evidence, RunRow
from treadle.journal.run_row_hash import SealedRow, read_or_none

_usage = msgspec.json.Decoder(Usage)
_error = msgspec.json.Decoder(ErrorInfo)

OF_RUNS = ("events", "requests", "leases", "approvals", "blob_uses")
"""The tables whose rows belong to a run, and go with it."""


class LeaseColumns(NamedTuple):
    """Who holds a run that has not ended, as far as an audit asks."""

    head: int
    sha256: str
    epoch: int
    session_id: str | None


def make_evidence(
    sealed: SealedRow,
    lease: LeaseColumns | None,
    stored: Sequence[StoredEntry],
    blobs: Mapping[str, bytes | None],
    faults: Iterable[str],
) -> Evidence:
    """Put together what was read of a run at one moment; `faults` are what its engine has found."""
    head, sha256 = (sealed.head, sealed.sha256) if lease is None else lease[:2]
    if sealed.is_purged and not stored:
        head, sha256 = 0, ""  # nothing is missing
    root = sealed.root
    return Evidence(
        row=run_of(sealed),
        sealed=sealed,
        entries=[each.entry for each in stored],
        lines=list(audit_lines(sealed.id, stored, head, sha256, root)),
        is_rooted=is_rooted(sealed.id, stored, root, sha256),
        faults=(*_lease_faults(sealed, lease, stored), *_blob_faults(blobs), *faults),
    )


def run_of(row: SealedRow) -> RunRow:
    """Return a row as the rooms above know it."""
    body = row.body.encode() if isinstance(row.body, str) else row.body
    return RunRow(
        id=row.id,
        response_id=row.response_id,
        conversation_id=row.conversation_id,
        previous_id=row.previous_id,
        session_id=row.session_id,
        key_id=row.key_id,
        protocol=row.protocol,
        model=row.model,
        status=cast("Status", row.status),
        store=bool(row.store),
        background=bool(row.background),
        created_at=row.created_at,
        ended_at=row.ended_at,
        expires_at=row.expires_at,
        stop=row.stop,
        limit=row.limit,
        usage=read_or_none(_usage, row.usage),
        error=read_or_none(_error, row.error),
        rounds=row.rounds,
        calls=row.calls,
        request=None if body is None else msgspec.Raw(body),
        idempotency_key=row.idempotency_key,
        request_sha256=row.request_sha256,
    )


def entry_faults(
    stored: StoredEntry,
    *,
    blob: str | None,
    is_inline: bool,
    blobs: Collection[str],
    fingerprint: object,
    expected: object,
) -> Iterator[str]:
    """Yield what is wrong with where an entry's data is, and with the fingerprint by which it is found.

    The oldest entries have no fingerprint.
    """
    seq = stored.entry.seq
    if blob is not None and (is_inline or blob not in blobs):
        yield f"entry {seq} refers to data that is not its own"
    if fingerprint != expected and not (stored.sha256 is None and fingerprint is None):
        yield f"the fingerprint of entry {seq} is not that of its plan"


def _lease_faults(row: SealedRow, lease: LeaseColumns | None, stored: Sequence[StoredEntry]) -> Iterator[str]:
    """Yield what is wrong between a run and its lease: there is one as long as the run has not ended."""
    if lease is None:
        if row.ended_at is None:
            yield "the run has not ended, and has no lease"
        return
    if row.ended_at is not None:
        yield "the run has ended, and still has a lease"
    if lease.session_id != row.session_id:
        yield f"the lease is of session {lease.session_id!r}, the run of {row.session_id!r}"
    if stored and lease.epoch < stored[-1].epoch:
        yield f"the lease is of epoch {lease.epoch}, and epoch {stored[-1].epoch} has written"


def _blob_faults(blobs: Mapping[str, bytes | None]) -> Iterator[str]:
    """Yield the faults of a run's blobs: data that does not have the sha256 by which it is named."""
    for name, data in blobs.items():
        if data is not None and hashlib.sha256(data).hexdigest() != name:
            yield f"the data {name[:12]}… is not as it was written"
