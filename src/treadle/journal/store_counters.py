"""What a store counts of itself, for metrics and for whoever watches whether it is well."""

from collections import Counter

import msgspec


class StoreStats(msgspec.Struct, kw_only=True):
    """Errors by code since it was opened, how its connections are used now, and how often its listener began anew."""

    errors: Counter[str] = msgspec.field(default_factory=Counter[str])
    pool_in_use: int = 0
    pool_waiting: int = 0
    reconnects: int = 0
