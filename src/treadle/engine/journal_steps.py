"""What the loop says and writes down, as events and entries: one function for each kind. Pure."""

from collections.abc import Collection, Sequence

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import RoundBroken, RoundStarted, RunEnded, RunEvent, ToolFinished, ToolStarted
from treadle.core.items import CallItem, ResultItem, TextPart
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.core.request import Note
from treadle.core.result_envelope import envelope_of
from treadle.core.tool_definitions import LOCAL, OUTSIDE_ROOT, Outcome, ToolPolicy, failure, flat_failure
from treadle.engine import delta_log as tape
from treadle.engine.approval_reasons import DecisionRecord, as_run
from treadle.engine.ports import Verdict
from treadle.engine.recorded_run import AbortRecord, Ending, ReplyRecord
from treadle.engine.run_decisions import AskAgain, AskModel, PlannedCall
from treadle.engine.run_state import RunState

Step = tuple[RunEvent | None, Entry | None]
"""An event to tell, an entry to make durable before it, or both."""


_USUAL = ToolPolicy()


def policy_of(planned: PlannedCall) -> ToolPolicy:
    """Return how a call may run."""
    offer = planned.offer
    return _USUAL if offer is None or offer.policy is None else offer.policy


def source_of(planned: PlannedCall) -> str:
    """Return where the tool of a call comes from."""
    offer = planned.offer
    return "" if offer is None else offer.source


def round_step(ask: AskModel, limit: str | None, at: float) -> Step:
    """Say that a model call is about to be made; `limit` is the one that was reached, if any."""
    plan = ask.plan
    event = RoundStarted(round=ask.round, fingerprint=plan.fingerprint, tools=len(plan.tools), final=ask.final)
    data = {
        "round": ask.round,
        "final": ask.final,
        "fingerprint": plan.fingerprint,
        "items": len(plan.items),
        "tools": len(plan.tools),
        "tools_sha256": plan.tools_sha256,
        "tool_choice": plan.tool_choice,
        "limit": limit,
    }
    return event, Entry(kind="plan", name=plan.model, data=msgspec.Raw(msgspec.json.encode(data)), at=at)


def reply_entry(ending: Ending, turn: RunState, at: float) -> Entry:
    """Write down how a model call ended, and in which pieces it came."""
    finish = turn.finish if ending == "finished" else None
    if finish is None:
        error = turn.error if ending == "failed" else None
        reply = ReplyRecord(ending=ending, base=turn.base, error=error, tape=tape.record(turn.said))
    else:
        reply = ReplyRecord(
            ending=ending,
            base=turn.base,
            stop=finish.stop,
            raw_stop=finish.raw_stop,
            usage=finish.usage,
            tape=tape.record(turn.said),
        )
    return Entry(kind="reply", content=ending, data=msgspec.Raw(msgspec.json.encode(reply)), at=at)


def note_entry(note: Note, at: float) -> Entry:
    """Write down what could not be carried whole, or was repaired."""
    return Entry(kind="note", content=note.message, data=msgspec.Raw(msgspec.json.encode(note)), at=at)


def abort_entry(error: ErrorInfo | None, at: float) -> Entry:
    """Write down that a run is ended from outside; without an error somebody cancelled it."""
    words = "cancelled" if error is None else error.message
    data = msgspec.Raw(msgspec.json.encode(AbortRecord(error=error)))
    return Entry(kind="error", content=words, data=data, at=at)


def void_step(broken: AskAgain, round_number: int, at: float) -> Step:
    """Say that what a cut model call said does not count."""
    call_ids = [planned.call.call_id for planned in broken.calls]
    event = RoundBroken(round=round_number, indexes=broken.indexes)
    data = {"items": broken.items, "calls": call_ids, "round": event.round, "indexes": event.indexes}
    return event, Entry(kind="void", data=msgspec.Raw(msgspec.json.encode(data)), at=at)


def started(planned: PlannedCall) -> ToolStarted:
    """Say that a call begins to run."""
    call = planned.call if planned.decision is None else as_run(planned.call, planned.decision)
    return ToolStarted(index=planned.index, call=call, source=source_of(planned))


def early_entry(call: CallItem, at: float) -> Entry:
    """Mark that a read begins before its turn is complete; its start is told once it is."""
    return Entry(kind="tool_early", name=call.name, call_id=call.call_id, at=at)


def start_entry(planned: PlannedCall, attempt: int, at: float) -> Entry:
    """Mark that a call begins to run, for the first time or again."""
    data = {"source": source_of(planned), "effect": policy_of(planned).effect, "attempt": attempt}
    return Entry(
        kind="tool_start",
        name=planned.call.name,
        call_id=planned.call.call_id,
        data=msgspec.Raw(msgspec.json.encode(data)),
        at=at,
    )


def result_of(planned: PlannedCall, outcome: Outcome, item_id: str) -> ResultItem:
    """Make the result of a call out of its outcome; a local tool has one shape of errors, also where it never ran."""
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
    """Tell whether a call was refused for a path outside the root: it changed nothing that others could build on."""
    return any(fault.code == OUTSIDE_ROOT for fault in envelope_of(result).errors)


def finished_step(planned: PlannedCall, result: ResultItem, outcome: Outcome, at: float) -> Step:
    """Say that a call has its result."""
    event = ToolFinished(
        index=planned.index,
        call=planned.call if planned.decision is None else as_run(planned.call, planned.decision),
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
    """Write down the end of a run."""
    return Entry(kind="status", content=ended.status, data=msgspec.Raw(msgspec.json.encode(ended)), at=ended.ended_at)


def unless_failed(planned: PlannedCall, calls: Sequence[PlannedCall], failed: Collection[int]) -> PlannedCall:
    """Return the call, answered if an earlier one failed that it builds on."""
    if planned.outcome is not None or not failed:
        return planned
    names = ", ".join(calls[at].call.name for at in sorted(failed))
    words = f"Skipped: {names} failed before it, and works on the same. Repeat this call once that is put right."
    return msgspec.structs.replace(planned, outcome=failure("skipped", words))


def record_of(verdict: Verdict, approval_id: str = "") -> DecisionRecord:
    """Write down what somebody said about a call; only `approved` itself approves, whatever the code."""
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
    """Tell whether nothing in the world changes by these calls: they need not be durable before they run."""
    return not [planned for planned in wave if planned.outcome is None and policy_of(planned).effect != "read"]
