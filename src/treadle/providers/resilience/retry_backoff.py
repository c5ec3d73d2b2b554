"""Decides whether and when a failed call is retried: full jitter, the provider's retry-after, and a retry budget.

Pure: the caller passes the random function. A call whose response had started is retried only if none of its events
was published, which the engine knows.
"""

from collections.abc import Callable

import msgspec

from treadle.core.errors import (
    CROWDED,
    BrokenStream,
    CircuitOpen,
    ErrorInfo,
    UpstreamError,
    UpstreamStatus,
    UpstreamTimeout,
)
from treadle.providers.error_mapping import LOADING


class RetryRules(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how soon to retry. At most `share` of all calls are retries, beyond an initial `spare`."""

    retries: int = 2
    backoff_s: float = 0.5
    backoff_s_max: float = 8.0
    retry_after_s_max: float = 60.0
    share: float = 0.1
    spare: float = 10.0


class RetryBudget:
    """Bounds retries to a share of all calls, so that a failing endpoint does not get three times the load."""

    def __init__(self, rules: RetryRules) -> None:
        self._rules = rules
        self._left = rules.spare

    def earn(self) -> None:
        """Count a first attempt."""
        if self._left < self._rules.spare:
            self._left = min(self._left + self._rules.share, self._rules.spare)

    def spend(self) -> bool:
        """Spend one retry; return whether the budget allows it."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def pause_s(error: UpstreamError, attempt: int, rules: RetryRules, random: Callable[[], float]) -> float | None:
    """Return how long to wait before a retry after this many attempts; None for no retry.

    If the provider asks for a longer wait than clients accept, the client gets the retry-after instead. Timeouts are
    not retried: they used up their whole time limit already.
    """
    return None if isinstance(error, UpstreamTimeout | CircuitOpen) else pause_of(error.info, attempt, rules, random)


def pause_of(error: ErrorInfo, attempt: int, rules: RetryRules, random: Callable[[], float]) -> float | None:
    """Return the same for an error after the response had started."""
    if attempt > rules.retries or not error.retryable or error.code == UpstreamTimeout.code:
        return None
    jitter = random() * min(rules.backoff_s * 2 ** (attempt - 1), rules.backoff_s_max)
    requested = error.retry_after_s
    if requested is None:
        return jitter
    return None if requested > rules.retry_after_s_max else requested + jitter


def may_fall_back(error: UpstreamError) -> bool:
    """Return whether a fallback endpoint may succeed: not if the request itself was refused."""
    if isinstance(error, UpstreamStatus):
        return error.is_retryable or error.upstream_status in (401, 402, 403, 404)
    return True


def is_endpoint_fault(error: UpstreamError) -> bool:
    """Return whether an error is the endpoint's fault, and not that of the request, the key or the quota."""
    if isinstance(error, UpstreamStatus):
        is_loading = error.info.code == LOADING
        return (error.upstream_status >= 500 and not is_loading) or error.upstream_status == 408
    is_silent = isinstance(error, UpstreamTimeout) and error.info.code != CROWDED
    return is_silent or isinstance(error, BrokenStream) or type(error) is UpstreamError
