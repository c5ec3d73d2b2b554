"""The ways in which runs end, and what each means to a client: one table for all protocols, streamed or not.

An unfinished answer is an error in every protocol, however much of it was sent. Encoders call `failure_of` and do not
look at the status, so that no end of a run can be mistaken for an answer. How an error is written is not decided here.
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
"""The default error of each final status. Each protocol has its own way to say `incomplete`."""


CANCELS = frozenset({CANCELLED.code, REVOKED.code})
"""Codes of errors by which a run counts as cancelled on purpose, and not as failed."""


def failure_of(ended: RunEnded) -> ErrorInfo | None:
    """Return the error that an end means to the client; None if the run has an answer."""
    usual = _FAILURES[ended.status]
    return usual if usual is None else ended.error or usual


CONTINUES_ELSEWHERE = frozenset({"handed_over", "lease_lost", "store_unavailable"})
"""Codes of ends that are only local: another process continues the run and writes its real end."""


def may_retry(error: ErrorInfo, *, has_run_tools: bool, is_keyed: bool) -> bool:
    """Return whether a retry helps and repeats no effect; with `is_keyed` it finds the same run."""
    if error.code in CONTINUES_ELSEWHERE and (is_keyed or not error.retryable):
        return is_keyed
    # With Retry-After the provider itself says that a retry helps, whatever its status.
    return not has_run_tools and (error.retryable or error.retry_after_s is not None)


Form = Literal["answer", "cut", "error", "broken"]
"""What a client gets: an answer, a truncated answer marked as such, an error, or a connection that breaks off."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a run ends, and what the client gets.

    `end` is the run's end, None if the run does not end by this or never started. `note` adds details for the docs.
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
"""Every way in which a run is ended from outside. The table in docs/http.md is generated from this."""
