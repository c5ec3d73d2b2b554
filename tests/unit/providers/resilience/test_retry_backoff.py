"""When a refused call is made again, how long that waits, and how much of it there may be."""

import pytest

from treadle.core.errors import CROWDED, BrokenStream, CircuitOpen, UpstreamError, UpstreamStatus, UpstreamTimeout
from treadle.providers.resilience.retry_backoff import (
    RetryBudget,
    RetryRules,
    is_endpoint_fault,
    may_fall_back,
    pause_s,
)

RULES = RetryRules(retries=2, backoff_s=0.5, backoff_s_max=0.8, retry_after_s_max=60.0)


def status(code: int, retry_after_s: float | None = None) -> UpstreamStatus:
    """Return a refusal."""
    return UpstreamStatus("no", status=code, retry_after_s=retry_after_s)


@pytest.mark.parametrize(
    ("error", "retried", "elsewhere", "sick"),
    [
        (status(400), False, False, False),
        (status(401), False, True, False),
        (status(403), False, True, False),
        (status(404), False, True, False),
        (status(408), True, True, True),
        (status(422), False, False, False),
        (status(429), True, True, False),
        (status(500), True, True, True),
        (status(529), True, True, True),
        (UpstreamError("refused"), True, True, True),
        (UpstreamTimeout("silent"), False, True, True),
        (UpstreamTimeout("not asked", code=CROWDED), False, True, False),
        (BrokenStream("nonsense"), True, True, True),
        (CircuitOpen("sick"), False, True, False),
    ],
    ids=lambda value: getattr(value, "upstream_status", None) and str(value.upstream_status),
)
def test_each_failure_has_its_own_remedy(error, retried, elsewhere, sick):
    """Again, elsewhere, or neither; and whether it is held against the endpoint."""
    assert (pause_s(error, 1, RULES, lambda: 1.0) is not None) == retried
    assert may_fall_back(error) == elsewhere
    assert is_endpoint_fault(error) == sick


def test_pauses_grow_are_bounded_and_jittered_down_to_nothing():
    """Full jitter: between nothing and twice the last."""
    assert pause_s(status(500), 1, RULES, lambda: 1.0) == 0.5
    assert pause_s(status(500), 2, RULES, lambda: 1.0) == 0.8
    assert pause_s(status(500), 2, RULES, lambda: 0.0) == 0.0
    assert pause_s(status(500), 3, RULES, lambda: 0.0) is None


def test_a_provider_is_not_asked_before_it_said_and_not_at_all_when_it_asks_for_too_much_patience():
    """Its retry-after is a promise to keep."""
    assert pause_s(status(429, 7.0), 1, RULES, lambda: 0.0) == 7.0
    assert pause_s(status(429, 60.5), 1, RULES, lambda: 0.0) is None


def test_repeated_calls_are_a_share_of_all_calls():
    """Some in advance, then a tenth."""
    budget = RetryBudget(RetryRules(share=0.1, spare=2.0))
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    for _ in range(9):
        budget.earn()
    assert not budget.spend()
    budget.earn()
    budget.earn()
    assert budget.spend()
