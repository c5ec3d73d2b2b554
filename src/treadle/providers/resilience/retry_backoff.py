"""Whether a refused call is made once more, and when: full jitter, what the provider asks for, and a budget.

Pure, but for the random that are given. A call that has begun to answer is made again only where nobody was told anything
of it, which the engine knows.
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
    """How often and how soon. `share` of all calls may be repeated ones, `spare` of them before any call was made."""

    retries: int = 2
    backoff_s: float = 0.5
    backoff_s_max: float = 8.0
    retry_after_s_max: float = 60.0
    share: float = 0.1
    spare: float = 10.0


class RetryBudget:
    """How many calls may be repeated, as a share of those made: a sick endpoint is not asked thrice as much."""

    def __init__(self, rules: RetryRules) -> None:
        self._rules = rules
        self._left = rules.spare

    def earn(self) -> None:
        """Count a call that was made for the first time."""
        if self._left < self._rules.spare:
            self._left = min(self._left + self._rules.share, self._rules.spare)

    def spend(self) -> bool:
        """Take leave to repeat one, if there is any left."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def pause_s(error: UpstreamError, attempt: int, rules: RetryRules, random: Callable[[], float]) -> float | None:
    """Return how long to wait before a call is made again, after this many attempts; None, where it shall not be.

    A provider that asks for more patience than a client has is not asked again: the client is told to come back.
    Silence is not retried, for it took its whole time limit already.
    """
    return None if isinstance(error, UpstreamTimeout | CircuitOpen) else pause_of(error.info, attempt, rules, random)


def pause_of(error: ErrorInfo, attempt: int, rules: RetryRules, random: Callable[[], float]) -> float | None:
    """Return the same for an answer that broke after it had begun."""
    if attempt > rules.retries or not error.retryable or error.code == UpstreamTimeout.code:
        return None
    jitter = random() * min(rules.backoff_s * 2 ** (attempt - 1), rules.backoff_s_max)
    asked = error.retry_after_s
    if asked is None:
        return jitter
    return None if asked > rules.retry_after_s_max else asked + jitter


def may_fall_back(error: UpstreamError) -> bool:
    """Tell whether another endpoint may do better: not, where the request itself was refused."""
    if isinstance(error, UpstreamStatus):
        return error.is_retryable or error.upstream_status in (401, 402, 403, 404)
    return True


def is_endpoint_fault(error: UpstreamError) -> bool:
    """Tell whether an error speaks against the endpoint, rather than against the request, the key or the quota."""
    if isinstance(error, UpstreamStatus):
        is_loading = error.info.code == LOADING
        return (error.upstream_status >= 500 and not is_loading) or error.upstream_status == 408
    is_silent = isinstance(error, UpstreamTimeout) and error.info.code != CROWDED
    return is_silent or isinstance(error, BrokenStream) or type(error) is UpstreamError
