"""The history regrouped as Chat wants it: one assistant message for each turn, then its results in call order.

Canonical items hold calls and results in any order; here every call gets exactly one result, directly behind its
turn. What has no partner is repaired and noted, because an upstream refuses the whole request otherwise. Readers of
histories find here which of the calls so far a result answers.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from treadle.canon.items import (
    AnyItem,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ReferenceItem,
    ResultItem,
    text_message,
    text_of,
    text_result,
)
from treadle.wire.notes import Notes

INTERRUPTED = '{"error":{"code":"interrupted","message":"The call was interrupted; its outcome is not known."}}'


class Turn(msgspec.Struct, kw_only=True):
    """What the model did between two inputs: thoughts, messages, calls, and a result for each call."""

    reasoning: list[ReasoningItem] = []
    messages: list[MessageItem] = []
    calls: list[CallItem] = []
    results: list[ResultItem] = []

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to say yet."""
        return not (self.messages or self.calls)


Step = Turn | MessageItem | OpaqueItem


def regroup(items: Sequence[AnyItem], notes: Notes) -> list[Step]:
    """Return the history as turns, and the messages of everybody else between them."""
    grouper = _Grouper(items, notes)
    for item in items:
        grouper.add(item)
    grouper.end()
    return grouper.steps


class _Grouper:
    def __init__(self, items: Sequence[AnyItem], notes: Notes) -> None:
        self.steps: list[Step] = []
        self._notes = notes
        self._turn = Turn()
        self._answered = False
        self._results: dict[str, deque[ResultItem]] = {}
        self._called = {item.call_id for item in items if isinstance(item, CallItem)}
        for item in items:
            if isinstance(item, ResultItem):
                self._results.setdefault(item.call_id, deque()).append(item)

    def add(self, item: AnyItem) -> None:
        """Put one item where it belongs."""
        match item:
            case MessageItem():
                self._add_message(item)
            case ReasoningItem():
                if self._answered or self._is_spoken:
                    self.end_turn()
                self._turn.reasoning.append(item)
            case CallItem():
                if self._answered:
                    self.end_turn()
                self._turn.calls.append(item)
            case ResultItem():
                self._add_result(item)
            case OpaqueItem():
                self.end_turn()
                self.steps.append(item)
            case ReferenceItem():
                self._notes.add("reference_dropped", "dropped", "a reference to an item that is not stored")

    def end(self) -> None:
        """Close the last turn; a call has one result, so more of them are left out."""
        self.end_turn()
        left = sum(len(waiting) for call_id, waiting in self._results.items() if call_id in self._called)
        if left:
            self._notes.add("extra_result", "dropped", "a second result of the same call", count=left)

    def end_turn(self) -> None:
        """Close the turn that is being put together."""
        turn, self._turn, self._answered = self._turn, Turn(), False
        if turn.is_empty:
            if turn.reasoning:
                self._notes.add(
                    "reasoning_dropped", "dropped", "reasoning that nothing followed", count=len(turn.reasoning)
                )
            return
        turn.results = [self._result_of(call) for call in turn.calls]
        self.steps.append(turn)

    @property
    def _is_spoken(self) -> bool:
        """Tell whether what follows is a new message: text behind a call is still of the call's turn."""
        return bool(self._turn.messages) and not self._turn.calls

    def _add_message(self, item: MessageItem) -> None:
        if item.role != "assistant":
            self._add_input(item)
            return
        if self._answered or self._is_spoken:
            self.end_turn()
        self._turn.messages.append(item)

    def _add_input(self, item: MessageItem) -> None:
        self.end_turn()
        self.steps.append(item)

    def _add_result(self, item: ResultItem) -> None:
        if item.call_id in self._called:
            self._answered = True
            return
        self._notes.add("orphan_result", "repaired", "a result without its call became a user's text")
        name = f" of {item.name}" if item.name else ""
        self._add_input(text_message("user", f"[result{name} without its call] {text_of(item.output)}"))

    def _result_of(self, call: CallItem) -> ResultItem:
        waiting = self._results.get(call.call_id)
        if waiting:
            return waiting.popleft()
        self._notes.add("orphan_call", "repaired", "a call without a result was closed as interrupted")
        return text_result(call, INTERRUPTED, is_error=True, rc="interrupted")


def turn_text(turn: Turn) -> str:
    """Return what the model said in a turn; separate messages stay separate paragraphs."""
    texts = [text_of(message.content) for message in turn.messages]
    return "\n\n".join(text for text in texts if text)


def is_continued(items: Sequence[AnyItem]) -> bool:
    """Tell whether the model goes on behind results of Treadle's own tools, so that no choice binds it any more."""
    last = items[-1] if items else None
    if not isinstance(last, ResultItem):
        return False
    calls = (item for item in reversed(items) if isinstance(item, CallItem))
    return any(call.side == "server" for call in calls if call.call_id == last.call_id)


class OpenCalls:
    """Calls that still want a result, in the order in which they were made; each can be taken once.

    Finding and closing one costs the same however many are open, since a request may hold thousands.
    """

    def __init__(self, calls: Iterable[CallItem] = ()) -> None:
        self._made = 0
        self._open: dict[int, CallItem] = {}
        self._by_age: deque[int] = deque()
        self._by_id: dict[str, deque[int]] = {}
        self._by_name: dict[str, deque[int]] = {}
        for call in calls:
            self.add(call)

    def add(self, call: CallItem) -> None:
        """Add a call as the youngest; it is known by its own id and by its upstream's."""
        place, self._made = self._made, self._made + 1
        self._open[place] = call
        self._by_age.append(place)
        self._by_name.setdefault(call.name, deque()).append(place)
        for call_id in {call.call_id, call.upstream_id or call.call_id}:
            self._by_id.setdefault(call_id, deque()).append(place)

    def take_id(self, call_id: str) -> CallItem | None:
        """Close the oldest call of that id and return it."""
        return self._take(self._by_id.get(call_id))

    def take_name(self, name: str) -> CallItem | None:
        """Close the oldest call of that name and return it."""
        return self._take(self._by_name.get(name))

    def take_oldest(self) -> CallItem | None:
        """Close the oldest call and return it."""
        return self._take(self._by_age)

    def _take(self, places: deque[int] | None) -> CallItem | None:
        # A call stands in several queues and leaves the others when they reach it, so each place is passed once.
        while places:
            call = self._open.pop(places.popleft(), None)
            if call is not None:
                return call
        return None
