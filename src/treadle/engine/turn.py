"""The state machine of a run: it is fed what the model says and what the tools gave, and decides what is next.

Pure: it makes no call, knows no clock and writes nothing. The loop does what it decides. Everything that keeps
"one result for every call, in call order, always" true is here.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

import msgspec

from treadle.canon.errors import ErrorInfo, UnknownTool
from treadle.canon.events import (
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
    Status,
    Stop,
    TextDelta,
)
from treadle.canon.ids import CALL, IdSource
from treadle.canon.items import (
    AnyItem,
    CallItem,
    MessageItem,
    RefusalPart,
    ResultItem,
    Side,
    TextPart,
)
from treadle.canon.plan import Plan, Planner
from treadle.canon.tools import (
    AUTO,
    NONE,
    Offer,
    Outcome,
    ToolChoice,
    ToolPolicy,
    failure,
    is_person_only,
    refuse_person_only,
)
from treadle.canon.usage import Usage, add_usage
from treadle.engine.approval import HOSTED, NEVER_READ, DecisionRecord, RequestRecord, is_unread, reasons_for
from treadle.engine.limits import GATEWAY_LIMITS, Budget, Limits, mark_limit, refuse
from treadle.engine.schedule import claim_of, waves

FROM_TEXT = ("recovered", "guessed")
HARMLESS = ("read", "idempotent")
NAMES_SHOWN = 5
NAME_CHARS_COMPARED = 128
"""Names come from models: one of a megabyte is neither compared nor shown whole."""


class AskModel(msgspec.Struct, frozen=True, kw_only=True):
    """Make this model call next."""

    plan: Plan
    round: int
    final: bool = False


class PlannedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One server call of the turn: run it under its offer, or, with an outcome already, only answer it.

    `reasons` say why a person must agree first, `decision` what was said. `is_deferred` leaves it to the next run:
    `request` is what an earlier run asked, where that still stands.
    """

    index: int
    call: CallItem
    offer: Offer | None = None
    outcome: Outcome | None = None
    reasons: tuple[str, ...] = ()
    is_tainted: bool = False
    is_deferred: bool = False
    approval_id: str = ""
    decision: DecisionRecord | None = None
    request: RequestRecord | None = None


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of an earlier run that this one runs first: what they are, the rest of their turn, and what comes after.

    `order` are the ids of all calls of the turn, `results` those it has already, `tail` what the model reads after it.
    """

    calls: tuple[PlannedCall, ...]
    order: tuple[str, ...] = ()
    results: tuple[ResultItem, ...] = ()
    tail: tuple[AnyItem, ...] = ()


class AskAgain(msgspec.Struct, frozen=True, kw_only=True):
    """The model call was cut off by the death of its process: what it said is void, `calls` are answered, and the
    same call is made again."""

    calls: tuple[PlannedCall, ...]
    items: tuple[str, ...]
    indexes: tuple[int, ...]


class RunTools(msgspec.Struct, frozen=True, kw_only=True):
    """Run these calls and come back with an outcome for each."""

    calls: tuple[PlannedCall, ...]


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The run is over. `calls` are server calls that never ran and get these results first."""

    ended: RunEnded
    calls: tuple[PlannedCall, ...] = ()


Decision = AskModel | AskAgain | RunTools | End


class _OpenItem:
    """An item that has begun and not ended; its text is kept in case it never ends."""

    __slots__ = ("item", "texts")

    def __init__(self, item: AnyItem) -> None:
        self.item = item
        self.texts: dict[tuple[int, bool], list[str]] = {}


class Turn:
    """One run from its first plan to its end."""

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
        self._carried: Carried | None = None
        self._carried_offers: dict[str, Offer] = {}
        self._deferred: set[str] = set()
        self._offers = offers
        self._choice = choice
        self._limits = limits
        self._ids = ids
        self._budget = Budget(limits, max_tool_calls)
        self._used_call_ids = {item.call_id for item in planner.items if type(item) is CallItem}
        self._final = False
        self._base = 0
        self._next_base = 0
        self._tainted: dict[str, str] = {}
        for item in [each for each in planner.items if type(each) is not MessageItem or each.role == "assistant"]:
            self._read(item)
        self._open: dict[int, _OpenItem] = {}
        self._calls: dict[int, tuple[str, str | None]] = {}
        self._done: list[tuple[int, AnyItem]] = []
        self._finish: Finished | None = None
        self._error: ErrorInfo | None = None
        self._is_interrupted = False
        self._usage: Usage | None = None

    @property
    def budget(self) -> Budget:
        """Return what has been used so far."""
        return self._budget

    @property
    def base(self) -> int:
        """Return what is added to the indexes of the current model call to make them unique in the run."""
        return self._base

    @property
    def finish(self) -> Finished | None:
        """Return how the current model call ended, if it ended as it should."""
        return self._finish

    @property
    def error(self) -> ErrorInfo | None:
        """Return what broke the current model call."""
        return self._error

    @property
    def is_round_over(self) -> bool:
        """Tell whether the current model call has ended, well or badly."""
        return self._finish is not None or self._error is not None or self._is_interrupted

    @property
    def defers(self) -> bool:
        """Tell whether the run ends where it would wait for a person."""
        return self._limits.approvals == "defer"

    def distrust(self, tainted: Mapping[str, str]) -> None:
        """Take note of tools that are not offered, and their sources, whose untrusted output was read before."""
        self._tainted = {**tainted, **self._tainted}

    def carry(self, carried: Carried) -> None:
        """Begin with calls that an earlier run left, instead of a model call."""
        self._carried = carried
        self._carried_offers = {each.call.name: each.offer for each in carried.calls if each.offer is not None}
        self._next_base = len(carried.calls)

    def begin(self) -> AskModel | RunTools:
        """Return what comes first: calls that an earlier run left, else the first model call."""
        return self.ask() if self._carried is None else RunTools(calls=self._carried.calls)

    def defer(self, call_ids: Iterable[str]) -> None:
        """Leave calls to the run that comes after this one; this one ends with its turn."""
        self._deferred.update(call_ids)

    def ask(self) -> AskModel:
        """Return the next model call; the first one obeys the request's tool choice, later ones are free."""
        if not self._final:
            self._budget.begin_round()
        return self.ask_again()

    def ask_again(self) -> AskModel:
        """Return the current model call anew."""
        self._base = self._next_base
        self._open.clear()
        self._calls.clear()
        self._done.clear()
        self._finish = self._error = None
        self._is_interrupted = False
        if self._final:
            choice = NONE
        else:
            first = self._budget.rounds == 1
            choice = self._choice if first or self._choice.mode in ("auto", "none") else AUTO
        return AskModel(plan=self._planner.plan(choice), round=self._budget.rounds, final=self._final)

    def feed(self, event: ModelEvent) -> list[RunEvent]:
        """Take one event of the current model call; return what the run says because of it."""
        match event:
            case TextDelta() | RefusalDelta() | ReasoningDelta():
                index = self._base + event.index
                opened = self._open.get(index)
                if opened is not None:
                    opened.texts.setdefault((event.part, type(event) is RefusalDelta), []).append(event.text)
                return [msgspec.structs.replace(event, index=index) if self._base else event]
            case ArgumentsDelta():
                return [msgspec.structs.replace(event, index=self._base + event.index) if self._base else event]
            case ItemAdded():
                return [self._added(event)]
            case ItemDone():
                return [self._item_done(event)]
            case Noted():
                return [event]
            case Finished():
                self._finish = event
                self._usage = add_usage(self._usage, event.usage)
                return []
            case Failed():
                self.fail(event.error)
                return []
            case Interrupted():
                self._is_interrupted = True
                return []

    def fail(self, error: ErrorInfo) -> None:
        """End the current model call as broken."""
        self._error = error

    def early(self) -> list[PlannedCall]:
        """Return the calls said so far that may begin before the model has ended: reads that need nobody's word and
        that no earlier call of the turn holds up. What is counted is counted only when the turn is decided."""
        if self._final:
            return []
        counted, self._budget = self._budget, copy.copy(self._budget)
        try:
            planned = [
                self._plan_call(index, item)
                for index, item in self._done
                if isinstance(item, CallItem) and item.side == "server"
            ]
        finally:
            self._budget = counted
        return first_reads(planned)

    def decide(self) -> Decision:
        """Say what follows now that the model call has ended."""
        self._next_base = max((index + 1 for index, _ in self._done), default=self._base)
        self._next_base = max([self._next_base, *(index + 1 for index in self._open)])
        if self._is_interrupted:
            return self._recover()
        if self._error is not None or self._finish is None:
            return self._end("failed", "done", error=self._error)
        if self._finish.stop in ("length", "filtered"):
            return self._end("incomplete", self._finish.stop)
        calls = [(index, item) for index, item in self._done if isinstance(item, CallItem)]
        server = [(index, call) for index, call in calls if call.side == "server"]
        self._planner.add([item for _, item in self._done])
        if not calls:
            return self._end("completed", "done" if self._finish.stop == "calls" else self._finish.stop)
        if not server:
            return self._end("requires_action", "calls")
        if self._final:
            return self._end("completed", "done")
        return RunTools(calls=tuple(self._plan_call(index, call) for index, call in server))

    def _recover(self) -> Decision:
        """Decide what becomes of a call that its process did not survive.

        A whole call that the client may have seen already cannot be taken back: the run ends with it. All else is
        asked for again.
        """
        if self._has_client_calls:
            self._planner.add([item for _, item in self._done])
            return self._end("requires_action", "calls")
        unanswered = failure("interrupted", "Not run: the process was stopped before the model's turn was complete.")
        calls = tuple(
            PlannedCall(index=index, call=item, offer=self._offers.get(item.name), outcome=unanswered)
            for index, item in self._done
            if isinstance(item, CallItem)
        )
        said = tuple(item.id for _, item in self._done if item.id)
        return AskAgain(calls=calls, items=said, indexes=tuple(sorted(self._open)))

    def settle(self, results: Sequence[ResultItem]) -> Decision:
        """Take the results of the turn's server calls, in call order; say what follows."""
        self._take_in(results)
        unknown = next((result for result in results if result.rc == "unknown_tool"), None)
        if unknown is not None and self._limits.strict_unknown_tool:
            error = UnknownTool(f"The model called the unknown tool {unknown.name!r}.").info
            return self._end("failed", "done", error=msgspec.structs.replace(error, status=502))
        if self._goes_on_elsewhere:
            return self._end("requires_action", "calls")
        self._final = self._budget.limit is not None
        return self.ask()

    def mark_last(self, outcome: Outcome) -> Outcome:
        """Word the last outcome of the turn: at a limit it says which.

        A turn that goes on at the client ends its run anyway, so no limit stops it.
        """
        if self._goes_on_elsewhere:
            return outcome
        self._budget.end_round()
        if self._budget.limit is None or outcome.rc == "limit_reached":
            return outcome
        return mark_limit(outcome, self._budget.words())

    def expire(self) -> End:
        """End the run in the middle of a model call because its time is used up."""
        self._budget.reach("wall_time")
        return self._end("incomplete", "length")

    def abort(self, error: ErrorInfo | None = None) -> End:
        """End the run at once, wherever it is: cancelled, or failed with an error of Treadle's own."""
        return self._end("cancelled" if error is None else "failed", "done", error=error)

    def out_of_time(self, *, has_started: bool) -> Outcome:
        """Return what a call gets when the run's time is used up, before it started or while it ran."""
        self._budget.reach("wall_time")
        if not has_started:
            return refuse(self._budget.words())
        return failure("interrupted", f"Interrupted, outcome unknown. {self._budget.words()}")

    def partials(self) -> list[AnyItem]:
        """Return what was said of the messages that never ended, so that it is not lost."""
        kept: list[AnyItem] = []
        for opened in self._open.values():
            if not isinstance(opened.item, MessageItem) or not opened.texts:
                continue
            parts = tuple(
                RefusalPart(text="".join(texts)) if is_refusal else TextPart(text="".join(texts))
                for (_, is_refusal), texts in sorted(opened.texts.items())
            )
            kept.append(msgspec.structs.replace(opened.item, content=parts, is_partial=True))
        return kept

    def _take_in(self, results: Sequence[ResultItem]) -> None:
        """Let the model read the results; those of an earlier run's turn stand there, in call order."""
        carried, self._carried = self._carried, None
        for result in (*(carried.results if carried is not None else ()), *results):
            self._read(result)
        if carried is None:
            self._planner.add(list(results))
            return
        self._budget.calls += len(results)
        self._planner.add(rejoined(carried, results))

    def _read(self, item: AnyItem) -> None:
        """Remember the tool, and where it comes from, if the item is what it gave and anybody may have written that."""
        if is_unread(item):
            self._tainted.setdefault(HOSTED, HOSTED)
        if not isinstance(item, ResultItem) or item.rc in NEVER_READ:
            return
        for offer in (self._offers.get(item.name), self._carried_offers.get(item.name)):
            if offer is not None and offer.policy is not None and offer.policy.taints:
                self._tainted.setdefault(item.name, offer.source)

    @property
    def _goes_on_elsewhere(self) -> bool:
        return self._has_client_calls or bool(self._deferred)

    @property
    def _has_client_calls(self) -> bool:
        return any(isinstance(item, CallItem) and item.side == "client" for _, item in self._done)

    def _added(self, event: ItemAdded) -> ItemAdded:
        index = self._base + event.index
        item = event.item
        if isinstance(item, CallItem):
            item = self._own(item)
            self._calls[index] = (item.call_id, item.upstream_id)
        self._open[index] = _OpenItem(item)
        return ItemAdded(index=index, item=item)

    def _item_done(self, event: ItemDone) -> ItemDone:
        index = self._base + event.index
        self._open.pop(index, None)
        item = event.item
        if isinstance(item, CallItem):
            if index in self._calls:
                call_id, upstream_id = self._calls[index]
                item = msgspec.structs.replace(
                    item, call_id=call_id, upstream_id=upstream_id, side=self._side(item.name)
                )
            else:
                item = self._own(item)
        self._read(item)
        self._done.append((index, item))
        return ItemDone(index=index, item=item)

    def _own(self, call: CallItem) -> CallItem:
        """Give the call its side, and an id that no other call of the conversation has."""
        side = self._side(call.name)
        if call.call_id not in self._used_call_ids:
            self._used_call_ids.add(call.call_id)
            return msgspec.structs.replace(call, side=side)
        fresh = self._ids.new(CALL)
        self._used_call_ids.add(fresh)
        return msgspec.structs.replace(call, side=side, call_id=fresh, upstream_id=call.call_id)

    def _side(self, name: str) -> Side:
        """Say who answers a call: Treadle also answers what nobody offered, and what is called past a limit."""
        offer = self._offers.get(name)
        return "client" if offer is not None and offer.side == "client" and not self._final else "server"

    def _plan_call(self, index: int, call: CallItem) -> PlannedCall:
        """Admit a call or answer it at once: what was not offered in this run never reaches the toolbox."""
        offer = self._offers.get(call.name)
        outcome = None
        if not self._budget.admit(call):
            outcome = refuse(self._budget.words())
        elif is_person_only(call.name):
            outcome = refuse_person_only(call.name)
        elif offer is None:
            outcome = self._unknown(call.name)
        rule = self._rule_for(call, offer)
        if outcome is None and rule == "deny":
            outcome = failure("denied", f"{call.name} has effects and was called in text, which is not allowed here.")
        if outcome is not None or offer is None or offer.policy is None:
            return PlannedCall(index=index, call=call, offer=offer, outcome=outcome)
        tainted = self._taint_for(offer, offer.policy)
        reasons = reasons_for(call, offer.policy, tainted, is_from_text=rule == "ask")
        return PlannedCall(
            index=index, call=call, offer=offer, reasons=reasons, is_tainted=bool(tainted) or rule == "ask"
        )

    def _taint_for(self, offer: Offer, policy: ToolPolicy) -> tuple[str, ...]:
        """Return the tools whose untrusted output makes this one need approval.

        What only reads from the very MCP server that the output came from has nobody else to carry it to.
        """
        if self._limits.taint == "off" or not policy.reaches_out:
            return ()
        if policy.effect == "read" and not policy.exec and offer.source.startswith("mcp:"):
            return tuple(name for name, source in self._tainted.items() if source != offer.source)
        return tuple(self._tainted)

    def _rule_for(self, call: CallItem, offer: Offer | None) -> str:
        """Say whether a call that stood in text may run: one that does no harm, else as the limits say.

        What had not even a marker never runs a tool with effects, also none that can be repeated.
        """
        policy = offer.policy if offer is not None else None
        if call.origin not in FROM_TEXT or policy is None:
            return "allow"
        harmless = ("read",) if call.origin == "guessed" else HARMLESS
        if policy.effect in harmless and not policy.exec:
            return "allow"
        return "deny" if call.origin == "guessed" else self._limits.recovered_effects

    def _unknown(self, name: str) -> Outcome:
        near = get_close_matches(name[:NAME_CHARS_COMPARED], list(self._offers), NAMES_SHOWN)
        names = near or sorted(self._offers)[:NAMES_SHOWN]
        known = f" Nearest: {', '.join(names)}." if near else f" Offered: {', '.join(names)}." if names else ""
        return failure("unknown_tool", f"No tool named {name[:NAME_CHARS_COMPARED]!r} is offered.{known}")

    def _end(self, status: Status, stop: Stop, *, error: ErrorInfo | None = None) -> End:
        """End the run; server calls of the turn that have no result yet get one that says why they never ran."""
        answered = {item.call_id for item in self._planner.items if isinstance(item, ResultItem)}
        limit = self._budget.limit
        if status == "requires_action":
            answered |= self._deferred
        orphans = tuple(
            PlannedCall(index=index, call=item, offer=self._offers.get(item.name), outcome=self._not_run(status, stop))
            for index, item in self._done
            if isinstance(item, CallItem) and item.side == "server" and item.call_id not in answered
        )
        if self._carried is not None:
            outcome = self._not_run(status, stop)
            orphans += tuple(msgspec.structs.replace(each, outcome=outcome) for each in self._carried.calls)
        ended = RunEnded(
            status=status,
            stop=stop,
            usage=self._usage,
            limit=limit,
            error=error,
            rounds=self._budget.rounds,
            calls=self._budget.calls,
        )
        return End(ended=ended, calls=orphans)

    def _not_run(self, status: Status, stop: Stop) -> Outcome:
        if self._budget.limit is not None and status == "completed":
            return refuse(self._budget.words())
        why = {"failed": "the model's reply broke off", "cancelled": "the run was cancelled"}.get(
            status, f"the model's reply ended early ({stop})"
        )
        return failure("cancelled", f"Not run: {why}.")


def first_reads(planned: Sequence[PlannedCall]) -> list[PlannedCall]:
    """Return the calls of the first wave, as far as each of them only reads and may run at once."""
    ready: list[PlannedCall] = []
    for each in planned:
        policy = each.offer.policy if each.offer is not None else None
        is_free = each.outcome is None and not each.reasons and each.call.origin not in FROM_TEXT
        if not is_free or policy is None or policy.effect != "read" or policy.exec:
            break
        ready.append(each)
    claims = [claim_of(each.offer.policy, each.call.arguments) for each in ready if each.offer and each.offer.policy]
    return [ready[at] for wave in waves(claims)[:1] for at in wave]


def rejoined(carried: Carried, results: Sequence[ResultItem]) -> list[AnyItem]:
    """Return what follows the calls of an earlier run's turn: all their results in call order, then what came after."""
    known = {result.call_id: result for result in (*carried.results, *results)}
    rest = [result for call_id, result in known.items() if call_id not in carried.order]
    return [*(known[call_id] for call_id in carried.order if call_id in known), *rest, *carried.tail]
