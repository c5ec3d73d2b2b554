"""Detects how a Chat provider deviates from the protocol in its calls; each deviation is reported once an answer.

`call_correlation` finds the call of a piece all the same; these codes name the rule that was needed. Nothing here
changes a piece.
"""

from collections.abc import Hashable
from typing import Any

from treadle.protocols.decoding.json_values import LIST, OBJECT

PLACES_MAX = 1_024
"""How many calls are remembered; an answer with more of them is refused anyway."""

Oddity = tuple[str, str]

LEGACY: Oddity = ("legacy_call", "a call came as the legacy function_call")
NOT_LISTED: Oddity = ("calls_not_listed", "tool_calls was one object and not a list")
NOT_TEXT: Oddity = ("arguments_not_text", "the arguments came as JSON and not as a text of it")
NO_INDEX: Oddity = ("index_missing", "a piece of a call has no index")
SPARSE: Oddity = ("index_sparse", "the indexes of calls do not count from zero")
SHARED: Oddity = ("index_shared", "two calls have one index")
RESENT: Oddity = ("name_resent", "the name of a call came more than once")
GROWN: Oddity = ("name_grown", "the name of a call came in pieces that grow")


class Oddities:
    """Checks the calls of one streamed answer; `seen` are their ids and names by index."""

    _reported: frozenset[Oddity] = frozenset()

    def __init__(self) -> None:
        self.seen: dict[Hashable, tuple[str, str]] = {}

    def check(self, calls: Any) -> list[Oddity]:
        """Return what is new and odd about the `tool_calls` of a delta."""
        found: list[Oddity] = [] if isinstance(calls, LIST) else [NOT_LISTED]
        for call in calls if isinstance(calls, LIST) else [calls]:
            if isinstance(call, OBJECT):
                found += self._check_call(call)
        return self._new(found) if found else found

    def check_legacy(self) -> list[Oddity]:
        """Return what is new and odd about a legacy call."""
        return self._new([LEGACY])

    def _check_call(self, call: dict[str, Any]) -> list[Oddity]:
        body: Any = call.get("function") or call.get("custom")
        fields: dict[str, Any] = body if isinstance(body, OBJECT) else {}
        arguments, name, call_id, index = fields.get("arguments"), fields.get("name"), call.get("id"), call.get("index")
        found = [] if arguments is None or isinstance(arguments, str) else [NOT_TEXT]
        name, call_id = name if isinstance(name, str) else "", call_id if isinstance(call_id, str) else ""
        if not isinstance(index, int | str):
            return [*found, NO_INDEX]
        before = self.seen.get(index)
        if before is None:
            if len(self.seen) < PLACES_MAX:
                found += [SPARSE] if index != len(self.seen) else []
                self.seen[index] = (call_id, name)
            return found
        if name:
            found += self._named_again(before, (call_id, name))
            self.seen[index] = (call_id or before[0], name)
        return found

    def _named_again(self, before: tuple[str, str], now: tuple[str, str]) -> list[Oddity]:
        """Return what a second name at one index means."""
        is_other_id = bool(before[0] and now[0] and before[0] != now[0])
        if not before[1]:
            return []
        if is_other_id or not now[1].startswith(before[1]):
            return [SHARED]
        return [RESENT] if now[1] == before[1] else [GROWN]

    def _new(self, found: list[Oddity]) -> list[Oddity]:
        fresh = [oddity for oddity in dict.fromkeys(found) if oddity not in self._reported]
        self._reported = self._reported.union(fresh)
        return fresh
