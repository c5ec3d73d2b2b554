"""How often a tool may be called by one key: counted over the last minute, in this process."""

from collections import deque

from treadle.core.errors import ToolError

WINDOW_S = 60.0
PLACES_MAX = 10_000
"""Pairs of tool and key that are counted at once; the one that was quiet longest is forgotten first."""


class CallRates:
    """The calls of the last minute, by tool and key."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], deque[float]] = {}

    def take(self, tool: str, per_min: int, key_id: str, now: float) -> None:
        """Count a call; a rate of 0 is without bound.

        Raises: ToolError, when there were too many; such a call is not counted.
        """
        if per_min <= 0:
            return
        calls = self._calls.pop((tool, key_id), None) or deque[float]()
        self._calls[tool, key_id] = calls
        while len(self._calls) > PLACES_MAX:
            del self._calls[next(iter(self._calls))]
        while calls and now - calls[0] >= WINDOW_S:
            calls.popleft()
        if len(calls) >= per_min:
            wait_s = WINDOW_S - (now - calls[0])
            raise ToolError(
                f"{tool} may be called {per_min} times a minute. It was not run; it can be again in {wait_s:.0f} s.",
                code="rate_limited",
            )
        calls.append(now)
