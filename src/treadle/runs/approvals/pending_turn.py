"""A turn that an earlier run left with open approval requests: its calls, and how the next run resumes it. Pure."""

from collections.abc import Collection, Sequence

import msgspec

from treadle.core.items import AnyItem, CallItem, MessageItem, ResultItem
from treadle.engine.approval_reasons import RequestRecord
from treadle.engine.run_decisions import CarriedCalls, PlannedCall


class WaitingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that an earlier run left for approval, and its request."""

    call: CallItem
    record: RequestRecord


class ResumedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The calls that a run starts with instead of a model call; `order` are the ids of all calls of their turn."""

    calls: tuple[PlannedCall, ...]
    order: tuple[str, ...]

    @property
    def approvals(self) -> tuple[str, ...]:
        """Return the ids of the decided approvals that the run uses."""
        decided = (planned.decision for planned in self.calls)
        return tuple(record.approval_id for record in decided if record is not None and record.approval_id)

    @property
    def has_open_requests(self) -> bool:
        """Return whether an approval request of the turn is still open."""
        return any(planned.is_deferred for planned in self.calls)

    def split_history(self, history: Sequence[AnyItem]) -> tuple[list[AnyItem], CarriedCalls]:
        """Return the history up to the turn's calls, and the calls with what follows them."""
        head, results, tail = split(history, self.order)
        return head, CarriedCalls(calls=self.calls, order=self.order, results=tuple(results), tail=tuple(tail))


def order_of(items: Sequence[AnyItem], call_ids: Collection[str]) -> tuple[str, ...]:
    """Return the ids of all calls of the turn that contains these calls, in call order."""
    start = end = _last(items, call_ids)
    while start > 0 and _is_of_model(items[start - 1]):
        start -= 1
    while end + 1 < len(items) and _is_of_model(items[end + 1]):
        end += 1
    return tuple(item.call_id for item in items[start : end + 1] if isinstance(item, CallItem))


def split(history: Sequence[AnyItem], order: Collection[str]) -> tuple[list[AnyItem], list[ResultItem], list[AnyItem]]:
    """Split a conversation into the part up to a turn's calls, their results, and the part after them."""
    end = _last(history, order) + 1
    while end < len(history) and _is_of_model(history[end]):
        end += 1
    results = [item for item in history if isinstance(item, ResultItem) and item.call_id in order]
    rest = [[item for item in part if not _answers(item, order)] for part in (history[:end], history[end:])]
    return rest[0], results, rest[1]


def has_new_message(tail: Sequence[AnyItem]) -> bool:
    """Return whether the client sent a message after the turn, and not only decisions."""
    return any(isinstance(item, MessageItem) and item.role != "assistant" for item in tail)


def _last(items: Sequence[AnyItem], call_ids: Collection[str]) -> int:
    return max(at for at, item in enumerate(items) if isinstance(item, CallItem) and item.call_id in call_ids)


def _is_of_model(item: AnyItem) -> bool:
    """Return whether an item is the model's, so that it can be among the calls of a turn."""
    return not isinstance(item, ResultItem) and not (isinstance(item, MessageItem) and item.role != "assistant")


def _answers(item: AnyItem, call_ids: Collection[str]) -> bool:
    return isinstance(item, ResultItem) and item.call_id in call_ids
