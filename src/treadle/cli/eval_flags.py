"""Parsers for the flag values of `treadle eval`: lists and bounded numbers."""

import math
from collections.abc import Mapping

LIVE_VARIABLE = "TREADLE_EVAL_LIVE"


def words(text: str) -> list[str]:
    """Read a list with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def positive(text: str) -> int:
    """Read a whole number above zero. Raises: ValueError."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def amount(text: str) -> float:
    """Read an amount of money, zero or more. Raises: ValueError."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise ValueError(text)
    return number


def share(text: str) -> float:
    """Read a rate from 0 to 1. Raises: ValueError."""
    number = float(text)
    if not 0 <= number <= 1:
        raise ValueError(text)
    return number


def is_live(env: Mapping[str, str]) -> bool:
    """Return whether the environment lets real models be asked."""
    return env.get(LIVE_VARIABLE, "") not in ("", "0", "false")
