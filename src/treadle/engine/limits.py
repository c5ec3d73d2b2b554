"""Counts the rounds and calls of a run against its limits, and words the messages for the model.

At a limit every call still gets a result, the last one names the limit, and the model is called once more without
tools. `run_state` decides that; this module only counts.
"""

from typing import Any, Literal, cast

import msgspec

from treadle.core.items import CallItem, TextPart
from treadle.core.json import BadJson, canonical_json, read_json, write_json
from treadle.core.tool_definitions import Outcome, failure


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


class RunBudget(msgspec.Struct):
    """Counts the rounds and calls of one run, and records the first limit that is reached.

    `rounds` are model calls that may call tools, counted by the caller. `max_tool_calls` is the bound that the request
    sets, if it is lower than the limit.
    """

    limits: Limits
    max_tool_calls: int | None = None
    rounds: int = 0
    calls: int = 0
    limit: str | None = None
    last: tuple[str, bytes] | None = None
    repeats: int = 0

    def admit(self, call: CallItem) -> bool:
        """Count one server call; False if a limit prevents it."""
        name, most = "max_total_tool_calls", self.limits.max_total_tool_calls
        if self.max_tool_calls is not None and self.max_tool_calls < most:
            name, most = "max_tool_calls", self.max_tool_calls
        if self.calls >= most:
            self.reach(name)
            return False
        this = (call.name, _canonical_arguments(call.arguments))
        self.repeats = self.repeats + 1 if this == self.last else 1
        self.last = this
        if self.repeats > self.limits.identical_repeats_max:
            self.reach("identical_repeats")
            return False
        self.calls += 1
        if self.repeats == self.limits.identical_repeats_max:
            self.reach("identical_repeats")
        return True

    def end_round(self) -> None:
        """Reach the limit if the round that ended was the last that may call tools."""
        if self.rounds >= self.limits.max_iterations:
            self.reach("max_iterations")

    def reach(self, limit: str) -> None:
        """Record a limit as reached; the first one counts."""
        self.limit = self.limit or limit

    def message(self) -> str:
        """Return the message for the model about the limit reached."""
        return f"{self.reason()} Stopping tool loop."

    def reason(self) -> str:
        """Return which limit was reached, as a sentence."""
        match self.limit:
            case "max_iterations":
                return f"Tool call limit reached ({self.limits.max_iterations})."
            case "identical_repeats":
                return f"The same call was made {self.limits.identical_repeats_max} times in a row."
            case "wall_time":
                return "The time for this run is used up."
            case _:
                is_wanted = self.limit == "max_tool_calls"
                count = self.max_tool_calls if is_wanted else self.limits.max_total_tool_calls
                return f"Tool call limit reached ({count})."


def refuse(words: str) -> Outcome:
    """Return the outcome of a call that a limit prevents."""
    return failure("limit_reached", f"Not run. {words}")


def mark_limit(outcome: Outcome, words: str) -> Outcome:
    """Add the limit to the last result: as fields if it is a JSON object, else as a line of text."""
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
