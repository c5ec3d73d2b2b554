"""The demo tools: harmless, offline and deterministic, so that a first run shows real tool calls without an API key."""

import hashlib
from typing import Annotated, Literal

import msgspec

from treadle.core.errors import ToolError
from treadle.tools.function_tools import tool

Unit = Literal[
    "celsius", "fahrenheit", "kelvin", "metres", "kilometres", "feet", "miles", "grams", "kilograms", "pounds"
]

_SKIES = ("clear sky", "a few clouds", "overcast", "light rain", "showers", "fog", "snow flurries")
_SCALES: dict[str, dict[str, float]] = {
    "length": {"metres": 1.0, "kilometres": 1000.0, "feet": 0.3048, "miles": 1609.344},
    "mass": {"grams": 1.0, "kilograms": 1000.0, "pounds": 453.59237},
}
_OFFSETS = {"celsius": (1.0, 273.15), "fahrenheit": (5 / 9, 459.67 * 5 / 9), "kelvin": (1.0, 0.0)}
"""Temperatures as (factor, offset) to kelvin."""


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """An invented observation."""

    city: str
    temperature_c: int
    sky: str
    wind_kmh: int


@tool(effect="read", parallel=True)
def get_weather(city: Annotated[str, msgspec.Meta(min_length=1, max_length=80)]) -> Weather:
    """Get the current weather in a city.

    Args:
        city: The name of the city, such as Paris.
    """
    seed = hashlib.sha256(city.strip().casefold().encode()).digest()
    return Weather(city=city.strip(), temperature_c=seed[0] % 36 - 5, sky=_SKIES[seed[1] % 7], wind_kmh=seed[2] % 45)


@tool(effect="read", parallel=True)
def add(a: float, b: float) -> float:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    total = a + b
    return int(total) if total.is_integer() else total


@tool(effect="read", parallel=True)
def convert(value: float, from_unit: Unit, to_unit: Unit) -> float:
    """Convert a temperature, a length or a mass from one unit to another.

    Args:
        value: How much, in from_unit.
        from_unit: The unit to convert from.
        to_unit: The unit to convert to.
    """
    if from_unit in _OFFSETS and to_unit in _OFFSETS:
        factor, offset = _OFFSETS[from_unit]
        back, shift = _OFFSETS[to_unit]
        return round((value * factor + offset - shift) / back, 6)
    for scale in _SCALES.values():
        if from_unit in scale and to_unit in scale:
            return round(value * scale[from_unit] / scale[to_unit], 6)
    raise ToolError(f"{from_unit} cannot be converted to {to_unit}.", code="incompatible_units")


DEMO_TOOLS = (get_weather, add, convert)
