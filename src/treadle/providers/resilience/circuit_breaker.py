"""The circuit breaker of one endpoint: closed, open, or half open with a bounded number of trial calls.

It opens when too many of the recent calls failed. After a pause it admits a bounded number of trials, so that fifty
waiting callers do not all hit a failing endpoint at once. A failed trial opens it again for twice as long; a trial
whose response starts closes it, because a complete answer may take minutes. Outcomes of calls from before the last
state change are ignored. Pure: the caller passes the time.
"""

from collections import deque
from typing import Literal

import msgspec

State = Literal["closed", "open", "half_open"]


class BreakerRules(msgspec.Struct, frozen=True, kw_only=True):
    """When it opens (`share` of at least `calls_min` calls within `window_s` failed), and for how long."""

    calls_min: int = 10
    share: float = 0.5
    window_s: float = 30.0
    open_s: float = 10.0
    open_s_max: float = 120.0
    trials_max: int = 1


class Permit(msgspec.Struct, frozen=True, kw_only=True):
    """Permission for one call, to be released once with its outcome. `era` is the state change it was given in."""

    era: int
    is_trial: bool


class Breaker:
    """Counts the outcomes of calls and decides whether another may be made."""

    def __init__(self, rules: BreakerRules | None = None) -> None:
        self._rules = rules or BreakerRules()
        self._outcomes: deque[tuple[float, bool]] = deque()
        self._failures = 0
        self._era = 0
        self._is_open = False
        self._until = 0.0
        self._pause_s = self._rules.open_s
        self._trials = 0
        self.permit: Permit | None = Permit(era=0, is_trial=False)
        """The permit of all calls while the breaker is closed; None otherwise."""

    def state(self, now: float) -> State:
        """Return the state at this time."""
        if not self._is_open:
            return "closed"
        return "open" if now < self._until else "half_open"

    def wait_s(self, now: float) -> float:
        """Return how long no call should be tried; at least a second while trials are running."""
        left = self._until - now
        return 0.0 if not self._is_open else max(left, 1.0)

    def is_shut(self, now: float) -> bool:
        """Return whether no call may be made now."""
        state = self.state(now)
        return state == "open" or (state == "half_open" and self._trials >= self._rules.trials_max)

    def take(self, now: float) -> Permit | None:
        """Return a permit, or None if no call may be made."""
        if self.permit is not None:
            return self.permit
        if self.is_shut(now):
            return None
        self._trials += 1
        return Permit(era=self._era, is_trial=True)

    def begin(self, permit: Permit, now: float) -> Permit:
        """Report that a response has started, and return the permit from now on: a trial closes the breaker."""
        if permit.era != self._era or not (permit.is_trial and self._is_open):
            return permit
        self._change_state(now, is_open=False, pause_s=self._pause_s)
        return Permit(era=self._era, is_trial=True)

    def give_back(self, permit: Permit, now: float, *, ok: bool | None, can_probe: bool = False) -> None:
        """Count the outcome of a call; None if it says nothing about the endpoint, such as a disconnected client.

        With `can_probe` the failure is cheap to detect (a refused connection on this machine): if it opens the
        breaker, the next call may be a trial at once.
        """
        if permit.era != self._era:
            return
        rules = self._rules
        if permit.is_trial and (self._is_open or ok is False):
            self._trials -= 1
            if ok is not None:
                pause_s = 0.0 if can_probe else min(max(self._pause_s * 2, rules.open_s), rules.open_s_max)
                self._change_state(now, is_open=not ok, pause_s=pause_s)
            return
        if ok is None:
            return
        outcomes = self._outcomes
        outcomes.append((now, ok))
        if not ok:
            self._failures += 1
        since = now - rules.window_s
        while outcomes[0][0] <= since:
            self._failures -= not outcomes.popleft()[1]
        if self._failures and len(outcomes) >= rules.calls_min and self._failures >= rules.share * len(outcomes):
            self._change_state(now, is_open=True, pause_s=0.0 if can_probe else rules.open_s)

    def _change_state(self, now: float, *, is_open: bool, pause_s: float) -> None:
        """Open or close the breaker, and reset all counts."""
        self._era += 1
        self.permit = None if is_open else Permit(era=self._era, is_trial=False)
        self._is_open = is_open
        self._until = now + pause_s
        self._pause_s = pause_s
        self._outcomes.clear()
        self._failures = 0
        self._trials = 0
