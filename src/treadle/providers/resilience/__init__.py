"""Circuit breaker, retries and limits on concurrent calls for each endpoint."""

from treadle.providers.resilience.circuit_breaker import BreakerRules
from treadle.providers.resilience.endpoint_guard_state import Health, Meter, Ward, WardRules
from treadle.providers.resilience.resilient_model import Bed, GuardedModel
from treadle.providers.resilience.retry_backoff import RetryRules

__all__ = ["Bed", "BreakerRules", "GuardedModel", "Health", "Meter", "RetryRules", "Ward", "WardRules"]
