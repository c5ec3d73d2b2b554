"""The state machine of a run: takes model events and tool results, and decides what happens next.

Pure: no IO, no clock, no logging; the loop does what it decides. The rule that every call gets exactly one result, in
call order, is enforced here.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import msgspec

from treadle.core.errors import ErrorInfo, UnknownTool
from treadle.core.events import (
    DELTAS,
    ArgumentsDelta,
    Failed,
    Finished,
    Interrupted,
    ItemAdded,
    ItemDone,
    ModelEvent,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    RunEnded,
    RunEvent,
    RunRecovered,
    Status,
    Stop,
    TextDelta,
)
from treadle.core.ids import CALL, MESSAGE, IdSource
from treadle.core.items import (
    AnyItem,
    CallItem,
    MessageItem,
    ResultItem,
    Side,
)
from treadle.core.plan import Planner
from treadle.core.run_endings import CANCELS
from treadle.core.tool_definitions import (
    AUTO,
    Offer,
    Outcome,
    ToolChoice,
    failure,
    is_person_only,
    refuse_person_only,
)
from treadle.core.usage import Usage, add_usage
from treadle.engine.approval_reasons import (
    FROM_TEXT,
    HOSTED,
    NEVER_READ,
    is_unread,
    person_only_arguments,
    reasons_for,
    rule_for_text_call,
    tainting_tools,
)
from treadle.engine.call_schedule import claim_of, waves
from treadle.engine.delta_log import message_parts
from treadle.engine.limit_answer import closing_line, closing_message, has_text, limit_answer, no_answer
from treadle.engine.limits import GATEWAY_LIMITS, Limits, RunBudget, mark_limit, refuse
from treadle.engine.run_decisions import (
    CallModel,
    CarriedCalls,
    Decision,
    EndRun,
    PlannedCall,
    RepeatModelCall,
    RunTools,
)
from treadle.engine.stable_item_ids import StableItemIds, with_started_ids
from treadle.engine.tool_choice_check import ToolChoiceCheck

Delta = TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta


class RunState:
    """One run from its first plan to its end.

    `budget` counts what has been used so far; `base` is the offset that makes the indexes of the current model call
    unique in the run; `events` are the run's events from that call; `finish` is how it ended, if it ended normally;
    `error` why it failed; `is_round_over` is true when it has ended either way.
    """

    def __init__(
        self,
        planner: Planner,
        offers: Mapping[str, Offer],
        *,
        choice: ToolChoice = AUTO,
        limits: Limits = GATEWAY_LIMITS,
        ids: IdSource,
        max_tool_calls: int | None = None,
    ) -> None:
        self._planner = planner
        self._carried: CarriedCalls | None = None
        self._carried_offers: dict[str, Offer] = {}
        self._deferred: frozenset[str] = frozenset()
        self._offers = offers
        self._choice = ToolChoiceCheck(choice)
        self._limits = limits
        self._ids = ids
        self.budget = RunBudget(limits, max_tool_calls)
        self.base = 0
        self.finish: Finished | None = None
        self.error: ErrorInfo | None = None
        self.is_round_over = False
        self._final = False
        self._next_base = 0
        self._unscanned = self._start = len(planner.items)
        self._used_call_ids: set[str] = set()
        self._tainted: dict[str, str] = {}
        self._open: dict[int, AnyItem] = {}
        self.events: list[RunEvent] = []
        self._done: list[AnyItem] = []
        self._calls: list[tuple[int, CallItem]] = []
        self._has_client_calls = False
        self._is_interrupted = False
        self._stable_ids: StableItemIds | None = None
        self._usage: Usage | None = None

    @property
    def defers_approvals(self) -> bool:
        """Return whether the run ends instead of waiting for an approval."""
        return self._limits.approvals == "defer"

    @property
    def has_hidden_items(self) -> bool:
        """Return whether the last round has items that the client did not receive and the next request needs."""
        if self._deferred:
            return True
        knows_more = any(call.side == "server" for _, call in self._calls)
        return self._has_client_calls and (knows_more or any(getattr(item, "blobs", ()) for item in self._done))

    def add_tainted(self, tainted: Mapping[str, str]) -> None:
        """Add tools that are not offered, with their sources, whose untrusted output the model has read."""
        self._scan_history()
        self._tainted = {**tainted, **self._tainted}

    def carry_over(self, carried: CarriedCalls) -> None:
        """Start with calls that an earlier run left, instead of a model call."""
        self._scan_history()
        self._carried = carried
        self._carried_offers = {each.call.name: each.offer for each in carried.calls if each.offer is not None}
        self._next_base = len(carried.calls)

    def begin(self) -> CallModel | RunTools:
        """Return the first decision: to run the calls that an earlier run left, else to call the model."""
        return self.ask() if self._carried is None else RunTools(calls=self._carried.calls)

    def defer(self, call_ids: Iterable[str]) -> None:
        """Leave calls to the next run; this one ends with its round."""
        self._deferred = self._deferred.union(call_ids)

    def ask_again(self) -> CallModel:
        """Return the current model call again."""
        return self.ask(is_counted=False)

    def ask(self, *, is_counted: bool = True) -> CallModel:
        """Return the next model call. The request's tool choice applies until a call has satisfied it."""
        if is_counted and not self._final:
            self.budget.rounds += 1
        if is_counted and self._stable_ids is not None:
            self._stable_ids.forget()
        self.base = self._next_base
        if self.is_round_over:
            self._clear_call()
        choice = self._choice.next(is_final=self._final) if is_counted else self._choice.repeat()
        plan = self._planner.plan(choice, is_closing=self._final)
        return CallModel(plan=plan, round=self.budget.rounds, final=self._final)

    def _clear_call(self) -> None:
        """Reset what belongs to the last model call."""
        self._open.clear()
        self.events.clear()
        self._done.clear()
        self._calls.clear()
        self._has_client_calls = False
        self.finish = self.error = None
        self.is_round_over = self._is_interrupted = False

    def feed(self, event: ModelEvent) -> RunEvent | None:
        """Take one event of the current model call; return the run's event for it, if any."""
        if (
            type(event) is TextDelta
            or type(event) is ArgumentsDelta
            or type(event) is ReasoningDelta
            or type(event) is RefusalDelta
        ):
            delta = msgspec.structs.replace(event, index=self.base + event.index) if self.base else event
            self.events.append(delta)
            return delta
        return self._handlers[type(event)](self, event)

    def feed_deltas(self, batch: list[Any]) -> list[Delta]:
        """Take a batch that has only deltas and return the run's events for it; return nothing for any other batch."""
        for event in batch:
            if type(event) not in DELTAS:
                return []
        base = self.base
        deltas = [msgspec.structs.replace(delta, index=base + delta.index) for delta in batch] if base else batch
        self.events += deltas
        return deltas

    def fail(self, error: ErrorInfo) -> None:
        """End the current model call as failed."""
        self.error = error
        self.is_round_over = True

    def discard_call(self) -> list[RunEvent]:
        """Discard the events of the current model call and return them: none was published, and the call is retried."""
        discarded = list(self.events)
        calls = [item for item in (*self._open.values(), *self._done) if type(item) is CallItem]
        self._used_call_ids.difference_update([call.call_id for call in calls])
        self._next_base = self.base
        self._clear_call()
        self._choice.repeat()  # a discarded call does not satisfy the tool choice
        return discarded

    def early(self) -> list[PlannedCall]:
        """Return the finished calls that may start before the model call has ended: reads that need no approval and
        wait for no earlier call."""
        if self._final:
            return []
        # On a copy of the budget: calls are counted when the round is decided.
        counted, self.budget = self.budget, copy.copy(self.budget)
        try:
            planned = [self._plan_call(index, call) for index, call in self._calls if call.side == "server"]
        finally:
            self.budget = counted
        return ready_reads(planned)

    def closing_events(self) -> list[ModelEvent]:
        """Return what Treadle adds to an ended model call: a note if it ignored the tool choice, and an answer if it
        gave none at a limit."""
        if self.error is not None or self.finish is None:
            return []
        if self._final:
            is_answered = self._planner.is_json_wanted or has_text(self.events, self._done)
            return [] if is_answered else self._limit_answer()
        note = self._choice.violation_note(self.finish.stop)
        return [] if note is None else [Noted(note=note)]

    def time_out_call(self) -> list[ModelEvent]:
        """Reach the time limit during a model call; return what Treadle adds to it."""
        self.budget.reach("wall_time")
        if self._planner.is_json_wanted:
            return []
        for event in reversed(self.events):
            if type(event) is TextDelta and type(self._open.get(event.index)) is MessageItem:
                return closing_line(self.budget.reason(), event.index - self.base, event.part)
        return self._limit_answer()

    def _limit_answer(self) -> list[ModelEvent]:
        text = limit_answer(self.budget.reason(), self._planner.items[self._start :])
        return closing_message(text, self._next_base - self.base, self._ids.new(MESSAGE))

    def _no_answer(self) -> ErrorInfo:
        return no_answer(self.budget.reason(), self._planner.items[self._start :])

    def decide(self) -> Decision:
        """Decide what follows the model call that has ended."""
        if self._is_interrupted:
            return self._decide_interrupted()
        if self.error is not None or self.finish is None:
            return self._end("failed", "done", error=self.error)
        if self._final and self._planner.is_json_wanted and not has_text(self.events, self._done):
            return self._end("failed", "done", error=self._no_answer())
        stop = self.finish.stop
        if stop in ("length", "filtered"):
            return self._end("incomplete", stop)
        if not self._calls:
            return self._end("completed", "done" if stop == "calls" else stop)
        server = [(index, call) for index, call in self._calls if call.side == "server"]
        if not server:
            return self._end("requires_action", "calls")
        if self._final:
            return self._end("completed", "done")
        self._planner.add([*self._done])
        return RunTools(calls=tuple([self._plan_call(index, call) for index, call in server]))

    def _decide_interrupted(self) -> Decision:
        """Decide what follows a model call that was interrupted by the death of its process.

        A complete client call may have been delivered and cannot be voided: the run ends with it. Otherwise the model
        call is repeated.
        """
        if self._has_client_calls:
            return self._end("requires_action", "calls")
        unanswered = failure("interrupted", "Not run: the process was stopped before the model's turn was complete.")
        calls = tuple(
            PlannedCall(index=index, call=call, offer=self._offers.get(call.name), outcome=unanswered)
            for index, call in self._calls
        )
        done_ids = tuple(item.id for item in self._done if item.id)
        self._stable_ids = self._stable_ids or StableItemIds(self._ids)
        self._stable_ids.expect(self.events, self._open, done_ids)
        return RepeatModelCall(calls=calls, items=done_ids, indexes=tuple(sorted(self._open)))

    def settle(self, results: Sequence[ResultItem]) -> Decision:
        """Take the results of the round's server calls, in call order, and decide what follows."""
        self._add_results(results)
        for result in results if self._limits.strict_unknown_tool else ():
            if result.rc == "unknown_tool":
                error = UnknownTool(f"The model called the unknown tool {result.name!r}.").info
                return self._end("failed", "done", error=msgspec.structs.replace(error, status=502))
        if self._has_client_calls or self._deferred:
            return self._end("requires_action", "calls")
        self._final = self.budget.limit is not None
        return self.ask()

    def mark_last(self, outcome: Outcome) -> Outcome:
        """Return the last outcome of the round; at a limit it names the limit.

        A round with client calls ends the run anyway, so no limit stops it.
        """
        if self._has_client_calls or self._deferred:
            return outcome
        self.budget.end_round()
        if self.budget.limit is None or outcome.rc == "limit_reached":
            return outcome
        return mark_limit(outcome, self.budget.message())

    def expire(self) -> EndRun:
        """End the run during a model call because its time is used up."""
        self.budget.reach("wall_time")
        if self._planner.is_json_wanted:
            return self._end("failed", "done", error=self._no_answer())
        return self._end("incomplete", "length")

    def abort(self, error: ErrorInfo | None = None) -> EndRun:
        """End the run at once: cancelled, or failed with an error of Treadle's own."""
        is_wanted = error is None or error.code in CANCELS
        return self._end("cancelled" if is_wanted else "failed", "done", error=error)

    def out_of_time(self, *, has_started: bool) -> Outcome:
        """Return the outcome of a call when the run's time is used up, before it started or while it ran."""
        self.budget.reach("wall_time")
        if not has_started:
            return refuse(self.budget.message())
        return failure("interrupted", f"Interrupted, outcome unknown. {self.budget.message()}")

    def partials(self) -> list[AnyItem]:
        """Return the unfinished messages with the content received so far, so that it is not lost."""
        partial: list[AnyItem] = []
        for index, item in self._open.items():
            if type(item) is not MessageItem:
                continue
            if parts := message_parts(self.events, index):
                partial.append(msgspec.structs.replace(item, content=parts, is_partial=True))
        return partial

    def _add_results(self, results: Sequence[ResultItem]) -> None:
        """Add the results to the history; those of calls carried over go to their place in call order."""
        carried, self._carried = self._carried, None
        if carried is not None:
            for result in carried.results:
                self._note_taint(result)
        for result in results:
            self._note_taint(result)
        if carried is None:
            self._planner.add([*results])
            return
        self.budget.calls += len(results)
        self._planner.add(merge_carried_results(carried, results))

    def _scan_history(self) -> None:
        """Collect the call ids of the conversation and the sources of its untrusted content.

        Only when there is a call: a run that is answered with text does not pay for the scan.
        """
        before, self._unscanned = self._unscanned, 0
        for item in self._planner.items[:before]:
            if type(item) is CallItem:
                self._used_call_ids.add(item.call_id)
            elif type(item) is ResultItem or is_unread(item):
                self._note_taint(item)

    def _note_taint(self, item: AnyItem) -> None:
        """Record the source of an item that may hold untrusted content: its tool, or the provider."""
        if self._unscanned:
            self._scan_history()
        if type(item) is not ResultItem:
            self._tainted.setdefault(HOSTED, HOSTED)
            return
        if item.rc in NEVER_READ:
            return
        for offer in (self._offers.get(item.name), self._carried_offers.get(item.name)):
            if offer is not None and offer.policy is not None and offer.policy.taints:
                self._tainted.setdefault(item.name, offer.source)

    def _added(self, event: ItemAdded) -> ItemAdded:
        index, item = self.base + event.index, event.item
        continued = None if self._stable_ids is None else self._stable_ids.adopt(item)
        if continued is None and type(item) is CallItem:
            item = self._with_side_and_id(item)
        if self._stable_ids is not None:
            item = self._stable_ids.with_unused_id(continued or item)
        self._open[index] = item
        if index >= self._next_base:
            self._next_base = index + 1
        run_event = event if item is event.item and not self.base else ItemAdded(index=index, item=item)
        self.events.append(run_event)
        return run_event

    def _item_done(self, event: ItemDone) -> ItemDone:
        index, item = self.base + event.index, event.item
        started = self._open.pop(index, None)
        if started is not None and started.id != item.id:
            item = msgspec.structs.replace(item, id=started.id)
        if type(item) is CallItem:
            if type(started) is CallItem:
                side = started.side if item.name == started.name else self._side(item.name)
                item = with_started_ids(item, started, side)
            else:
                item = self._with_side_and_id(item)
            self._calls.append((index, item))
            self._choice.meet(is_permitted=item.name in self._offers and self._choice.permits(item.name))
            self._has_client_calls = self._has_client_calls or item.side == "client"
        elif type(item) is ResultItem or is_unread(item):
            # The provider ran a tool of its own.
            self._choice.meet()
            self._note_taint(item)
        self._done.append(item)
        if index >= self._next_base:
            self._next_base = index + 1
        run_event = event if item is event.item and not self.base else ItemDone(index=index, item=item)
        self.events.append(run_event)
        return run_event

    def _noted(self, event: Noted | RunRecovered) -> Noted | RunRecovered:
        self.events.append(event)
        return event

    def _finished(self, event: Finished) -> None:
        self.is_round_over = True
        self.finish = event
        self._usage = event.usage if self._usage is None else add_usage(self._usage, event.usage)

    def _failed(self, event: Failed) -> None:
        self.fail(event.error)

    def _interrupted(self, event: Interrupted) -> None:
        self.is_round_over = self._is_interrupted = True

    def _with_side_and_id(self, call: CallItem) -> CallItem:
        """Return the call with its side, and with an id that is unique in the conversation."""
        if self._unscanned:
            self._scan_history()
        side = self._side(call.name)
        if call.call_id not in self._used_call_ids:
            self._used_call_ids.add(call.call_id)
            return call if call.side == side else msgspec.structs.replace(call, side=side)
        fresh = self._ids.new(CALL)
        self._used_call_ids.add(fresh)
        return msgspec.structs.replace(call, side=side, call_id=fresh, upstream_id=call.call_id)

    def _side(self, name: str) -> Side:
        """Return who answers a call. Treadle also answers calls beyond a limit or against the tool choice.

        A call of an unknown tool goes to the client if all tools are the client's: then it runs the loop itself.
        """
        if self._final or not self._choice.permits(name):
            return "server"
        offer = self._offers.get(name)
        if offer is not None:
            return offer.side
        is_clients = self._is_loop_at_client and not self._limits.strict_unknown_tool and not is_person_only(name)
        return "client" if is_clients else "server"

    @cached_property
    def _is_loop_at_client(self) -> bool:
        """Return whether there are tools and all of them are the client's."""
        return bool(self._offers) and all(offer.side == "client" for offer in self._offers.values())

    def _plan_call(self, index: int, call: CallItem) -> PlannedCall:
        """Admit a call or answer it at once: a tool that was not offered in this run never reaches the toolbox."""
        offer = self._offers.get(call.name)
        outcome = None
        if not self.budget.admit(call):
            outcome = refuse(self.budget.message())
        elif offer is None and is_person_only(call.name):
            # Person-only actions are never offered.
            outcome = refuse_person_only(call.name)
        elif offer is None or not self._choice.permits(call.name):
            outcome = self._choice.refusal(call.name, self._offers)
        policy = None if offer is None else offer.policy
        rule = (
            "allow"
            if call.origin not in FROM_TEXT
            else rule_for_text_call(call, policy, self._limits.recovered_effects)
        )
        if outcome is None and rule == "deny":
            outcome = failure("denied", f"{call.name} has effects and was called in text, which is not allowed here.")
        if outcome is not None or offer is None or offer.policy is None:
            return PlannedCall(index=index, call=call, offer=offer, outcome=outcome)
        is_tainting = self._tainted and self._limits.taint != "off"
        tainted = tainting_tools(offer, offer.policy, self._tainted) if is_tainting else ()
        reasons: tuple[str, ...] = ()
        named = person_only_arguments(call, offer)
        if tainted or rule == "ask" or offer.policy.needs_approval or named:
            reasons = (*reasons_for(call, offer.policy, tainted, is_from_text=rule == "ask"), *named)
        return PlannedCall(
            index=index, call=call, offer=offer, reasons=reasons, is_tainted=bool(tainted) or rule == "ask"
        )

    def _end(self, status: Status, stop: Stop, *, error: ErrorInfo | None = None) -> EndRun:
        """End the run; server calls of the round without a result get one that says why they never ran."""
        orphans = self._unanswered(status, stop) if self._calls or self._carried is not None else ()
        ended = RunEnded(
            status=status,
            stop=stop,
            usage=self._usage,
            limit=self.budget.limit,
            error=error,
            rounds=self.budget.rounds,
            calls=self.budget.calls,
        )
        return EndRun(ended=ended, calls=orphans)

    def _unanswered(self, status: Status, stop: Stop) -> tuple[PlannedCall, ...]:
        answered = {item.call_id for item in self._planner.items if type(item) is ResultItem}
        if status == "requires_action":
            answered |= self._deferred
        outcome = self._not_run(status, stop)
        orphans = tuple(
            PlannedCall(index=index, call=call, offer=self._offers.get(call.name), outcome=outcome)
            for index, call in self._calls
            if call.side == "server" and call.call_id not in answered
        )
        if self._carried is not None:
            orphans += tuple(msgspec.structs.replace(each, outcome=outcome) for each in self._carried.calls)
        return orphans

    def _not_run(self, status: Status, stop: Stop) -> Outcome:
        if self.budget.limit is not None and status == "completed":
            return refuse(self.budget.message())
        why = {"failed": "the model's reply broke off", "cancelled": "the run was cancelled"}.get(
            status, f"the model's reply ended early ({stop})"
        )
        return failure("cancelled", f"Not run: {why}.")

    _handlers: ClassVar[dict[type, Callable[..., RunEvent | None]]] = {
        ItemAdded: _added,
        ItemDone: _item_done,
        Noted: _noted,
        Finished: _finished,
        Failed: _failed,
        Interrupted: _interrupted,
        RunRecovered: _noted,
    }
    """Handlers of the model events that are not deltas."""


def ready_reads(planned: Sequence[PlannedCall]) -> list[PlannedCall]:
    """Return the leading calls that only read, may run at once, and share the first wave."""
    ready: list[PlannedCall] = []
    for each in planned:
        policy = each.offer.policy if each.offer is not None else None
        is_free = each.outcome is None and not each.reasons and each.call.origin not in FROM_TEXT
        if not is_free or policy is None or policy.effect != "read" or policy.exec:
            break
        ready.append(each)
    claims = [claim_of(each.offer.policy, each.call.arguments) for each in ready if each.offer and each.offer.policy]
    return [ready[at] for wave in waves(claims)[:1] for at in wave]


def merge_carried_results(carried: CarriedCalls, results: Sequence[ResultItem]) -> list[AnyItem]:
    """Return the history after carried calls: all results of their round in call order, then the items after it."""
    known = {result.call_id: result for result in (*carried.results, *results)}
    rest = [result for call_id, result in known.items() if call_id not in carried.order]
    return [*(known[call_id] for call_id in carried.order if call_id in known), *rest, *carried.tail]
