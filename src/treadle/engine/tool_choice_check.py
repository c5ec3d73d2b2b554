"""Enforces a request's tool choice over the model calls of a run.

Providers may ignore a tool choice or support only some, so each reply is checked here.
"""

from collections.abc import Collection

from treadle.core.events import Stop
from treadle.core.request import Note
from treadle.core.tool_definitions import AUTO, NONE, Outcome, ToolChoice, failure, listed_names

NAME_CHARS_SHOWN = 128
"""Names come from models and may be megabytes long."""


class ToolChoiceCheck:
    """The tool choice of one run; `current` is the choice of the model call in progress."""

    def __init__(self, wanted: ToolChoice) -> None:
        self._wanted = wanted
        self._is_met = self._was_met = False
        self.current = wanted

    def next(self, *, is_final: bool) -> ToolChoice:
        """Return the choice of the next model call.

        A forced choice applies until a call has satisfied it: any longer, and the model would call tools forever.
        """
        self._was_met = self._is_met
        is_bound = not self._is_met or self._wanted.mode in ("auto", "none")
        self.current = NONE if is_final else self._wanted if is_bound else AUTO
        return self.current

    def repeat(self) -> ToolChoice:
        """Return the choice of the current model call, which is made again: its calls no longer count."""
        self._is_met = self._was_met
        return self.current

    def permits(self, name: str) -> bool:
        """Return whether a tool of this name may be called now."""
        choice = self.current
        if choice.mode == "none" or (choice.mode == "named" and name != choice.name):
            return False
        return choice.allowed is None or name in choice.allowed

    def meet(self, *, is_permitted: bool = True) -> None:
        """Record a call."""
        self._is_met = self._is_met or is_permitted

    def violation_note(self, stop: Stop) -> Note | None:
        """Return a note if the model call that ended had to call a tool and did not."""
        choice = self.current
        if choice.mode in ("auto", "none") or self._is_met or stop in ("length", "filtered"):
            return None
        wanted = f"the tool {choice.name!r}" if choice.mode == "named" else "a tool"
        message = f"{wanted} had to be called, and the model did not call it"
        return Note(code="tool_choice_ignored", action="coerced", message=message, field="tool_choice")

    def refusal(self, name: str, offered: Collection[str]) -> Outcome:
        """Return the outcome of a call of a tool that is not offered, or that the choice forbids."""
        shown = name[:NAME_CHARS_SHOWN]
        if name not in offered:
            known = f" Offered: {listed_names(name, offered)}." if offered else ""
            return failure("unknown_tool", f"No tool named {shown!r} is offered.{known}")
        only = self.current.name if self.current.mode == "named" else None
        allowed = f"only {only} can be called now" if only else "no tool can be called now"
        return failure("denied", f"Not run: {shown} is offered, but {allowed}.")
