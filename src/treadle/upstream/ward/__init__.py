"""What keeps a sick endpoint from being asked, and a well one from being asked too often: breaker, budget, places.

No protocol, no socket.
"""

from treadle.upstream.ward.breaker import BreakerRules
from treadle.upstream.ward.model import Bed, GuardedModel
from treadle.upstream.ward.retry import RetryRules
from treadle.upstream.ward.state import Health, Meter, Ward, WardRules

__all__ = ["Bed", "BreakerRules", "GuardedModel", "Health", "Meter", "RetryRules", "Ward", "WardRules"]
