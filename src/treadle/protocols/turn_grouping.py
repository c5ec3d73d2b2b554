"""The history regrouped as Chat wants it: one assistant message for each turn, then its results in call order.

Canonical items hold calls and results in any order; here every call gets exactly one result, directly behind its
turn. What has no partner is repaired and noted, because an upstream refuses the whole request otherwise. Readers of
histories find here which of the calls so far a result answers.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from treadle.core.items import (
    AnyItem,
    AnyPart,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ResultItem,
    Role,
    TextPart,
    text_message,
    text_of,
    text_result,
)
from treadle.protocols.translation_notes import HISTORY, Notes

INTERRUPTED = '{"error":{"code":"interrupted","message":"The call was interrupted; its outcome is not known."}}'
OPENING = "(The conversation begins here.)"
"""What a user says first where a protocol wants that and nobody did."""


class GroupedTurn(msgspec.Struct, kw_only=True):
    """What the model did between two inputs: thoughts, messages, calls, and a result for each call."""

    reasoning: list[ReasoningItem] = []
    messages: list[MessageItem] = []
    calls: list[CallItem] = []
    results: list[ResultItem] = []


Step = GroupedTurn | MessageItem | OpaqueItem


class TurnText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A message of one plain text, as most APIs spell it. Most of any history is such messages."""

    role: Role
    content: Annotated[str, msgspec.Meta(min_length=1)]


def read_plain_turns(turns: Iterable[TurnText]) -> tuple[AnyItem, ...]:
    """Return plain turns as items."""
    return tuple([MessageItem(role=turn.role, content=(TextPart(text=turn.content),)) for turn in turns])


def plain_turns(items: Sequence[AnyItem]) -> list[TurnText] | None:
    """Return the items as plain turns if each is one text without anything else; None for any others."""
    turns: list[TurnText] = []
    for item in items:
        # Not by `plain_text`: a call for each would cost as much as all the rest.
        if type(item) is not MessageItem or len(item.content) != 1 or item.blobs:
            return None
        part = item.content[0]
        if type(part) is not TextPart or part.extra is not None or part.annotations is not None:
            return None
        if item.extra is not None or item.name is not None or item.phase is not None:
            return None
        turns.append(TurnText(item.role, part.text))
    return turns


def plain_text(item: MessageItem) -> str | None:
    """Return the text of a message that is one plain text and nothing else; None for any other."""
    if len(item.content) != 1 or item.blobs:
        return None
    part = item.content[0]
    if type(part) is not TextPart or part.extra is not None or part.annotations is not None:
        return None
    return part.text if item.extra is item.name is item.phase is None else None


def partners(items: Sequence[AnyItem]) -> tuple[set[str], dict[str, list[ResultItem]]]:
    """Return the ids of all calls, and the results by the id of their call, the first of them last."""
    called: set[str] = set()
    results: dict[str, list[ResultItem]] = {}
    for item in reversed(items):
        if type(item) is CallItem:
            called.add(item.call_id)
        elif type(item) is ResultItem:
            results.setdefault(item.call_id, []).append(item)
    return called, results


def regroup(items: Sequence[AnyItem], notes: Notes) -> list[Step]:
    """Return the history as turns, and the messages of everybody else between them."""
    return _Grouper(items, notes).run()


class _Grouper:
    def __init__(self, items: Sequence[AnyItem], notes: Notes) -> None:
        self._items = items
        self._notes = notes
        self._steps: list[Step] = []
        self._called, self._results = partners(items)

    def run(self) -> list[Step]:
        """Put each item where it belongs; a call has one result, so more of them are left out."""
        turn, is_answered = GroupedTurn(), False
        for item in self._items:
            # By the very type: a match looks at every class in turn, and histories are long.
            if type(item) is CallItem:
                if is_answered:
                    turn, is_answered = self._close(turn), False
                turn.calls.append(item)
            elif type(item) is ResultItem:
                if item.call_id in self._called:
                    is_answered = True
                else:
                    orphan = self._orphan(item)
                    turn, is_answered = self._close(turn), False
                    self._steps.append(orphan)
            elif type(item) is ReasoningItem or (type(item) is MessageItem and item.role == "assistant"):
                # A new message begins a new turn; text behind a call is still of the call's.
                if is_answered or (turn.messages and not turn.calls):
                    turn, is_answered = self._close(turn), False
                if type(item) is MessageItem:
                    turn.messages.append(item)
                elif type(item) is ReasoningItem:
                    turn.reasoning.append(item)
            elif type(item) is MessageItem or type(item) is OpaqueItem:
                turn, is_answered = self._close(turn), False
                self._steps.append(item)
            else:
                self._notes.add("reference_dropped", "dropped", "a reference to an item that is not stored")
        self._close(turn)
        left = sum(len(waiting) for call_id, waiting in self._results.items() if call_id in self._called)
        if left:
            self._notes.add("extra_result", "dropped", "a second result of the same call", count=left)
        return self._steps

    def _close(self, turn: GroupedTurn) -> GroupedTurn:
        """Close a turn if there is anything in it, and return one that is empty."""
        if turn.calls:
            turn.results = [self._result_of(call) for call in turn.calls]
        elif not turn.messages:
            if not turn.reasoning:
                return turn
            lost = len(turn.reasoning)
            self._notes.add("reasoning_dropped", "dropped", "reasoning that nothing followed", count=lost)
            return GroupedTurn()
        self._steps.append(turn)
        return GroupedTurn()

    def _orphan(self, item: ResultItem) -> MessageItem:
        self._notes.add("orphan_result", "repaired", "a result without its call became a user's text", HISTORY)
        name = f" of {item.name}" if item.name else ""
        return text_message("user", f"[result{name} without its call] {result_text(item.output)}")

    def _result_of(self, call: CallItem) -> ResultItem:
        waiting = self._results.get(call.call_id)
        if waiting:
            return waiting.pop()
        self._notes.add("orphan_call", "repaired", "a call without a result was closed as interrupted", HISTORY)
        return text_result(call, INTERRUPTED, is_error=True, rc="interrupted")


def result_text(parts: tuple[AnyPart, ...]) -> str:
    """Return the texts of a result as one, each on lines of its own: tools give lists as so many texts."""
    if len(parts) == 1:
        return text_of(parts)
    return "\n".join(part.text for part in parts if isinstance(part, TextPart) and part.text)


def turn_text(turn: GroupedTurn) -> str:
    """Return what the model said in a turn; separate messages stay separate paragraphs."""
    texts = [text_of(message.content) for message in turn.messages]
    return "\n\n".join(text for text in texts if text)


def is_continued(items: Sequence[AnyItem]) -> bool:
    """Return whether the model goes on behind results of Treadle's own tools, so that no choice binds it any more."""
    last = items[-1] if items else None
    if not isinstance(last, ResultItem):
        return False
    calls = (item for item in reversed(items) if type(item) is CallItem)
    return any(call.side == "server" for call in calls if call.call_id == last.call_id)


class OpenCalls:
    """Calls that still want a result, in the order in which they were made; each can be taken once.

    Finding and closing one costs the same however many are open, since a request may hold thousands. Hardly any
    result comes without the id of its call, so the other ways to find one are laid out when first used.
    """

    def __init__(self, calls: Iterable[CallItem] = ()) -> None:
        self._made = 0
        self._open: dict[int, CallItem] = {}
        self._by_id: dict[str, int] = {}
        self._twice: dict[str, deque[int]] = {}
        self._by_age: deque[int] | None = None
        self._by_name: dict[str, deque[int]] = {}
        for call in calls:
            self.add(call)

    def add(self, call: CallItem) -> None:
        """Add a call as the youngest; it is known by its own id and by its upstream's."""
        place, self._made = self._made, self._made + 1
        self._open[place] = call
        self._know(call.call_id, place)
        if call.upstream_id and call.upstream_id != call.call_id:
            self._know(call.upstream_id, place)
        if self._by_age is not None:
            self._by_age.append(place)
            self._by_name.setdefault(call.name, deque()).append(place)

    def take_id(self, call_id: str) -> CallItem | None:
        """Close the oldest call of that id and return it."""
        call = self._open.pop(self._by_id.get(call_id, -1), None)
        return self._take(self._twice.get(call_id)) if call is None else call

    def take_name(self, name: str) -> CallItem | None:
        """Close the oldest call of that name and return it."""
        self._lay_out()
        return self._take(self._by_name.get(name))

    def take_oldest(self) -> CallItem | None:
        """Close the oldest call and return it."""
        return self._take(self._lay_out())

    def _know(self, call_id: str, place: int) -> None:
        if self._by_id.setdefault(call_id, place) != place:
            self._twice.setdefault(call_id, deque()).append(place)

    def _lay_out(self) -> deque[int]:
        if self._by_age is None:
            self._by_age = deque(self._open)
            for place, call in self._open.items():
                self._by_name.setdefault(call.name, deque()).append(place)
        return self._by_age

    def _take(self, places: deque[int] | None) -> CallItem | None:
        # A call stands in several queues and leaves the others when they reach it, so each place is passed once.
        while places:
            call = self._open.pop(places.popleft(), None)
            if call is not None:
                return call
        return None


def open_calls(items: Iterable[AnyItem]) -> OpenCalls:
    """Return the calls among items that no result of theirs names.

    Hardly any result comes without the id of its call, so nobody need keep count before there is one.
    """
    calls = OpenCalls()
    for item in items:
        if type(item) is CallItem:
            calls.add(item)
        elif type(item) is ResultItem:
            calls.take_id(item.call_id)
    return calls
