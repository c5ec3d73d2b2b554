"""Limits of a run: absolute, counted here and nowhere else.

At a limit the run still ends well: every call gets a result, the last of them says which limit it was, and the
model is asked once more without tools. This module only counts and words; `turn` decides.
"""

from typing import Any, Literal, cast

import msgspec

from treadle.canon.items import CallItem, TextPart
from treadle.canon.json import BadJson, canonical_json, read_json, write_json
from treadle.canon.tools import Outcome, failure


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may use. The defaults are the gateway's."""

    max_iterations: int = 8
    max_total_tool_calls: int = 32
    identical_repeats_max: int = 3
    wall_s: float | None = 600.0
    final_answer_s: float = 60.0
    strict_unknown_tool: bool = False
    recovered_effects: Literal["ask", "allow", "deny"] = "ask"
    taint: Literal["ask", "off"] = "ask"
    approvals: Literal["wait", "defer"] = "wait"


GATEWAY_LIMITS = Limits()


class Budget:
    """Counts the rounds and calls of one run and says when a limit is reached.

    `rounds` are model calls that may call tools: whoever makes one counts it.
    """

    def __init__(self, limits: Limits, max_tool_calls: int | None = None) -> None:
        self._limits = limits
        self._calls_name = "max_total_tool_calls"
        self._calls_max = limits.max_total_tool_calls
        if max_tool_calls is not None and max_tool_calls < self._calls_max:
            self._calls_name, self._calls_max = "max_tool_calls", max_tool_calls
        self._signature: tuple[str, bytes] | None = None
        self._repeats = 0
        self.rounds = 0
        self.calls = 0
        self.limit: str | None = None

    def admit(self, call: CallItem) -> bool:
        """Count one server call; False if a limit keeps it from running."""
        if self.calls >= self._calls_max:
            self.reach(self._calls_name)
            return False
        self._count_repeat(call)
        if self._repeats > self._limits.identical_repeats_max:
            self.reach("identical_repeats")
            return False
        self.calls += 1
        if self._repeats == self._limits.identical_repeats_max:
            self.reach("identical_repeats")
        return True

    def end_round(self) -> None:
        """Note the limit if the round just ended was the last that may call tools."""
        if self.rounds >= self._limits.max_iterations:
            self.reach("max_iterations")

    def reach(self, limit: str) -> None:
        """Remember the first limit reached."""
        self.limit = self.limit or limit

    def words(self) -> str:
        """Say for the model which limit was reached."""
        match self.limit:
            case "max_iterations":
                return f"Tool call limit reached ({self._limits.max_iterations}). Stopping tool loop."
            case "identical_repeats":
                count = self._limits.identical_repeats_max
                return f"The same call was made {count} times in a row. Stopping tool loop."
            case "wall_time":
                return "The time for this run is used up. Stopping tool loop."
            case _:
                return f"Tool call limit reached ({self._calls_max}). Stopping tool loop."

    def _count_repeat(self, call: CallItem) -> None:
        signature = (call.name, _canonical_arguments(call.arguments))
        self._repeats = self._repeats + 1 if signature == self._signature else 1
        self._signature = signature


def refuse(words: str) -> Outcome:
    """Return what a call gets that a limit keeps from running."""
    return failure("limit_reached", f"Not run. {words}")


def mark_limit(outcome: Outcome, words: str) -> Outcome:
    """Add the limit to the last result, in S3's fields where the result is a JSON object, else as a line."""
    line = f"[limit_reached] {words}"
    if outcome.parts:
        return msgspec.structs.replace(outcome, parts=(*outcome.parts, TextPart(text=line)))
    try:
        value: Any = read_json(outcome.text)
    except BadJson:
        value = None
    if not isinstance(value, dict):
        return msgspec.structs.replace(outcome, text=f"{outcome.text}\n\n{line}")
    fields = {**cast("dict[str, Any]", value), "limit_reached": True, "limit_message": words}
    return msgspec.structs.replace(outcome, text=write_json(fields).decode())


def _canonical_arguments(arguments: str) -> bytes:
    try:
        return canonical_json(read_json(arguments)) if arguments.strip() else b"{}"
    except BadJson:
        return arguments.encode("utf-8", "surrogatepass")
