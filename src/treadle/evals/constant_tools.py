"""Tools without a world: they always give the same for the same arguments, or always fail."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from treadle.core.errors import ToolFailed
from treadle.core.tool_definitions import ToolPolicy

_WEATHER = {"paris": ("cloudy", 21), "tokyo": ("clear", 26), "reykjavik": ("snow", -3)}
SLOW_TIMEOUT_S = 0.05
READ = ToolPolicy(effect="read", parallel=True)
WRITE = ToolPolicy(effect="write")

Named = dict[str, tuple[Callable[..., Any], ToolPolicy]]
"""Functions by the name they are called by, with how they may run."""


def plain_tools() -> Named:
    """Return the tools that need no world."""
    return {
        "get_weather": (_get_weather, READ),
        "add": (_add, READ),
        "fail": (_fail, WRITE),
        "slow": (_slow, ToolPolicy(effect="read", timeout_s=SLOW_TIMEOUT_S)),
    }


def _get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> Any:
    """Tell the weather in a city."""
    if city.casefold() not in _WEATHER:
        raise ToolFailed(f"There is no weather for {city!r}.", code="unknown_city")
    sky, celsius = _WEATHER[city.casefold()]
    degrees = celsius if unit == "celsius" else celsius * 9 / 5 + 32
    return {"city": city, "sky": sky, "temperature": degrees, "unit": unit}


def _add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def _fail() -> str:
    """Fail, always."""
    raise RuntimeError("this tool always fails")


async def _slow() -> str:
    """Take longer than anybody waits."""
    await asyncio.Event().wait()
    return "never"
