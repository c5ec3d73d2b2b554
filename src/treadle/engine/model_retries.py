"""Model calls that are made again: those that broke before anybody was told anything of them, and before anything ran.

What such a call said is forgotten, as if it had never been made. How often that may be, and when, the model knows.
"""

from collections.abc import Sequence

from treadle.core.events import Batches, LiveBatches, ModelEvent, Noted
from treadle.engine.deadline import Deadline
from treadle.engine.early_reads import EarlyReads
from treadle.engine.run_state import RunState

_ABOUT_CALLS = frozenset({"upstream_retried", "upstream_fallback"})
"""Notes on what had to be done to make a call: they hold of the one that is made again too."""


def can_hold(batch: Sequence[ModelEvent], early: EarlyReads, *, is_private: bool) -> bool:
    """Tell whether what a model said can be held: nobody reads it before the end, or it is nothing but notes."""
    return not early.is_marked if is_private else all(type(event) is Noted for event in batch)


async def discard_for_retry(
    stream: Batches, turn: RunState, early: EarlyReads, deadline: Deadline, attempt: int
) -> list[ModelEvent]:
    """Let the turn forget a call that broke, once it may be made again, and return what to say of that.

    Nothing where it may not, and then the turn stays as it is.
    """
    error, again = turn.error, None
    if error is None or not error.retryable or early.is_marked or deadline.is_over:
        return []
    if isinstance(stream, LiveBatches):
        with deadline.limit():
            again = await stream.prepare_retry(attempt)
    if again is None:
        return []
    said = turn.discard_call()
    return [*[event for event in said if type(event) is Noted and event.note.code in _ABOUT_CALLS], again]
