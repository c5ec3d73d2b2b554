"""Drives a run: does what `run_state` decides, through its ports, and publishes each step as an event.

What must be durable before a client sees it is journalled first: a call before its tool starts, a result before the
next model call, an item before its `done`, the end before the terminal event. Deltas are published at once. A tool that
only reads may run while its call is being written: if it answers quickly, call and result share one commit.

With a `RecordedRun` the loop replays the journal through the same code and publishes the same events; after the last
journalled step it continues live.
"""

import asyncio

import msgspec

from treadle.core.errors import BrokenStream, ErrorInfo, RequestError, UpstreamError
from treadle.core.events import Failed, Finished, ItemDone, LiveBatches, ModelEvent, Noted, Numbered, RunEnded
from treadle.core.ids import RESULT, IdSource
from treadle.core.items import CallItem, ResultItem
from treadle.core.journal_entries import entry_of_item
from treadle.core.shared_ports import Clock
from treadle.core.tool_definitions import CallContext, Outcome, failure
from treadle.engine import journal_steps as steps
from treadle.engine.approval_reasons import (
    DecisionRecord,
    RequestRecord,
    decision_step,
    mark_changed,
    refusal_of,
    request_step,
    with_decided_arguments,
)
from treadle.engine.call_schedule import SINGLE_CALL, schedule
from treadle.engine.deadline import Deadline
from treadle.engine.early_reads import EarlyReads, mark_unused
from treadle.engine.journal_steps import Step, decision_record, only_reads, policy_of, skip_after_failure, source_of
from treadle.engine.model_retries import can_hold, discard_for_retry
from treadle.engine.ports import ApprovalVerdict, Approver, Journal, Model, PendingApproval, PermissionRequest, Toolbox
from treadle.engine.recorded_run import Ending, RecordedRun
from treadle.engine.run_decisions import CallModel, Decision, EndRun, PlannedCall, RepeatModelCall, RunTools
from treadle.engine.run_state import RunState
from treadle.engine.write_buffer import Publish, WriteBuffer, wait_uninterrupted

UNKNOWN = failure("interrupted", "Interrupted, outcome unknown.")
RETRYABLE = frozenset({"read", "idempotent"})
"""Effect classes of tools that may run again after a crash. All others run at most once."""

_ENDS = frozenset({Finished, Failed})


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """The loop's connections to everything outside of it."""

    model: Model
    toolbox: Toolbox
    clock: Clock
    approver: Approver
    ids: IdSource


class LoopStopped(Exception):
    """The run must end here: it was stopped here the first time, or `stop` was called during the replay."""

    def __init__(self, error: ErrorInfo | None) -> None:
        super().__init__()
        self.error = error


class RunLoop:
    """Drives one run to its end. Call `begin` for the first steps, make them durable, then `run`.

    `is_replaying` is true until the last journalled step, `has_requested_approval` once a person was asked.
    """

    def __init__(
        self,
        state: RunState,
        ports: Ports,
        context: CallContext,
        wall_s: float | None,
        final_s: float,
        recorded: RecordedRun | None = None,
    ) -> None:
        self._recorded = recorded
        self.is_replaying = recorded is not None
        self.has_requested_approval = False
        self._rounds_started = 0
        self._is_in_round = False
        self._stop: LoopStopped | None = None
        self._state = state
        self._ports = ports
        self._now, self._monotonic = ports.clock.now, ports.clock.monotonic
        self._context = context
        self._deadline = Deadline(ports.clock, wall_s)
        self._final_s = final_s
        self._buffer = WriteBuffer()
        self._steps = self._buffer.steps
        self._started: dict[str, float] = {}
        self._announced: set[str] = set()
        self._answered: set[str] = set()
        self._outcomes: dict[str, Outcome] = {}
        self._early = EarlyReads(ports.clock)
        self._is_private = self._is_holding = False
        self._first: CallModel | RunTools | None = None

    @property
    def has_run_tools(self) -> bool:
        """Return whether any tool has started: from then on it is not safe to retry the request."""
        return bool(self._started or self._early.seen)

    @property
    def has_hidden_items(self) -> bool:
        """Return whether the last round has items that the client did not receive and the next request needs."""
        return self._state.has_hidden_items

    def begin(self) -> list[Step]:
        """Return the first steps, to be made durable together with the run itself: the decisions and open approval
        requests of calls carried over from an earlier run, else the first round."""
        self._first = self._state.begin()
        first = self._first
        return [self._round_step(first)] if isinstance(first, CallModel) else [*map(self._carried_step, first.calls)]

    async def run(self, journal: Journal, publish: Publish, *, is_private: bool = False) -> RunEnded:
        """Run to the end; the terminal event is durable and published when this returns.

        Raises: StoreError, when the journal cannot be written.
        """
        assert self._first is not None, "begin() comes first"
        self._is_private = is_private
        self._buffer.attach(journal, publish, is_private=is_private)
        if self._recorded is None:
            self._deadline.start()
        decision: Decision = self._first
        try:
            while True:
                if type(decision) is CallModel:
                    decision = await self._call_model(decision)
                elif type(decision) is RunTools:
                    decision = await self._run_tools(decision.calls)
                elif type(decision) is EndRun:
                    if self._early.seen:
                        await self._early.cancel_unused()
                    return await self._end(decision)
                else:
                    assert type(decision) is RepeatModelCall
                    decision = self._repeat_call(decision)
        except LoopStopped as stop:
            return await self.abort(stop.error)
        finally:
            if self._early.seen:
                await self._early.cancel_unused()

    def stop(self, error: ErrorInfo | None = None) -> None:
        """End the run after the last journalled step."""
        self._stop = LoopStopped(error)

    def _go_live(self) -> None:
        """End the replay: the journal has no more steps, so from here on the loop acts."""
        if not self.is_replaying:
            return
        self.is_replaying = False
        self._deadline.start()
        if self._stop is not None:
            raise self._stop

    def attach(self, journal: Journal, publish: Publish) -> None:
        """Set the journal and the publisher."""
        self._buffer.attach(journal, publish)

    def detach(self) -> None:
        """Drop the journal and the publisher when the run is over in this process."""
        self._buffer.detach()

    async def abort(self, error: ErrorInfo | None = None) -> RunEnded:
        """End a run whose `run` was cancelled or failed: every open call gets a result, then the run ends."""
        self._end_round("aborted")
        self._steps.append((None, steps.abort_entry(error, self._now())))
        end = self._state.abort(error)
        open_calls = [planned for planned in end.calls if planned.call.call_id not in self._answered]
        calls = tuple(msgspec.structs.replace(planned, outcome=self._aborted(planned)) for planned in open_calls)
        return await self._end(EndRun(ended=end.ended, calls=calls))

    def _aborted(self, planned: PlannedCall) -> Outcome | None:
        """Return the outcome of a call whose run is aborted: its own, if the tool had finished."""
        call_id = planned.call.call_id
        if call_id in self._started:
            unknown = failure("cancelled", "The run was cancelled; the outcome of this call is not known.")
            took_s = self._monotonic() - self._started[call_id]
            return self._outcomes.get(call_id) or msgspec.structs.replace(unknown, duration_s=took_s)
        return planned.outcome

    async def _call_model(self, ask: CallModel) -> Decision:
        """Make one model call and publish its events, or replay it from the journal."""
        if self._steps:
            await self._buffer.write()
        if self._recorded is None:
            self._rounds_started += 1
            self._is_in_round = True
        elif (decision := self._replay_round(self._recorded)) is not None:
            return decision
        if ask.final:
            self._deadline.extend_to(self._final_s)
        return await self._stream_call(ask)

    async def _stream_call(self, ask: CallModel, attempt: int = 1) -> Decision:
        """Make a model call and publish its events. A call that fails before anything was published is retried."""
        state = self._state
        stream = self._ports.model.stream(ask.plan, self._context.run_id)
        self._is_holding = True
        if isinstance(stream, LiveBatches):
            stream.on_batch = self._publish_deltas
        limit = self._deadline.limit()
        try:
            with limit:
                async for batch in stream:
                    self._feed(batch)
                    if state.is_round_over:
                        break
                    if self._is_holding and can_hold(batch, self._early, is_private=self._is_private):
                        continue
                    self._is_holding = False
                    await self._buffer.write()
                    if self._early.is_marked:
                        self._early.begin(self._run_early)
            if limit.has_cut_off:
                self._feed(state.time_out_call())
                self._end_round("expired")
                return state.expire()
        except (UpstreamError, RequestError) as error:
            self._is_holding = False
            state.fail(error.info)
        finally:
            await stream.aclose()
        if not state.is_round_over:
            state.fail(BrokenStream("The upstream ended without a finish.").info)
        if self._is_holding and (notes := await discard_for_retry(stream, state, self._early, self._deadline, attempt)):
            self._steps.clear()
            self._feed(notes)
            return await self._stream_call(ask, attempt + 1)
        if closing := state.closing_events():
            self._feed(closing)
        self._end_round("failed" if state.finish is None else "finished")
        return state.decide()

    def _publish_deltas(self, batch: list[ModelEvent]) -> bool:
        """Publish a batch at once if it has only deltas: nothing must be durable before those."""
        if self._is_holding and self._is_private and (deltas := self._state.feed_deltas(batch)):
            self._steps += [(delta, None) for delta in deltas]
            return True
        if self._steps or not (deltas := self._state.feed_deltas(batch)):
            return False
        published: list[Numbered] = []
        for delta in deltas:
            published.append(Numbered(event=delta))
        self._buffer.publish(published)
        return True

    def _mark_early(self, call: CallItem, *, is_ending: bool) -> None:
        """Mark a read that may start before the model call has ended; in a replay, the reads that were marked then."""
        if self._recorded is not None and self.is_replaying:
            is_early = self._recorded.is_early(call.call_id)
        else:
            is_early = not is_ending and self._early.mark(self._state.early(), call.call_id)
        if is_early:
            self._steps.append((None, steps.early_entry(call, self._now())))

    async def _run_early(self, planned: PlannedCall) -> Outcome:
        return await self._ports.toolbox.run(planned.call, self._context_of(planned))

    def _replay_round(self, recorded: RecordedRun) -> Decision | None:
        """Replay a model call from the journal; None if the journal has no more and the loop is live now."""
        number = self._rounds_started
        known = recorded.round(number)
        if known is not None and known.reply is None and recorded.abort is not None:
            # The run was stopped between its plan and the model's first event.
            raise LoopStopped(recorded.abort.error)
        self._rounds_started += 1
        self._is_in_round = True
        if known is None:
            self._go_live()
            return None
        self._feed(recorded.model_events(number, self._state.base))
        ending: Ending = "interrupted" if known.reply is None else known.reply.ending
        if ending == "aborted":
            assert recorded.abort is not None, "a call is aborted with its run"
            raise LoopStopped(recorded.abort.error)
        self._end_round(ending)
        return self._state.expire() if ending == "expired" else self._state.decide()

    def _feed(self, batch: list[ModelEvent]) -> None:
        """Queue the run's events and entries for a batch of model events."""
        state, queue = self._state, self._steps
        for event in batch:
            run_event = state.feed(event)
            if run_event is None:
                continue
            if type(run_event) is ItemDone:
                queue.append((run_event, entry_of_item(run_event.item, at=self._now())))
                if type(run_event.item) is CallItem:
                    self._mark_early(run_event.item, is_ending=type(batch[-1]) in _ENDS)
            elif type(run_event) is Noted:
                queue.append((run_event, steps.note_entry(run_event.note, self._now())))
            else:
                queue.append((run_event, None))

    def _end_round(self, ending: Ending) -> None:
        """Record how the current model call ended."""
        if self._is_in_round:
            self._is_in_round = False
            self._steps.append((None, steps.reply_entry(ending, self._state, self._now())))

    def _repeat_call(self, repeat: RepeatModelCall) -> Decision:
        """Void the output of an interrupted call, and make the call again."""
        for planned in repeat.calls:
            self._add_unrun_result(planned)
        self._steps.append(steps.void_step(repeat, self._state.budget.rounds, self._now()))
        ask = self._state.ask_again()
        self._steps.append(self._round_step(ask))
        return ask

    async def _run_tools(self, calls: tuple[PlannedCall, ...]) -> Decision:
        """Run the server calls of a round, in waves; results are in call order."""
        results: list[ResultItem] = []
        failed: set[int] = set()
        if [planned for planned in calls if planned.reasons or planned.is_deferred]:
            calls = await self._request_approvals(calls)
        if len(calls) == 1:
            groups, needed = SINGLE_CALL
        else:
            groups, needed = schedule([(policy_of(planned), planned.call.arguments) for planned in calls])
        for group in groups:
            wave: list[PlannedCall] = []
            for at in group:
                planned = skip_after_failure(calls[at], calls, failed.intersection(needed[at])) if failed else calls[at]
                if planned.approval_id or self._recorded is not None or self._deadline.is_over:
                    planned = await self._check_may_run(planned)
                wave.append(planned)
            self._add_starts(wave)
            if self._recorded is not None:
                await self._buffer.write()
                wave = await self._resume_calls(self._recorded, wave)
            elif only_reads(wave):
                self._buffer.write_soon()
            else:
                await self._buffer.write()
            outcomes = [await self._run_call(wave[0])] if len(wave) == 1 else await self._run_wave(wave)
            if group is groups[-1]:
                self._replay_time_limit()
                outcomes[-1] = self._state.mark_last(outcomes[-1])
            for at, planned, outcome in zip(group, wave, outcomes, strict=True):
                results.append(self._add_result(planned, outcome))
                if outcome.is_error and not steps.is_outside(results[-1]):
                    failed.add(at)
            if group is not groups[-1]:
                await self._buffer.write()
        decision = self._state.settle(results)
        if type(decision) is CallModel:
            self._steps.append(self._round_step(decision))
        return decision

    async def _request_approvals(self, calls: tuple[PlannedCall, ...]) -> tuple[PlannedCall, ...]:
        """Request all approvals of a round before any call runs; return the calls that this run answers."""
        asked = [await self._request_approval(planned) for planned in calls]
        deferred = [planned.call.call_id for planned in asked if planned.is_deferred]
        if deferred:
            self._state.defer(deferred)
        return tuple(planned for planned in asked if not planned.is_deferred)

    async def _request_approval(self, planned: PlannedCall) -> PlannedCall:
        """Request the approval that a call needs, unless it was requested before or is answered already."""
        if planned.outcome is not None or not planned.reasons or planned.decision is not None or planned.is_deferred:
            return planned
        call_id, recorded = planned.call.call_id, self._recorded
        record = None if recorded is None else recorded.request(call_id)
        decision = None if recorded is None else recorded.decision(call_id)
        if recorded is not None and record is None and decision is None:
            if recorded.result(call_id) is not None and not recorded.is_aborted_before(call_id):
                return planned
            if recorded.abort is not None:
                raise LoopStopped(recorded.abort.error)
        if record is None and decision is None:
            self._go_live()
            if self._deadline.is_over:
                return planned
            record, decision = await self._ask_approver(planned)
        if record is not None:
            self.has_requested_approval = True
            self._steps.append(request_step(planned.index, planned.call, record, self._now()))
            return msgspec.structs.replace(
                planned, approval_id=record.approval_id, is_deferred=record.is_deferred and self._state.defers_approvals
            )
        assert decision is not None
        return self._with_decision(planned, decision)

    async def _ask_approver(self, planned: PlannedCall) -> tuple[RequestRecord | None, DecisionRecord | None]:
        """Ask the approver; the decision may be known at once, by a rule or because no person can be asked."""
        assert planned.offer is not None
        request = PermissionRequest(
            call=planned.call,
            offer=planned.offer,
            reasons=planned.reasons,
            is_tainted=planned.is_tainted,
            is_deferred=self._state.defers_approvals,
        )
        asking = asyncio.ensure_future(self._ports.approver.ask(request, self._context_of(planned)))
        # Not cancelled half way: the stored request would stay open, since the run does not know its id yet.
        cancelled = await wait_uninterrupted(asking)
        answer = asking.result()
        self.has_requested_approval |= isinstance(answer, PendingApproval)
        if cancelled is not None:
            raise cancelled
        if isinstance(answer, ApprovalVerdict):
            return None, decision_record(answer)
        record = RequestRecord(
            approval_id=answer.approval_id,
            source=source_of(planned),
            digest=answer.digest,
            reasons=planned.reasons,
            expires_at=answer.expires_at,
            is_deferred=self._state.defers_approvals,
        )
        return record, None

    async def _wait_for_decision(self, planned: PlannedCall) -> PlannedCall:
        """Wait for the decision about a call; the run's time limit does not count the wait."""
        known = None if self._recorded is None else self._recorded.decision(planned.call.call_id)
        if known is None:
            if self._recorded is not None and self._recorded.abort is not None:
                raise LoopStopped(self._recorded.abort.error)
            self._go_live()
            await self._buffer.write()
            waiting_since = self._monotonic()
            verdict = await self._ports.approver.wait(planned.approval_id, self._context_of(planned))
            known = decision_record(verdict, planned.approval_id)
            self._deadline.exclude(self._monotonic() - waiting_since)
        return self._with_decision(planned, known)

    def _with_decision(self, planned: PlannedCall, record: DecisionRecord) -> PlannedCall:
        planned = msgspec.structs.replace(planned, decision=record, outcome=refusal_of(record))
        self._steps.append(self._decision_step(planned))
        return planned

    def _carried_step(self, planned: PlannedCall) -> Step:
        """Return the step of a call carried over from an earlier run: its decision, or its request again."""
        if planned.request is None:
            return self._decision_step(planned)
        return request_step(planned.index, planned.call, planned.request, self._now())

    def _decision_step(self, planned: PlannedCall) -> Step:
        assert planned.decision is not None
        return decision_step(planned.index, planned.call, planned.decision, self._now())

    async def _resume_calls(self, recorded: RecordedRun, wave: list[PlannedCall]) -> list[PlannedCall]:
        """Resume calls whose start is journalled: use the recorded results, else go live.

        A call that was running when its process died runs again only if its effect is retryable.
        """
        if any(recorded.is_aborted_before(planned.call.call_id) for planned in wave):
            assert recorded.abort is not None
            raise LoopStopped(recorded.abort.error)
        missing = [each for each in wave if each.outcome is None and recorded.result(each.call.call_id) is None]
        if not missing:
            return wave
        interrupted = [planned for planned in missing if recorded.starts(planned.call.call_id)]
        self._started.update(dict.fromkeys([planned.call.call_id for planned in interrupted], self._monotonic()))
        self._go_live()
        for planned in interrupted:
            if policy_of(planned).effect in RETRYABLE:
                attempt = recorded.starts(planned.call.call_id) + 1
                self._steps.append((None, steps.start_entry(planned, attempt, self._now())))
        await self._buffer.write()
        return [
            msgspec.structs.replace(planned, outcome=UNKNOWN)
            if planned in interrupted and policy_of(planned).effect not in RETRYABLE
            else planned
            for planned in wave
        ]

    def _replay_time_limit(self) -> None:
        """In a replay, reach the time limit where the run reached it the first time."""
        if self._recorded is not None and self._recorded.limit_after(self._rounds_started - 1) == "wall_time":
            self._state.budget.reach("wall_time")

    async def _check_may_run(self, planned: PlannedCall) -> PlannedCall:
        """Decide whether a call may run: within the run's time, and with the approval that its policy requires."""
        if planned.outcome is None and planned.approval_id and planned.decision is None:
            planned = await self._wait_for_decision(planned)
        if planned.outcome is not None:
            return planned
        if self._recorded is not None:
            if self._recorded.starts(planned.call.call_id):
                return planned
            if (known := self._recorded.result(planned.call.call_id)) is not None:
                return msgspec.structs.replace(planned, outcome=known.outcome)
        if self._deadline.is_over:
            return msgspec.structs.replace(planned, outcome=self._state.out_of_time(has_started=False))
        return planned

    async def _run_wave(self, wave: list[PlannedCall]) -> list[Outcome]:
        if any(planned.decision and planned.decision.arguments for planned in wave):
            # Changed arguments may name the same resources as another call of the wave.
            return [await self._run_call(planned) for planned in wave]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run_call(planned)) for planned in wave]
        return [task.result() for task in tasks]

    async def _run_call(self, planned: PlannedCall) -> Outcome:
        """Run one call within the run's remaining time, unless it is answered already."""
        if planned.outcome is not None:
            return planned.outcome
        call_id = planned.call.call_id
        started_at = self._started[call_id] = self._monotonic()
        known = None if self._recorded is None else self._recorded.result(call_id)
        if known is not None:
            self._outcomes[call_id] = known.outcome
            return known.outcome
        early = self._early.take(call_id) if self._early.seen else None
        if early is not None:
            started_at = self._started[call_id] = early.started_at
        outcome: Outcome | None = None
        with self._deadline.limit():
            if early is None:
                call = with_decided_arguments(planned.call, planned.decision)
                outcome = await self._ports.toolbox.run(call, self._context_of(planned))
            else:
                outcome = await early.task
        if outcome is None:
            outcome = self._state.out_of_time(has_started=True)
        if planned.decision is not None:
            outcome = mark_changed(outcome, planned.decision)
        ended = early.ended_at if early is not None and early.ended_at is not None else self._monotonic()
        outcome = msgspec.structs.replace(outcome, duration_s=ended - started_at)
        self._outcomes[call_id] = outcome
        return outcome

    def _context_of(self, planned: PlannedCall) -> CallContext:
        run = self._context
        return CallContext(
            run_id=run.run_id,
            call_id=planned.call.call_id,
            session_id=run.session_id,
            key_id=run.key_id,
            round=self._state.budget.rounds,
            sandbox="" if planned.decision is None else planned.decision.sandbox,
        )

    async def _end(self, end: EndRun) -> RunEnded:
        """Answer the open calls, journal the end, then publish it."""
        for planned in end.calls:
            self._add_unrun_result(planned)
        for item in self._state.partials():
            self._steps.append((None, entry_of_item(item, at=self._now())))
        ended = msgspec.structs.replace(end.ended, ended_at=self._now())
        self._steps.append((ended, steps.status_entry(ended)))
        await self._buffer.write(ended)
        return ended

    def _add_starts(self, wave: list[PlannedCall]) -> None:
        """Queue the start of each call that will run; in a replay, also its recorded repeated starts."""
        for planned in wave:
            if planned.outcome is None:
                self._announced.add(planned.call.call_id)
                self._steps.append((steps.tool_started(planned), steps.start_entry(planned, 1, self._now())))
        if self._recorded is None:
            return
        wave, again = [planned for planned in wave if planned.outcome is None], 2
        while wave:
            wave = [planned for planned in wave if self._recorded.starts(planned.call.call_id) >= again]
            self._steps += [(None, steps.start_entry(planned, again, self._now())) for planned in wave]
            again += 1

    def _add_result(self, planned: PlannedCall, outcome: Outcome) -> ResultItem:
        """Queue the result of a call; one that never ran is announced only now."""
        call = planned.call
        if call.call_id not in self._announced:
            self._steps.append((steps.tool_started(planned), None))
        known = None if self._recorded is None else self._recorded.result(call.call_id)
        if known is None:
            result = steps.result_of(planned, outcome, self._ports.ids.new(RESULT))
        else:
            result, outcome = known.item, known.outcome
        self._steps.append(steps.finished_step(planned, result, outcome, self._now()))
        self._answered.add(call.call_id)
        return result

    def _add_unrun_result(self, planned: PlannedCall) -> None:
        """Queue the result of a call that was not run."""
        call_id, outcome = planned.call.call_id, planned.outcome
        assert outcome is not None, "a call that is not run has an outcome"
        is_early = call_id in self._early or (self._recorded is not None and self._recorded.is_early(call_id))
        self._add_result(planned, mark_unused(outcome) if is_early else outcome)

    def _round_step(self, ask: CallModel) -> Step:
        return steps.round_step(ask, self._state.budget.limit, self._now())
