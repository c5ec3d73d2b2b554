"""Drives a run: does what `run_state` decides, through the five ports, and publishes each step as an event.

What must be durable before a client sees it is journalled first: a call before its tool starts, a result before the
next model call, an item before its `done`, the end before the terminal event. Deltas are published at once. A call of a
tool that only reads may run meanwhile: where it answers at once, both are written together.

With a `RecordedRun` the loop replays the journal through the same code and publishes the same events; after the last
journalled step it continues live.
"""

import asyncio

import msgspec

from treadle.core.errors import BrokenStream, ErrorInfo, RequestError, UpstreamError
from treadle.core.events import (
    Failed,
    Finished,
    ItemDone,
    LiveBatches,
    ModelEvent,
    Noted,
    Numbered,
    RunEnded,
)
from treadle.core.ids import RESULT, IdSource
from treadle.core.items import CallItem, ResultItem
from treadle.core.journal_entries import entry_of_item
from treadle.core.tool_definitions import CallContext, Outcome, failure
from treadle.engine import journal_steps as steps
from treadle.engine.approval_reasons import (
    DecisionRecord,
    RequestRecord,
    as_run,
    decision_step,
    mark_changed,
    refusal_of,
    request_step,
)
from treadle.engine.call_schedule import LONE, in_order
from treadle.engine.deadline import Deadline
from treadle.engine.early_reads import Early, unused
from treadle.engine.journal_steps import Step, only_reads, policy_of, record_of, source_of, unless_failed
from treadle.engine.model_retries import forget, may_wait
from treadle.engine.ports import Approver, Clock, Journal, Model, PendingApproval, PermissionRequest, Toolbox, Verdict
from treadle.engine.recorded_run import Ending, RecordedRun
from treadle.engine.run_decisions import AskAgain, AskModel, Decision, End, PlannedCall, RunTools
from treadle.engine.run_state import RunState
from treadle.engine.write_buffer import Publish, WriteBuffer, wait_out

UNKNOWN = failure("interrupted", "Interrupted, outcome unknown.")
RETRYABLE = frozenset({"read", "idempotent"})
"""Effect classes of tools that may run again after a crash: the others never do."""

_ENDS = frozenset({Finished, Failed})


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """What the loop reaches the world through."""

    model: Model
    toolbox: Toolbox
    clock: Clock
    approver: Approver
    ids: IdSource


class LoopStopped(Exception):
    """The run is to end here: so the record says, or somebody asked for it while the record was gone through."""

    def __init__(self, error: ErrorInfo | None) -> None:
        super().__init__()
        self.error = error


class RunLoop:
    """Drives one turn to its end. Call `begin` for the first steps, make them durable, then `run`.

    `is_replaying` says that it still goes through what the journal knows, `has_asked` that people were asked.
    """

    def __init__(
        self,
        turn: RunState,
        ports: Ports,
        context: CallContext,
        wall_s: float | None,
        final_s: float,
        past: RecordedRun | None = None,
    ) -> None:
        self._past = past
        self.is_replaying = past is not None
        self.has_asked = False
        self._asked = 0
        self._is_asking = False
        self._stop: LoopStopped | None = None
        self._turn = turn
        self._ports = ports
        self._now = ports.clock.now
        self._context = context
        self._deadline = Deadline(ports.clock, wall_s)
        self._final_s = final_s
        self._minutes = WriteBuffer()
        self._steps = self._minutes.steps
        self._started: dict[str, float] = {}
        self._announced: set[str] = set()
        self._answered: set[str] = set()
        self._outcomes: dict[str, Outcome] = {}
        self._early = Early(ports.clock)
        self._is_private = self._is_holding = False
        self._first: AskModel | RunTools | None = None

    @property
    def has_run_tools(self) -> bool:
        """Tell whether any tool has started: from then on a retry of the request is not harmless."""
        return bool(self._started or self._early.seen)

    @property
    def has_memory(self) -> bool:
        """Tell whether the last round holds something that the client does not know and will need again."""
        return self._turn.has_memory

    def begin(self) -> list[Step]:
        """Return the first steps, to be made durable together with the run itself: what people decided about calls
        that an earlier run left, or are still asked, else the first round."""
        self._first = self._turn.begin()
        first = self._first
        return [self._asking(first)] if isinstance(first, AskModel) else [*map(self._standing_step, first.calls)]

    async def run(self, journal: Journal, publish: Publish, *, is_private: bool = False) -> RunEnded:
        """Turn until there is an end; the terminal event is durable and published when this returns.

        Raises: StoreError, when the journal cannot be written any more.
        """
        assert self._first is not None, "begin() comes first"
        self._is_private = is_private
        self._minutes.attach(journal, publish, is_private=is_private)
        if self._past is None:
            self._deadline.start()
        decision: Decision = self._first
        try:
            while True:
                if type(decision) is AskModel:
                    decision = await self._ask(decision)
                elif type(decision) is RunTools:
                    decision = await self._tools(decision.calls)
                elif type(decision) is End:
                    if self._early.seen:
                        await self._early.drop()
                    return await self._end(decision)
                else:
                    assert type(decision) is AskAgain, "there is no other"
                    decision = self._void(decision)
        except LoopStopped as stop:
            return await self.abort(stop.error)
        finally:
            if self._early.seen:
                await self._early.drop()

    def stop(self, error: ErrorInfo | None = None) -> None:
        """Let the loop end as soon as it has gone through what the journal knows."""
        self._stop = LoopStopped(error)

    def _go_live(self) -> None:
        """Leave the record behind: from here on the loop acts by itself."""
        if not self.is_replaying:
            return
        self.is_replaying = False
        self._deadline.start()
        if self._stop is not None:
            raise self._stop

    def attach(self, journal: Journal, publish: Publish) -> None:
        """Say where to write and whom to tell."""
        self._minutes.attach(journal, publish)

    def detach(self) -> None:
        """Let go of both when the run is over here."""
        self._minutes.detach()

    async def abort(self, error: ErrorInfo | None = None) -> RunEnded:
        """End a run whose `run` was cancelled or broke: every open call gets its result, then comes the end."""
        self._end_round("aborted")
        self._steps.append((None, steps.abort_entry(error, self._now())))
        end = self._turn.abort(error)
        open_calls = [planned for planned in end.calls if planned.call.call_id not in self._answered]
        calls = tuple(msgspec.structs.replace(planned, outcome=self._aborted(planned)) for planned in open_calls)
        return await self._end(End(ended=end.ended, calls=calls))

    def _aborted(self, planned: PlannedCall) -> Outcome | None:
        """Return what a call gets whose run ends under it: its own outcome, if it was there already."""
        call_id = planned.call.call_id
        if call_id in self._started:
            unknown = failure("cancelled", "The run was cancelled; the outcome of this call is not known.")
            took_s = self._ports.clock.monotonic() - self._started[call_id]
            return self._outcomes.get(call_id) or msgspec.structs.replace(unknown, duration_s=took_s)
        return planned.outcome

    async def _ask(self, ask: AskModel) -> Decision:
        """Make one model call and pass on what it says, unless it is known."""
        if self._steps:
            await self._minutes.write()
        if self._past is None:
            self._asked += 1
            self._is_asking = True
        elif (decision := self._recall(self._past)) is not None:
            return decision
        if ask.final:
            self._deadline.spare(self._final_s)
        return await self._call(ask)

    async def _call(self, ask: AskModel, attempt: int = 1) -> Decision:
        """Make a model call and pass on what it says; one that breaks while nobody saw anything of it, again."""
        turn = self._turn
        stream = self._ports.model.stream(ask.plan, self._context.run_id)
        self._is_holding = True
        if isinstance(stream, LiveBatches):
            stream.hear = self._tell_pieces
        limit = self._deadline.limit()
        try:
            with limit:
                async for batch in stream:
                    self._feed(batch)
                    if turn.is_round_over:
                        break
                    if self._is_holding and may_wait(batch, self._early, is_private=self._is_private):
                        continue
                    self._is_holding = False
                    await self._minutes.write()
                    if self._early.is_marked:
                        self._early.begin(self._run_early)
            if limit.is_cut:
                self._feed(turn.run_out())
                self._end_round("expired")
                return turn.expire()
        except (UpstreamError, RequestError) as error:
            self._is_holding = False
            turn.fail(error.info)
        finally:
            await stream.aclose()
        if not turn.is_round_over:
            turn.fail(BrokenStream("The upstream ended without a finish.").info)
        if self._is_holding and (said := await forget(stream, turn, self._early, self._deadline, attempt)):
            self._steps.clear()
            self._feed(said)
            return await self._call(ask, attempt + 1)
        if own := turn.add_own():
            self._feed(own)
        self._end_round("failed" if turn.finish is None else "finished")
        return turn.decide()

    def _tell_pieces(self, batch: list[ModelEvent]) -> bool:
        """Tell at once what the model says, if that is only pieces of items: nothing has to be durable before them."""
        if self._is_holding and self._is_private and (pieces := self._turn.hear(batch)):
            self._steps += [(piece, None) for piece in pieces]
            return True
        if self._steps or not (pieces := self._turn.hear(batch)):
            return False
        told: list[Numbered] = []
        for piece in pieces:
            told.append(Numbered(event=piece))
        self._minutes.publish(told)
        return True

    def _mark_early(self, call: CallItem, *, is_ending: bool) -> None:
        """Mark a read that may begin before the model has ended; one that is heard again, where it was marked."""
        if self._past is not None and self.is_replaying:
            is_early = self._past.is_early(call.call_id)
        else:
            is_early = not is_ending and self._early.mark(self._turn.early(), call.call_id)
        if is_early:
            self._steps.append((None, steps.early_entry(call, self._now())))

    async def _run_early(self, planned: PlannedCall) -> Outcome:
        return await self._ports.toolbox.run(planned.call, self._context_of(planned))

    def _recall(self, past: RecordedRun) -> Decision | None:
        """Hear a model call again as the journal has it; None, if it has none and the loop acts by itself now."""
        number = self._asked
        known = past.round(number)
        if known is not None and known.reply is None and past.abort is not None:
            # It was stopped between its plan and the model's first word.
            raise LoopStopped(past.abort.error)
        self._asked += 1
        self._is_asking = True
        if known is None:
            self._go_live()
            return None
        self._feed(past.hear(number, self._turn.base))
        ending: Ending = "interrupted" if known.reply is None else known.reply.ending
        if ending == "aborted":
            assert past.abort is not None, "a call is aborted with its run"
            raise LoopStopped(past.abort.error)
        self._end_round(ending)
        return self._turn.expire() if ending == "expired" else self._turn.decide()

    def _feed(self, batch: list[ModelEvent]) -> None:
        """Queue what the run says because of what the model said."""
        turn, queue = self._turn, self._steps
        for event in batch:
            said = turn.feed(event)
            if said is None:
                continue
            if type(said) is ItemDone:
                queue.append((said, entry_of_item(said.item, at=self._now())))
                if type(said.item) is CallItem:
                    self._mark_early(said.item, is_ending=type(batch[-1]) in _ENDS)
            elif type(said) is Noted:
                queue.append((said, steps.note_entry(said.note, self._now())))
            else:
                queue.append((said, None))

    def _end_round(self, ending: Ending) -> None:
        """Write down how the current model call ended and in which pieces it came."""
        if self._is_asking:
            self._is_asking = False
            self._steps.append((None, steps.reply_entry(ending, self._turn, self._now())))

    def _void(self, broken: AskAgain) -> Decision:
        """Take back what a cut call said, and make the call again."""
        for planned in broken.calls:
            self._answer_unrun(planned)
        self._steps.append(steps.void_step(broken, self._turn.budget.rounds, self._now()))
        ask = self._turn.ask_again()
        self._steps.append(self._asking(ask))
        return ask

    async def _tools(self, calls: tuple[PlannedCall, ...]) -> Decision:
        """Answer every server call of the turn, in waves; results come in call order."""
        results: list[ResultItem] = []
        failed: set[int] = set()
        if [planned for planned in calls if planned.reasons or planned.is_deferred]:
            calls = await self._ask_all(calls)
        if len(calls) == 1:
            groups, needed = LONE
        else:
            groups, needed = in_order([(policy_of(planned), planned.call.arguments) for planned in calls])
        for group in groups:
            wave: list[PlannedCall] = []
            for at in group:
                planned = unless_failed(calls[at], calls, failed.intersection(needed[at])) if failed else calls[at]
                if planned.approval_id or self._past is not None or self._deadline.is_over:
                    planned = await self._judge(planned)
                wave.append(planned)
            self._announce(wave)
            if self._past is not None:
                await self._minutes.write()
                wave = await self._wake(self._past, wave)
            elif only_reads(wave):
                self._minutes.write_soon()
            else:
                await self._minutes.write()
            outcomes = [await self._run_call(wave[0])] if len(wave) == 1 else await self._run_wave(wave)
            if group is groups[-1]:
                self._reach_again()
                outcomes[-1] = self._turn.mark_last(outcomes[-1])
            for at, planned, outcome in zip(group, wave, outcomes, strict=True):
                results.append(self._answer(planned, outcome))
                if outcome.is_error and not steps.is_outside(results[-1]):
                    failed.add(at)
            if group is not groups[-1]:
                await self._minutes.write()
        decision = self._turn.settle(results)
        if type(decision) is AskModel:
            self._steps.append(self._asking(decision))
        return decision

    async def _ask_all(self, calls: tuple[PlannedCall, ...]) -> tuple[PlannedCall, ...]:
        """Put the questions of the turn, all before anything runs; return the calls that this run answers."""
        asked = [await self._ask_for(planned) for planned in calls]
        deferred = [planned.call.call_id for planned in asked if planned.is_deferred]
        if deferred:
            self._turn.defer(deferred)
        return tuple(planned for planned in asked if not planned.is_deferred)

    async def _ask_for(self, planned: PlannedCall) -> PlannedCall:
        """Ask for the approval that a call needs, unless it has been asked for, or has got its answer without."""
        if planned.outcome is not None or not planned.reasons or planned.decision is not None or planned.is_deferred:
            return planned
        call_id, past = planned.call.call_id, self._past
        record = None if past is None else past.request(call_id)
        decision = None if past is None else past.decision(call_id)
        if past is not None and record is None and decision is None:
            if past.result(call_id) is not None and not past.is_aborted_before(call_id):
                return planned
            if past.abort is not None:
                raise LoopStopped(past.abort.error)
        if record is None and decision is None:
            self._go_live()
            if self._deadline.is_over:
                return planned
            record, decision = await self._put(planned)
        if record is not None:
            self.has_asked = True
            self._steps.append(request_step(planned.index, planned.call, record, self._now()))
            return msgspec.structs.replace(
                planned, approval_id=record.approval_id, is_deferred=record.is_deferred and self._turn.defers
            )
        assert decision is not None
        return self._decided(planned, decision)

    async def _put(self, planned: PlannedCall) -> tuple[RequestRecord | None, DecisionRecord | None]:
        """Ask somebody; the answer may be known at once, by a rule or because nobody is there."""
        assert planned.offer is not None
        plea = PermissionRequest(
            call=planned.call,
            offer=planned.offer,
            reasons=planned.reasons,
            is_tainted=planned.is_tainted,
            is_deferred=self._turn.defers,
        )
        asking = asyncio.ensure_future(self._ports.approver.ask(plea, self._context_of(planned)))
        # A question that is half put would stand there, and nobody would know that it has to be taken back.
        cancelled = await wait_out(asking)
        answer = asking.result()
        self.has_asked |= isinstance(answer, PendingApproval)
        if cancelled is not None:
            raise cancelled
        if isinstance(answer, Verdict):
            return None, record_of(answer)
        record = RequestRecord(
            approval_id=answer.approval_id,
            source=source_of(planned),
            digest=answer.digest,
            reasons=planned.reasons,
            expires_at=answer.expires_at,
            is_deferred=self._turn.defers,
        )
        return record, None

    async def _hear_verdict(self, planned: PlannedCall) -> PlannedCall:
        """Wait for what a person says about a call; that time is not the run's."""
        known = None if self._past is None else self._past.decision(planned.call.call_id)
        if known is None:
            if self._past is not None and self._past.abort is not None:
                raise LoopStopped(self._past.abort.error)
            self._go_live()
            await self._minutes.write()
            begun = self._ports.clock.monotonic()
            verdict = await self._ports.approver.hear(planned.approval_id, self._context_of(planned))
            known = record_of(verdict, planned.approval_id)
            self._deadline.put_off(self._ports.clock.monotonic() - begun)
        return self._decided(planned, known)

    def _decided(self, planned: PlannedCall, record: DecisionRecord) -> PlannedCall:
        planned = msgspec.structs.replace(planned, decision=record, outcome=refusal_of(record))
        self._steps.append(self._decision_step(planned))
        return planned

    def _standing_step(self, planned: PlannedCall) -> Step:
        """Say where the question of an earlier run stands: decided, or put again."""
        if planned.request is None:
            return self._decision_step(planned)
        return request_step(planned.index, planned.call, planned.request, self._now())

    def _decision_step(self, planned: PlannedCall) -> Step:
        assert planned.decision is not None
        return decision_step(planned.index, planned.call, planned.decision, self._now())

    async def _wake(self, past: RecordedRun, wave: list[PlannedCall]) -> list[PlannedCall]:
        """Go on with calls whose start the journal knows: stop where the run was stopped, take the results there are,
        and else go live. A call that was running when its process died runs again only if that cannot do harm."""
        if any(past.is_aborted_before(planned.call.call_id) for planned in wave):
            assert past.abort is not None
            raise LoopStopped(past.abort.error)
        lost = [planned for planned in wave if planned.outcome is None and past.result(planned.call.call_id) is None]
        if not lost:
            return wave
        cut = [planned for planned in lost if past.starts(planned.call.call_id)]
        self._started.update(dict.fromkeys((planned.call.call_id for planned in cut), self._ports.clock.monotonic()))
        self._go_live()
        for planned in cut:
            if policy_of(planned).effect in RETRYABLE:
                attempt = past.starts(planned.call.call_id) + 1
                self._steps.append((None, steps.start_entry(planned, attempt, self._now())))
        await self._minutes.write()
        return [
            msgspec.structs.replace(planned, outcome=UNKNOWN)
            if planned in cut and policy_of(planned).effect not in RETRYABLE
            else planned
            for planned in wave
        ]

    def _reach_again(self) -> None:
        """Come to the end of the run's time where it came to it the first time."""
        if self._past is not None and self._past.limit_after(self._asked - 1) == "wall_time":
            self._turn.budget.reach("wall_time")

    async def _judge(self, planned: PlannedCall) -> PlannedCall:
        """Decide whether a call may run: within the run's time, and with the approval that its policy wants."""
        if planned.outcome is None and planned.approval_id and planned.decision is None:
            planned = await self._hear_verdict(planned)
        if planned.outcome is not None:
            return planned
        if self._past is not None:
            known, was_run = self._past.result(planned.call.call_id), self._past.starts(planned.call.call_id) > 0
            if was_run:
                return planned
            if known is not None:
                return msgspec.structs.replace(planned, outcome=known.outcome)
        if self._deadline.is_over:
            return msgspec.structs.replace(planned, outcome=self._turn.out_of_time(has_started=False))
        return planned

    async def _run_wave(self, wave: list[PlannedCall]) -> list[Outcome]:
        if any(planned.decision and planned.decision.arguments for planned in wave):
            # What a person changed may not fit beside the others any more.
            return [await self._run_call(planned) for planned in wave]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run_call(planned)) for planned in wave]
        return [task.result() for task in tasks]

    async def _run_call(self, planned: PlannedCall) -> Outcome:
        """Run one call within what is left of the run's time, unless it has been answered already."""
        if planned.outcome is not None:
            return planned.outcome
        call_id = planned.call.call_id
        begun = self._started[call_id] = self._ports.clock.monotonic()
        known = None if self._past is None else self._past.result(call_id)
        if known is not None:
            self._outcomes[call_id] = known.outcome
            return known.outcome
        early = self._early.take(call_id) if self._early.seen else None
        if early is not None:
            begun = self._started[call_id] = early.begun
        outcome: Outcome | None = None
        with self._deadline.limit():
            if early is None:
                call = planned.call if planned.decision is None else as_run(planned.call, planned.decision)
                outcome = await self._ports.toolbox.run(call, self._context_of(planned))
            else:
                outcome = await early.task
        if outcome is None:
            outcome = self._turn.out_of_time(has_started=True)
        if planned.decision is not None:
            outcome = mark_changed(outcome, planned.decision)
        ended = early.ended if early is not None and early.ended is not None else self._ports.clock.monotonic()
        outcome = msgspec.structs.replace(outcome, duration_s=ended - begun)
        self._outcomes[call_id] = outcome
        return outcome

    def _context_of(self, planned: PlannedCall) -> CallContext:
        run = self._context
        return CallContext(
            run_id=run.run_id,
            call_id=planned.call.call_id,
            session_id=run.session_id,
            key_id=run.key_id,
            round=self._turn.budget.rounds,
            sandbox="" if planned.decision is None else planned.decision.sandbox,
        )

    async def _end(self, end: End) -> RunEnded:
        """Answer what is still open, journal the end, then tell it."""
        for planned in end.calls:
            self._answer_unrun(planned)
        for item in self._turn.partials():
            self._steps.append((None, entry_of_item(item, at=self._now())))
        ended = msgspec.structs.replace(end.ended, ended_at=self._now())
        self._steps.append((ended, steps.status_entry(ended)))
        await self._minutes.write(ended)
        return ended

    def _announce(self, wave: list[PlannedCall]) -> None:
        """Say which calls are about to run, with a start mark in the journal; earlier marks come again."""
        for planned in wave:
            if planned.outcome is None:
                self._announced.add(planned.call.call_id)
                self._steps.append((steps.started(planned), steps.start_entry(planned, 1, self._now())))
        if self._past is None:
            return
        wave, again = [planned for planned in wave if planned.outcome is None], 2
        while wave:
            wave = [planned for planned in wave if self._past.starts(planned.call.call_id) >= again]
            self._steps += [(None, steps.start_entry(planned, again, self._now())) for planned in wave]
            again += 1

    def _answer(self, planned: PlannedCall, outcome: Outcome) -> ResultItem:
        """Make the result of a call out of its outcome and note it; one that never ran is announced only now."""
        call = planned.call
        if call.call_id not in self._announced:
            self._steps.append((steps.started(planned), None))
        known = None if self._past is None else self._past.result(call.call_id)
        if known is None:
            result = steps.result_of(planned, outcome, self._ports.ids.new(RESULT))
        else:
            result, outcome = known.item, known.outcome
        self._steps.append(steps.finished_step(planned, result, outcome, self._now()))
        self._answered.add(call.call_id)
        return result

    def _answer_unrun(self, planned: PlannedCall) -> None:
        """Answer a call whose turn did not come to run it."""
        call_id, outcome = planned.call.call_id, planned.outcome
        assert outcome is not None, "whoever does not run a call says why"
        is_early = call_id in self._early or (self._past is not None and self._past.is_early(call_id))
        self._answer(planned, unused(outcome) if is_early else outcome)

    def _asking(self, ask: AskModel) -> Step:
        return steps.round_step(ask, self._turn.budget.limit, self._now())
