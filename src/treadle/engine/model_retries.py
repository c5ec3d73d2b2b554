"""Retries a model call that failed before any of its events was published and before any tool ran.

The events of the failed call are discarded. The model decides how often and when a retry is allowed.
"""

from collections.abc import Sequence

from treadle.core.events import Batches, LiveBatches, ModelEvent, Noted
from treadle.engine.deadline import Deadline
from treadle.engine.early_reads import EarlyReads
from treadle.engine.run_state import RunState

_ABOUT_CALLS = frozenset({"upstream_retried", "upstream_fallback"})
"""Notes about how the call was made; they also apply to the retry."""


def can_hold(batch: Sequence[ModelEvent], early: EarlyReads, *, is_private: bool) -> bool:
    """Return whether a batch can be published later: the run is read at its end only, or the batch has only notes."""
    return not early.is_marked if is_private else all(type(event) is Noted for event in batch)


async def discard_for_retry(
    stream: Batches, state: RunState, early: EarlyReads, deadline: Deadline, attempt: int
) -> list[ModelEvent]:
    """Discard the events of a failed call if it may be retried, and return the notes that remain.

    Returns nothing, and changes nothing, if it may not.
    """
    error, retry_note = state.error, None
    if error is None or not error.retryable or early.is_marked or deadline.is_over:
        return []
    if isinstance(stream, LiveBatches):
        with deadline.limit():
            retry_note = await stream.prepare_retry(attempt)
    if retry_note is None:
        return []
    discarded = state.discard_call()
    return [*[event for event in discarded if type(event) is Noted and event.note.code in _ABOUT_CALLS], retry_note]
