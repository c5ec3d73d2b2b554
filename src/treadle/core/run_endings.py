"""How runs end, and what each end means to a client: one table for all protocols, streamed or not.

An answer that is not finished is an error in every protocol, whatever ended it and however much of it was sent: an
encoder asks `failure_of` and never the status, so no way to end a run can look like an answer. Nothing here knows how
a protocol writes an error.
"""

from typing import Literal

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import RunEnded

CANCELLED = ErrorInfo(code="cancelled", message="The run was cancelled before its answer was complete.", status=499)
REVOKED = ErrorInfo(
    code="revoked_api_key",
    message="The run was cancelled before its answer was complete: its API key was revoked.",
    status=401,
)
UNKNOWN = ErrorInfo(code="upstream_error", message="The run failed.", status=502)
SERVER_STOPPING = ErrorInfo(
    code="server_stopping",
    message="The answer was cut off: the server is stopping.",
    status=503,
    retryable=True,
    retry_after_s=1.0,
)
HANDED_OVER = ErrorInfo(
    code="handed_over",
    message="Another process goes on with this run: ask again for the rest.",
    status=503,
    retry_after_s=1.0,
)
INTERRUPTED = ErrorInfo(code="interrupted", message="The process that ran this was stopped.", status=503)
INTERNAL = ErrorInfo(code="internal_error", message="Treadle failed; the log says why.", status=500)
NOT_STORED = ErrorInfo(
    code="run_not_stored",
    message="The run has ended elsewhere, and its content was not to be stored.",
    status=409,
)

_FAILURES: dict[str, ErrorInfo | None] = {
    "completed": None,
    "requires_action": None,
    "incomplete": None,
    "failed": UNKNOWN,
    "cancelled": CANCELLED,
}
"""What each last status means, where the run does not say more. `incomplete` has words of its own in each protocol."""


CANCELS = frozenset({CANCELLED.code, REVOKED.code})
"""Codes of errors by which a run counts as cancelled: somebody wanted it to end, and nothing broke."""


def failure_of(ended: RunEnded) -> ErrorInfo | None:
    """Return the error that an end is to the client; None where the run has an answer."""
    usual = _FAILURES[ended.status]
    return usual if usual is None else ended.error or usual


CONTINUES_ELSEWHERE = frozenset({"handed_over", "lease_lost", "store_unavailable"})
"""Codes of runs that end here and nowhere else: another process writes their real end."""


def may_retry(error: ErrorInfo, *, has_run_tools: bool, is_keyed: bool) -> bool:
    """Return whether a retry helps and repeats no effect; with `is_keyed` it finds the same run."""
    if error.code in CONTINUES_ELSEWHERE and (is_keyed or not error.retryable):
        return is_keyed
    # A time to come back is an upstream's own word that coming back helps, whatever its status.
    return not has_run_tools and (error.retryable or error.retry_after_s is not None)


Form = Literal["answer", "cut", "error", "broken"]
"""What a client sees: an answer, one that says it was cut short, an error, or a connection without its end."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a run ends: what happened, and what comes of it.

    `end` is the run's end, None where it does not end by this or never began. `note` says what else there is to know.
    """

    name: str
    what: str
    form: Form
    end: RunEnded | None = None
    note: str = ""


_LIMITED = RunEnded(status="completed", limit="max_total_tool_calls")
_OUT_OF_TIME = RunEnded(status="incomplete", stop="length", limit="wall_time")
_CANCELLED = RunEnded(status="cancelled")


def _failed(code: str, status: int, message: str, *, retryable: bool = False) -> RunEnded:
    error = ErrorInfo(code=code, message=message, status=status, retryable=retryable)
    return RunEnded(status="failed", error=error)


ENDINGS: tuple[Ending, ...] = (
    Ending(
        name="operator_cancel",
        what="cancelled by `POST /treadle/v1/runs/{id}/cancel`, the console or another process",
        form="error",
        end=_CANCELLED,
    ),
    Ending(
        name="responses_cancel",
        what="cancelled by `POST /v1/responses/{id}/cancel`",
        form="error",
        end=_CANCELLED,
        note="background responses only",
    ),
    Ending(
        name="revoked_key",
        what="its key is revoked",
        form="error",
        end=RunEnded(status="cancelled", error=REVOKED),
        note="the next request is a 401 `revoked_api_key`",
    ),
    Ending(
        name="expired_key",
        what="its key expires, or its budget is used up meanwhile",
        form="answer",
        note="what has begun may end; the next request is a 401 or 429",
    ),
    Ending(
        name="disconnect",
        what="one of several readers disconnects",
        form="answer",
        note="without any reader the run is cancelled",
    ),
    Ending(name="limit", what="a limit on rounds, calls or repeats", form="answer", end=_LIMITED),
    Ending(
        name="limit_json",
        what="any limit, where the answer shall be JSON and there is none",
        form="error",
        end=_failed("limit_reached", 422, "Tool call limit reached (2)."),
    ),
    Ending(name="wall_time", what="the time of the run is over while the model speaks", form="cut", end=_OUT_OF_TIME),
    Ending(
        name="idle_time",
        what="the upstream falls silent",
        form="error",
        end=_failed("upstream_timeout", 504, "The upstream fell silent.", retryable=True),
    ),
    Ending(
        name="shutdown",
        what="the server stops, and its grace is over",
        form="error",
        end=RunEnded(status="failed", error=SERVER_STOPPING),
    ),
    Ending(
        name="hand_over",
        what="the server stops, and the run is in the background",
        form="broken",
        end=RunEnded(status="failed", error=HANDED_OVER),
        note="another process goes on with it; attach again for the rest",
    ),
    Ending(
        name="lease_lost",
        what="another process took the run over",
        form="error",
        end=_failed("lease_lost", 503, "Another owner has taken the run over.", retryable=True),
        note="with an `Idempotency-Key` the same request gets the answer",
    ),
    Ending(
        name="store_failure",
        what="the journal cannot be written",
        form="error",
        end=_failed("store_unavailable", 503, "The database does not answer.", retryable=True),
        note="with an `Idempotency-Key` the same request gets the answer",
    ),
    Ending(
        name="interrupted",
        what="its process died, and it cannot be recovered",
        form="error",
        end=RunEnded(status="failed", error=INTERRUPTED),
    ),
    Ending(
        name="internal_error",
        what="a bug in Treadle",
        form="error",
        end=RunEnded(status="failed", error=INTERNAL),
    ),
    Ending(
        name="approval",
        what="a call is denied, or its approval expires",
        form="answer",
        end=RunEnded(status="completed"),
        note="the model reads it as the call's result",
    ),
)
"""Every way in which a run ends from outside. The table in docs/http.md is made from this, and a test walks it."""
