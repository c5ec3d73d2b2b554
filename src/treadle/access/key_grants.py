"""Validates the grant of a key before the key is made."""

import math

from treadle.access.client_identity import fits
from treadle.core.errors import ProtocolError
from treadle.journal.keys_interface import KeyBudget, KeyGrant, KeyRates
from treadle.protocols.protocol_registry import PROTOCOL_NAMES

APIS = (*PROTOCOL_NAMES, "treadle", "mcp")
PATTERNS_MAX = 100
PATTERN_CHARS_MAX = 200


def check_grant(grant: KeyGrant) -> None:
    """Validate a grant.

    Raises: ProtocolError, naming the field.
    """
    for field in ("apis", "models", "tools"):
        _check_patterns(field, getattr(grant, field))
    for pattern in grant.apis:
        if not any(fits(api, (pattern,)) for api in APIS):
            raise ProtocolError(f"There is no API {pattern[:100]!r}; there are {', '.join(APIS)}.", param="apis")
    for name in KeyRates.__struct_fields__:
        if getattr(grant.rates, name) < 0:
            raise ProtocolError(f"{name} is a whole number from 0, which sets no bound.", param=f"rates.{name}")
    _check_budget(grant.budget)


def _check_patterns(field: str, patterns: tuple[str, ...]) -> None:
    if len(patterns) > PATTERNS_MAX:
        raise ProtocolError(f"{field} has at most {PATTERNS_MAX} patterns.", param=field)
    if field != "tools" and not patterns:
        raise ProtocolError(f"{field} is empty: the key could not be used. All of them are '*'.", param=field)
    for pattern in patterns:
        if not pattern or len(pattern) > PATTERN_CHARS_MAX or not pattern.isprintable():
            raise ProtocolError(f"A pattern has 1 to {PATTERN_CHARS_MAX} printable characters.", param=field)


def _check_budget(budget: KeyBudget) -> None:
    if budget.tokens < 0:
        raise ProtocolError("tokens is a whole number from 0, which sets no bound.", param="budget.tokens")
    if not (budget.usd >= 0 and math.isfinite(budget.usd)):
        raise ProtocolError("usd is an amount from 0, which sets no bound.", param="budget.usd")
