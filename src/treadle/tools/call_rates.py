"""Rate limit of tool calls: calls per minute for each tool and key, counted over a sliding window in this process."""

from collections import deque

from treadle.core.errors import ToolError

WINDOW_S = 60.0
WINDOWS_MAX = 10_000
"""Windows held at once, one for each tool and key; the least recently used one is dropped first."""


class CallRates:
    """The times of the last minute's calls, by tool and key."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], deque[float]] = {}

    def take(self, tool: str, per_min: int, key_id: str, now: float) -> None:
        """Count a call; a rate of 0 means unlimited.

        Raises: ToolError, over the limit; a refused call is not counted.
        """
        if per_min <= 0:
            return
        # Removed and inserted again: dict order is then the order of last use.
        calls = self._calls.pop((tool, key_id), None) or deque[float]()
        self._calls[tool, key_id] = calls
        while len(self._calls) > WINDOWS_MAX:
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
