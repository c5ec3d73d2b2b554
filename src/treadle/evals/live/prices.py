"""Prices of models: given by hand, or read from an endpoint's list of models (OpenRouter has them)."""

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.json import BadJson, read_json
from treadle.core.usage import Usage

MILLION = 1_000_000


class EvalPrice(msgspec.Struct, frozen=True, kw_only=True):
    """What a million tokens cost, in USD."""

    input_usd: float
    output_usd: float

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """Return what so many tokens cost."""
        return (input_tokens * self.input_usd + output_tokens * self.output_usd) / MILLION

    def cost_of(self, usage: Usage | None) -> float | None:
        """Return what a usage costs; None where it is not known."""
        return None if usage is None else self.cost(usage.input_tokens, usage.output_tokens)


def read_price(text: str) -> tuple[str, EvalPrice]:
    """Read `MODEL=INPUT/OUTPUT`, in USD for a million tokens.

    Raises: ConfigError.
    """
    model, _, prices = text.rpartition("=")
    left, _, right = prices.partition("/")
    try:
        price = EvalPrice(input_usd=float(left), output_usd=float(right))
    except ValueError:
        price = None
    if not model or price is None or not all(0 <= usd < math.inf for usd in (price.input_usd, price.output_usd)):
        raise ConfigError(
            f"--price {text!r} is not MODEL=INPUT/OUTPUT",
            param="price",
            hint="USD for a million tokens, such as --price openai/gpt-4.1-mini=0.4/1.6",
        )
    return model, price


def read_listing(body: bytes) -> dict[str, EvalPrice]:
    """Read the prices in a list of models; models without any are left out."""
    try:
        value: Any = read_json(body)
    except BadJson:
        return {}
    rows: Any = cast("dict[str, Any]", value).get("data") if isinstance(value, dict) else None
    found: dict[str, EvalPrice] = {}
    for row in cast("list[Any]", rows) if isinstance(rows, list) else []:
        price = _price(cast("Mapping[str, Any]", row)) if isinstance(row, dict) else None
        if price is not None:
            found[str(cast("Mapping[str, Any]", row)["id"])] = price
    return found


def _price(row: Mapping[str, Any]) -> EvalPrice | None:
    """Read a row's `pricing`: strings of USD for one token."""
    pricing: Any = row.get("pricing")
    if "id" not in row or not isinstance(pricing, dict):
        return None
    told = cast("Mapping[str, Any]", pricing)
    try:
        left, right = float(told["prompt"]), float(told["completion"])
    except (KeyError, TypeError, ValueError):
        return None
    return EvalPrice(input_usd=left * MILLION, output_usd=right * MILLION) if left >= 0 and right >= 0 else None
