"""Builds a run's trace from its journal: its rounds, with their texts and calls, and the outcome of every call.

It reads active and ended runs, and never fails on an unreadable entry. Pure.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import Stop
from treadle.core.items import CallItem, Origin, ResultItem, Side, text_of
from treadle.core.journal_entries import ITEM_KINDS, Entry, item_of_entry
from treadle.core.json import type_errors, write_json
from treadle.core.request import Note
from treadle.core.result_envelope import envelope_of
from treadle.core.tool_definitions import AUTO, Envelope, ToolChoice
from treadle.core.usage import Usage, add_usage
from treadle.engine.approval_reasons import DecisionRecord, RequestRecord
from treadle.engine.recorded_run import ReplyRecord

TEXT_CHARS_MAX = 20_000
"""How much of one text is shown; the journal has all of it."""

CallState = Literal["open", "waiting", "running", "done", "failed", "denied", "expired", "client"]
RoundState = Literal["going", "finished", "failed", "expired", "aborted", "interrupted", "void"]
Cost = Callable[[str, Usage | None], float | None]
_REFUSED: dict[str, CallState] = {"denied": "denied", "expired": "expired"}


class TracedApproval(msgspec.Struct, frozen=True, kw_only=True):
    """What a person was asked about a call, and the answer; `arguments` are those it ran with, where changed."""

    id: str
    status: str = "pending"
    reasons: tuple[str, ...] = ()
    asked_at: float | None = None
    expires_at: float | None = None
    decided_at: float | None = None
    by: str = ""
    reason: str = ""
    arguments: str | None = None


class TracedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call: what was asked, who ran it and where, what it gave, and how long that took."""

    call_id: str
    name: str
    state: CallState = "open"
    side: Side = "client"
    origin: Origin = "model"
    source: str = ""
    effect: str = ""
    arguments: str = ""
    raw: str | None = None
    called_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    duration_s: float | None = None
    attempts: int = 0
    rc: str = ""
    output: str | None = None
    envelope: Envelope | None = None
    summary: str | None = None
    output_bytes: int = 0
    is_cut: bool = False
    sandbox: str = ""
    approval: TracedApproval | None = None


class TracedRound(msgspec.Struct, frozen=True, kw_only=True):
    """One model call. What its plan adds to the one before is in counts; the plans themselves are read elsewhere."""

    number: int
    model: str
    state: RoundState
    fingerprint: str = ""
    is_final: bool = False
    limit: str | None = None
    items: int = 0
    items_added: int = 0
    tools: int = 0
    is_tools_changed: bool = False
    tool_choice: ToolChoice = AUTO
    asked_at: float = 0.0
    replied_at: float | None = None
    stop: Stop | None = None
    raw_stop: str | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    error: ErrorInfo | None = None
    text: str = ""
    reasoning: str = ""
    notes: tuple[Note, ...] = ()
    calls: tuple[TracedCall, ...] = ()


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a tree. `question` is the last thing that was asked, `notes` what was noted before the first round."""

    question: str
    rounds: tuple[TracedRound, ...]
    notes: tuple[Note, ...]
    usage: Usage | None
    cost_usd: float | None
    errors: int


class _PlanData(msgspec.Struct):
    round: int = 0
    final: bool = False
    fingerprint: str = ""
    items: int = 0
    tools: int = 0
    tools_sha256: str = ""
    tool_choice: ToolChoice = AUTO
    limit: str | None = None


class _CallData(msgspec.Struct):
    source: str = ""
    effect: str = ""
    duration_s: float | None = None
    bytes: int = 0
    truncated: bool = False
    sandbox: str = ""


class _VoidData(msgspec.Struct):
    calls: tuple[str, ...] = ()


def trace_of(entries: Sequence[Entry], cost: Cost) -> Trace:
    """Return the trace of a run; `cost` returns what a usage of a model costs."""
    builder = _Builder(cost)
    for entry in entries:
        try:
            builder.take(entry)
        except (*type_errors, msgspec.MsgspecError):
            builder.unreadable(entry)
    return builder.trace()


class _Builder:
    """Builds the trace, entry by entry."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        self._question = ""
        self._notes: list[Note] = []
        self._rounds: list[dict[str, Any]] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._tools_sha256 = ""

    def take(self, entry: Entry) -> None:
        """Add one entry."""
        if entry.is_input:
            if entry.kind == "user":
                self._question = entry.content or ""
            return
        data = entry.data or msgspec.Raw(b"{}")
        match entry.kind:
            case "plan":
                self._begin(entry, msgspec.json.decode(data, type=_PlanData))
            case "reply":
                self._reply(entry, msgspec.json.decode(data, type=ReplyRecord))
            case "void":
                self._void(msgspec.json.decode(data, type=_VoidData))
            case "note":
                self._note(msgspec.json.decode(data, type=Note))
            case "tool_early":
                self._call(entry).setdefault("started_at", entry.at)
            case "tool_start":
                found = msgspec.json.decode(data, type=_CallData)
                call = self._call(entry)
                call.setdefault("started_at", entry.at)
                call.update(source=found.source, effect=found.effect, attempts=call.get("attempts", 0) + 1)
            case "approval_request":
                self._add_request(entry, msgspec.json.decode(data, type=RequestRecord))
            case "approval_decision":
                self._add_decision(entry, msgspec.json.decode(data, type=DecisionRecord))
            case kind if kind in ITEM_KINDS:
                self._item(entry, data)
            case _:
                pass

    def unreadable(self, entry: Entry) -> None:
        """Add a note on an entry that could not be read."""
        message = f"Entry {entry.seq} ({entry.kind}) of the journal cannot be read."
        self._note(Note(code="unreadable_entry", action="dropped", message=message))

    def trace(self) -> Trace:
        """Return the trace."""
        calls = {call_id: _finished(fields) for call_id, fields in self._calls.items()}
        rounds: list[TracedRound] = []
        for fields in self._rounds:
            own = tuple(calls[call_id] for call_id in fields.pop("call_ids"))
            rounds.append(TracedRound(**fields, calls=own))
        usage = None
        for each in rounds:
            usage = add_usage(usage, each.usage)
        costs = [each.cost_usd for each in rounds if each.cost_usd is not None]
        bad = ("failed", "denied", "expired")
        errors = sum(each.error is not None for each in rounds)
        errors += sum(call.state in bad for each in rounds for call in each.calls)
        return Trace(
            question=_cut(self._question),
            rounds=tuple(rounds),
            notes=tuple(self._notes),
            usage=usage,
            cost_usd=sum(costs) if costs else None,
            errors=errors,
        )

    def _begin(self, entry: Entry, plan: _PlanData) -> None:
        before = self._rounds[-1] if self._rounds else None
        counted = [fields for fields in self._rounds if fields["number"] and fields["state"] != "void"]
        self._rounds.append(
            {
                "number": len(counted) + 1,
                "model": entry.name or "",
                "state": "going",
                "fingerprint": plan.fingerprint,
                "is_final": plan.final,
                "limit": plan.limit,
                "items": plan.items,
                "items_added": plan.items - (before["items"] if before else 0),
                "tools": plan.tools,
                "is_tools_changed": before is not None and plan.tools_sha256 != self._tools_sha256,
                "tool_choice": plan.tool_choice,
                "asked_at": entry.at,
                "notes": (),
                "text": "",
                "reasoning": "",
                "call_ids": [],
            }
        )
        self._tools_sha256 = plan.tools_sha256

    def _reply(self, entry: Entry, reply: ReplyRecord) -> None:
        if not self._rounds:
            return
        current = self._rounds[-1]
        current.update(
            state=reply.ending,
            replied_at=entry.at,
            stop=reply.stop,
            raw_stop=reply.raw_stop,
            usage=reply.usage,
            cost_usd=self._cost(current["model"], reply.usage),
            error=reply.error,
        )

    def _void(self, void: _VoidData) -> None:
        if self._rounds:
            self._rounds[-1]["state"] = "void"
        for call_id in void.calls:
            if call_id in self._calls:
                self._calls[call_id].update(rc="void", output=None, envelope=None)

    def _note(self, note: Note) -> None:
        if self._rounds:
            self._rounds[-1]["notes"] = (*self._rounds[-1]["notes"], note)
        else:
            self._notes.append(note)

    def _add_request(self, entry: Entry, record: RequestRecord) -> None:
        self._call(entry)["approval"] = TracedApproval(
            id=record.approval_id, reasons=record.reasons, asked_at=entry.at, expires_at=record.expires_at or None
        )

    def _add_decision(self, entry: Entry, record: DecisionRecord) -> None:
        call = self._call(entry)
        if record.call is not None:
            call.update(_described(record.call, entry.at))
        asked: TracedApproval = call.get("approval") or TracedApproval(id=record.approval_id)
        call["approval"] = msgspec.structs.replace(
            asked,
            status=record.status,
            decided_at=entry.at,
            by=record.by,
            reason=record.reason,
            arguments=record.arguments,
        )

    def _item(self, entry: Entry, data: msgspec.Raw) -> None:
        if entry.kind == "tool_call":
            item = item_of_entry(entry)
            if isinstance(item, CallItem):
                self._call(entry).update(_described(item, entry.at))
        elif entry.kind == "tool_result":
            item = item_of_entry(entry)
            if isinstance(item, ResultItem):
                self._result(entry, item, msgspec.json.decode(data, type=_CallData))
        elif self._rounds and entry.kind in ("assistant", "reasoning") and entry.content:
            lane = "text" if entry.kind == "assistant" else "reasoning"
            known = self._rounds[-1][lane]
            self._rounds[-1][lane] = _cut(f"{known}\n\n{entry.content}" if known else entry.content)

    def _result(self, entry: Entry, item: ResultItem, found: _CallData) -> None:
        text = text_of(item.output)
        call = self._call(entry)
        call.update(
            ended_at=entry.at,
            duration_s=found.duration_s,
            rc=item.rc,
            output=_cut(text),
            envelope=_envelope(item),
            summary=item.summary,
            output_bytes=found.bytes or len(text.encode("utf-8", "replace")),
            is_cut=found.truncated or len(text) > TEXT_CHARS_MAX,
            sandbox=found.sandbox,
            is_error=item.is_error,
        )
        if found.source:
            call["source"] = found.source

    def _call(self, entry: Entry) -> dict[str, Any]:
        """Return the fields of an entry's call; one carried over from an earlier run is in a round 0."""
        call_id = entry.call_id or ""
        if call_id not in self._calls:
            self._calls[call_id] = {"call_id": call_id, "name": entry.name or "", "called_at": entry.at}
            if not self._rounds:
                self._begin(Entry(kind="plan", at=entry.at), _PlanData())
                self._rounds[-1].update(number=0, state="finished")
            self._rounds[-1]["call_ids"].append(call_id)
        return self._calls[call_id]


def _described(item: CallItem, at: float) -> dict[str, Any]:
    return {
        "name": item.name,
        "side": item.side,
        "origin": item.origin,
        "arguments": _cut(item.arguments),
        "raw": None if item.raw is None else _cut(item.raw),
        "called_at": at,
    }


def _finished(fields: dict[str, Any]) -> TracedCall:
    is_error = bool(fields.pop("is_error", False))
    return TracedCall(**fields, state=_state(fields, is_error=is_error))


def _state(fields: dict[str, Any], *, is_error: bool) -> CallState:
    approval: TracedApproval | None = fields.get("approval")
    if fields.get("ended_at") is not None:
        return "done" if not is_error else _REFUSED.get(fields.get("rc", ""), "failed")
    if fields.get("started_at") is not None:
        return "running"
    if approval is not None and approval.status == "pending":
        return "waiting"
    return "client" if fields.get("side") == "client" else "open"


def _envelope(item: ResultItem) -> Envelope:
    """Return the envelope of a result; data that is too long is replaced by its text, cut."""
    envelope = envelope_of(item)
    if len(envelope.data) <= TEXT_CHARS_MAX:
        return envelope
    data = msgspec.Raw(write_json(_cut(bytes(envelope.data).decode())))
    return msgspec.structs.replace(envelope, data=data)


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX]
