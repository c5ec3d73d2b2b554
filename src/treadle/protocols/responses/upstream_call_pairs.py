"""Pairs calls and results: a history with every call answered once, directly behind the calls it stands among.

Canonical items hold calls and results in any order, and clients lose some; an upstream refuses a call without its
result and a result without its call. What has no partner is repaired and noted.
"""

from collections.abc import Sequence

import msgspec

from treadle.core.items import (
    AnyItem,
    CallItem,
    MessageItem,
    ResultItem,
    TextPart,
    text_result,
)
from treadle.protocols.translation_notes import HISTORY, Notes
from treadle.protocols.turn_grouping import INTERRUPTED, partners


def paired(items: Sequence[AnyItem], notes: Notes) -> list[AnyItem]:
    """Return the items with each call's result behind its turn, in call order."""
    pairer = _Pairer(items, notes)
    for item in items:
        pairer.add(item)
    pairer.end()
    return pairer.items


class _Pairer:
    def __init__(self, items: Sequence[AnyItem], notes: Notes) -> None:
        self.items: list[AnyItem] = []
        self._notes = notes
        self._open: list[tuple[CallItem, str]] = []
        self._called, self._results = partners(items)
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}

    def add(self, item: AnyItem) -> None:
        """Put one item where it belongs."""
        if type(item) is CallItem:
            unique = self._unique(item.call_id)
            call = item if unique == item.call_id else msgspec.structs.replace(item, call_id=unique)
            self._open.append((call, item.call_id))
            self.items.append(call)
        elif type(item) is ResultItem:
            self._add_result(item)
        else:
            # Messages and reasoning of the model beside its calls belong to the same turn.
            if type(item) is MessageItem and item.role != "assistant":
                self._answer()
            self.items.append(item)

    def end(self) -> None:
        """Answer what is still open; a call has one result, so more of them are left out."""
        self._answer()
        left = sum(len(waiting) for call_id, waiting in self._results.items() if call_id in self._called)
        if left:
            self._notes.add("extra_result", "dropped", "a second result of the same call", count=left)

    def _unique(self, call_id: str) -> str:
        number, unique = self._numbers.get(call_id, 1), call_id
        while unique in self._used:
            number += 1
            unique = f"{call_id}_{number}"
        if unique != call_id:
            # The next one of this id continues from here instead of trying every number again.
            self._numbers[call_id] = number
            self._notes.add(
                "duplicate_call_id", "repaired", "a call with the id of an earlier one got its own", HISTORY
            )
        self._used.add(unique)
        return unique

    def _add_result(self, item: ResultItem) -> None:
        self._answer()
        if item.call_id in self._called:
            return
        self._notes.add("orphan_result", "repaired", "a result without its call became a user's text", HISTORY)
        name = f" of {item.name}" if item.name else ""
        marker = TextPart(text=f"[result{name} without its call] ")
        self.items.append(MessageItem(role="user", content=(marker, *item.output)))

    def _answer(self) -> None:
        """Put the results of the open calls behind them."""
        if not self._open:
            return
        for call, said_id in self._open:
            waiting = self._results.get(said_id)
            if waiting:
                result = waiting.pop()
                if (result.call_id, result.kind) != (call.call_id, call.kind):
                    result = msgspec.structs.replace(result, call_id=call.call_id, kind=call.kind)
            else:
                self._notes.add("orphan_call", "repaired", "a call without a result was closed as interrupted", HISTORY)
                result = text_result(call, INTERRUPTED, is_error=True, rc="interrupted")
            self.items.append(result)
        self._open.clear()
