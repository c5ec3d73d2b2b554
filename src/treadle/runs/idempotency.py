"""Deduplicates requests by idempotency key: one run for each key, plus a new try after a failure without effect.

A run that failed before it had any effect, with a retryable error (server stopping, provider unavailable), does not
answer its key forever: the same request is tried again. Each further try has its own key in the store, so the sealed
row of an earlier one is not changed.
"""

import itertools

import msgspec

from treadle.core.errors import Conflict
from treadle.core.run_endings import may_retry
from treadle.journal.journal_interface import RunRow, Store

_NEXT_TRY = "\x1e{number}"
"""The suffix of the key of a further try; no client can send this character."""


class Idempotency(msgspec.Struct, frozen=True, kw_only=True):
    """A client's idempotency key, and the hash of its request, which must be the same each time.

    A request that `is_resumed` wants the rest of an answer that it has read in part, and never a new try.
    """

    key: str
    request_sha256: str
    is_resumed: bool = False


async def last_try(store: Store, asked: Idempotency, key_id: str) -> tuple[Idempotency, RunRow | None]:
    """Return the run that answers a request under a key, and the key of that try; None if it must be started.

    Raises: StoreError.
    """
    tried, found = asked, await store.find_idempotent(asked.key, key_id=key_id)
    for number in itertools.count(2):
        if found is None or found.request_sha256 != asked.request_sha256 or not _may_try_again(found):
            break
        another = msgspec.structs.replace(asked, key=asked.key + _NEXT_TRY.format(number=number))
        newer = await store.find_idempotent(another.key, key_id=key_id)
        if newer is None and asked.is_resumed:
            break
        tried, found = another, newer
    return tried, found


def check_same(row: RunRow, asked: Idempotency) -> None:
    """Refuse another request under the key of a run.

    Raises: Conflict.
    """
    if row.request_sha256 != asked.request_sha256:
        raise Conflict(
            "This idempotency key was used with another request.",
            code="idempotency_key_reused",
            param="idempotency-key",
            hint="Use a new key for a new request.",
        )


def _may_try_again(row: RunRow) -> bool:
    """Return whether a run failed with a retryable error and called no tool."""
    if row.status != "failed" or row.error is None:
        return False
    return may_retry(row.error, has_run_tools=row.calls > 0, is_keyed=False)
