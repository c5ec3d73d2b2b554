"""Requests under one idempotency key are one run, and a further try only where the one before failed for nothing.

A run that failed before it did anything, by a failure that says another try helps (the server stopped, the upstream was
away), must not answer its key for ever: the same request is then tried again. Each further try has a key of its own in
the store, so the row of an earlier one stays as it was sealed.
"""

import itertools

import msgspec

from treadle.core.errors import Conflict
from treadle.core.run_endings import may_retry
from treadle.journal.journal_interface import RunRow, Store

_NEXT_TRY = "\x1e{number}"
"""What a further try has behind its key: no client can send it."""


class Idempotency(msgspec.Struct, frozen=True, kw_only=True):
    """A client's word that requests under this key are one and the same; the sha256 tells whether they are.

    One that `is_resumed` wants the rest of an answer that it has seen the beginning of, and no other one.
    """

    key: str
    request_sha256: str
    is_resumed: bool = False


async def last_try(store: Store, asked: Idempotency, key_id: str) -> tuple[Idempotency, RunRow | None]:
    """Return the run that answers a request under a key, and the key that it has; None where it is still to be made.

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
    """Return whether a run failed so that its client was told to try again, and no tool was called."""
    if row.status != "failed" or row.error is None:
        return False
    return may_retry(row.error, has_run_tools=row.calls > 0, is_keyed=False)
