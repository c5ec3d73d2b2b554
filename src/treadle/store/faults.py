"""What can be wrong with how a run is kept, beside its hashes: found the same way on every engine. Pure."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from treadle.store.chain import KeptEntry
from treadle.store.seal import SealedRow


class Lease(NamedTuple):
    """Who holds a run that has not ended, as far as an audit asks."""

    head: int
    sha256: str
    epoch: int
    session_id: str | None


def lease_faults(row: SealedRow, lease: Lease | None, kept: Sequence[KeptEntry]) -> Iterator[str]:
    """Say what is wrong between a run and its lease: there is one as long as the run has not ended."""
    if lease is None:
        if row.ended_at is None:
            yield "the run has not ended, and has no lease"
        return
    if row.ended_at is not None:
        yield "the run has ended, and still has a lease"
    if lease.session_id != row.session_id:
        yield f"the lease is of session {lease.session_id!r}, the run of {row.session_id!r}"
    if kept and lease.epoch < kept[-1].epoch:
        yield f"the lease is of epoch {lease.epoch}, and epoch {kept[-1].epoch} has written"


def blob_faults(blobs: Mapping[str, bytes | None]) -> Iterator[str]:
    """Say which data of a run, by the sha256 it is named by, is not what its name says."""
    for name, data in blobs.items():
        if data is not None and hashlib.sha256(data).hexdigest() != name:
            yield f"the data {name[:12]}… is not as it was written"


def entry_faults(
    kept: KeptEntry,
    *,
    blob: str | None,
    is_inline: bool,
    blobs: Collection[str],
    fingerprint: object,
    expected: object,
) -> Iterator[str]:
    """Say what is wrong with where an entry's data is, and with the fingerprint by which it is found.

    The oldest entries have no fingerprint.
    """
    seq = kept.entry.seq
    if blob is not None and (is_inline or blob not in blobs):
        yield f"entry {seq} refers to data that is not its own"
    if fingerprint != expected and not (kept.sha256 is None and fingerprint is None):
        yield f"the fingerprint of entry {seq} is not that of its plan"
