"""Builds the events and journal entries of each kind of step that the loop takes. Pure."""

from collections.abc import Collection, Sequence

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import RoundBroken, RoundStarted, RunEnded, RunEvent, ToolFinished, ToolStarted
from treadle.core.items import CallItem, ResultItem, TextPart
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.core.request import Note
from treadle.core.result_envelope import envelope_of
from treadle.core.tool_definitions import LOCAL, OUTSIDE_ROOT, Outcome, ToolPolicy, failure, flat_failure
from treadle.engine import delta_log
from treadle.engine.approval_reasons import DecisionRecord, with_decided_arguments
from treadle.engine.ports import ApprovalVerdict
from treadle.engine.recorded_run import AbortRecord, Ending, ReplyRecord
from treadle.engine.run_decisions import CallModel, PlannedCall, RepeatModelCall
from treadle.engine.run_state import RunState

Step = tuple[RunEvent | None, Entry | None]
"""An event to publish, an entry to make durable before it, or both."""


_DEFAULT_POLICY = ToolPolicy()


def policy_of(planned: PlannedCall) -> ToolPolicy:
    """Return how a call may run."""
    offer = planned.offer
    return _DEFAULT_POLICY if offer is None or offer.policy is None else offer.policy


def source_of(planned: PlannedCall) -> str:
    """Return where the tool of a call comes from."""
    offer = planned.offer
    return "" if offer is None else offer.source


def round_step(call: CallModel, limit: str | None, at: float) -> Step:
    """Announce a model call; `limit` is the one that was reached, if any."""
    plan = call.plan
    event = RoundStarted(round=call.round, fingerprint=plan.fingerprint, tools=len(plan.tools), final=call.final)
    data = {
        "round": call.round,
        "final": call.final,
        "fingerprint": plan.fingerprint,
        "items": len(plan.items),
        "tools": len(plan.tools),
        "tools_sha256": plan.tools_sha256,
        "tool_choice": plan.tool_choice,
        "limit": limit,
    }
    return event, Entry(kind="plan", name=plan.model, data=msgspec.Raw(msgspec.json.encode(data)), at=at)


def reply_entry(ending: Ending, state: RunState, at: float) -> Entry:
    """Record how a model call ended, and how its items were split into deltas."""
    finish = state.finish if ending == "finished" else None
    if finish is None:
        error = state.error if ending == "failed" else None
        reply = ReplyRecord(ending=ending, base=state.base, error=error, tape=delta_log.encode_deltas(state.events))
    else:
        reply = ReplyRecord(
            ending=ending,
            base=state.base,
            stop=finish.stop,
            raw_stop=finish.raw_stop,
            usage=finish.usage,
            tape=delta_log.encode_deltas(state.events),
        )
    return Entry(kind="reply", content=ending, data=msgspec.Raw(msgspec.json.encode(reply)), at=at)


def note_entry(note: Note, at: float) -> Entry:
    """Record what was dropped, changed or repaired in translation."""
    return Entry(kind="note", content=note.message, data=msgspec.Raw(msgspec.json.encode(note)), at=at)


def abort_entry(error: ErrorInfo | None, at: float) -> Entry:
    """Record that a run is ended from outside; without an error it was cancelled."""
    content = "cancelled" if error is None else error.message
    data = msgspec.Raw(msgspec.json.encode(AbortRecord(error=error)))
    return Entry(kind="error", content=content, data=data, at=at)


def void_step(repeat: RepeatModelCall, round_number: int, at: float) -> Step:
    """Announce that the output of an interrupted model call is void."""
    call_ids = [planned.call.call_id for planned in repeat.calls]
    event = RoundBroken(round=round_number, indexes=repeat.indexes)
    data = {"items": repeat.items, "calls": call_ids, "round": event.round, "indexes": event.indexes}
    return event, Entry(kind="void", data=msgspec.Raw(msgspec.json.encode(data)), at=at)


def tool_started(planned: PlannedCall) -> ToolStarted:
    """Return the event of a call that starts."""
    call = with_decided_arguments(planned.call, planned.decision)
    return ToolStarted(index=planned.index, call=call, source=source_of(planned))


def early_entry(call: CallItem, at: float) -> Entry:
    """Record that a read starts before its model call has ended; its start is published after that."""
    return Entry(kind="tool_early", name=call.name, call_id=call.call_id, at=at)


def start_entry(planned: PlannedCall, attempt: int, at: float) -> Entry:
    """Record that a call starts, for the first time or again."""
    data = {"source": source_of(planned), "effect": policy_of(planned).effect, "attempt": attempt}
    return Entry(
        kind="tool_start",
        name=planned.call.name,
        call_id=planned.call.call_id,
        data=msgspec.Raw(msgspec.json.encode(data)),
        at=at,
    )


def result_of(planned: PlannedCall, outcome: Outcome, item_id: str) -> ResultItem:
    """Make the result of a call from its outcome; errors of local tools have one shape, even if the tool never ran."""
    call = planned.call
    if outcome.is_error and source_of(planned) == LOCAL:
        outcome = flat_failure(outcome)
    return ResultItem(
        id=item_id,
        call_id=call.call_id,
        name=call.name,
        output=outcome.parts or (TextPart(text=outcome.text),),
        is_error=outcome.is_error,
        kind=call.kind,
        summary=outcome.summary,
        rc=outcome.rc,
    )


def is_outside(result: ResultItem) -> bool:
    """Return whether a call was refused for a path outside the root, so that no later call depends on its effect."""
    return any(fault.code == OUTSIDE_ROOT for fault in envelope_of(result).errors)


def finished_step(planned: PlannedCall, result: ResultItem, outcome: Outcome, at: float) -> Step:
    """Announce the result of a call."""
    event = ToolFinished(
        index=planned.index,
        call=with_decided_arguments(planned.call, planned.decision),
        result=result,
        source=source_of(planned),
        duration_s=outcome.duration_s,
        output_bytes=outcome.output_bytes,
        truncated=outcome.truncated,
        sandbox=outcome.sandbox,
    )
    extra = {
        "rc": outcome.rc,
        "source": event.source,
        "duration_s": outcome.duration_s,
        "bytes": outcome.output_bytes,
        "truncated": outcome.truncated,
    }
    if outcome.sandbox:
        extra["sandbox"] = outcome.sandbox
    return event, entry_of_item(result, at=at, extra=extra)


def status_entry(ended: RunEnded) -> Entry:
    """Record the end of a run."""
    return Entry(kind="status", content=ended.status, data=msgspec.Raw(msgspec.json.encode(ended)), at=ended.ended_at)


def skip_after_failure(planned: PlannedCall, calls: Sequence[PlannedCall], failed: Collection[int]) -> PlannedCall:
    """Return the call; if one it depends on has failed, it is answered with `skipped` instead of running."""
    if planned.outcome is not None or not failed:
        return planned
    names = ", ".join(calls[at].call.name for at in sorted(failed))
    message = f"Skipped: {names} failed before it, and works on the same. Repeat this call once that is put right."
    return msgspec.structs.replace(planned, outcome=failure("skipped", message))


def decision_record(verdict: ApprovalVerdict, approval_id: str = "") -> DecisionRecord:
    """Return the record of a verdict; only the field `approved` approves, whatever the code."""
    refused = verdict.code if verdict.code in ("denied", "cancelled") else "expired"
    return DecisionRecord(
        approval_id=verdict.approval_id or approval_id,
        status="approved" if verdict.approved else refused,
        by=verdict.by,
        reason=verdict.reason,
        arguments=verdict.arguments,
        sandbox=verdict.sandbox,
    )


def only_reads(wave: list[PlannedCall]) -> bool:
    """Return whether these calls change nothing outside, so that they need not be durable before they run."""
    return not [planned for planned in wave if planned.outcome is None and policy_of(planned).effect != "read"]
