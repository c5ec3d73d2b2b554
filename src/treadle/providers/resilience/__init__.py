"""Circuit breaker, retries and limits on concurrent calls for each endpoint."""

from treadle.providers.resilience.circuit_breaker import BreakerRules
from treadle.providers.resilience.endpoint_guard_state import EndpointGuard, EndpointHealth, GuardRules
from treadle.providers.resilience.resilient_model import EndpointCandidate, GuardedModel
from treadle.providers.resilience.retry_backoff import RetryRules

__all__ = [
    "BreakerRules",
    "EndpointCandidate",
    "EndpointGuard",
    "EndpointHealth",
    "GuardRules",
    "GuardedModel",
    "RetryRules",
]
