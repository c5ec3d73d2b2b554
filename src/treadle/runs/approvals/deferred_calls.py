"""Resumes calls that an earlier run left for approval: applies the client's decisions, and plans what the run does."""

from collections.abc import Mapping, Sequence

import msgspec

from treadle.core.errors import Conflict, NotFound, ProtocolError
from treadle.core.ids import IdSource
from treadle.core.request import Assent
from treadle.core.shared_ports import Clock
from treadle.core.tool_definitions import Offer, Outcome, ServerTool, failure
from treadle.engine.approval_reasons import DecisionRecord, refusal_of
from treadle.engine.journal_steps import decision_record
from treadle.engine.run_decisions import PlannedCall
from treadle.journal.approvals_interface import DECIDED, USED, ApprovalDecision, ApprovalRow
from treadle.journal.journal_interface import Store
from treadle.runs.approvals.decisions import Answer, Approvals
from treadle.runs.approvals.durable_approver import verdict_of
from treadle.runs.approvals.pending_turn import ResumedTurn, WaitingCall, has_new_message, order_of, split
from treadle.runs.approvals.remembered_rules import canonical_arguments, digest_of
from treadle.runs.conversation_history import JoinedHistory

CLIENT = "client"
"""The `by` of a decision that came with the client's own request."""
_STATUS = {True: "approved", False: "denied"}


class DeferredCalls:
    """Turns open approval requests and a client's decisions into the calls that the next run starts with."""

    def __init__(self, store: Store, clock: Clock, ids: IdSource) -> None:
        self._store = store
        self._clock = clock
        self._service = Approvals(store, clock, ids)

    async def resume(
        self,
        assents: Sequence[Assent],
        joined: JoinedHistory,
        tools: Mapping[str, ServerTool],
        key_id: str,
    ) -> ResumedTurn | None:
        """Return the turn that the run resumes, if an earlier one left requests open. Decides those with an assent.

        Raises: ProtocolError, naming the field; Conflict, naming the decision that stands.
        """
        waiting, history = joined.waiting, (*joined.before, *joined.added)
        answers = await self._matched(assents, joined, key_id)
        if not waiting:
            return None
        rows = {each.record.approval_id: await self._find(each.record.approval_id, key_id) for each in waiting}
        for approval_id, assent in answers.items():
            _check(rows[approval_id], assent)
        for approval_id, assent in answers.items():
            rows[approval_id] = await self._decide(approval_id, assent, key_id)
        order = order_of(history, {each.call.call_id for each in waiting})
        is_over = has_new_message(split(history, order)[2])
        calls: list[PlannedCall] = []
        for index, each in enumerate(waiting):
            row = rows[each.record.approval_id]
            if row is not None and each.record.approval_id not in answers:
                row = await self._settle(row, is_over=is_over)
            calls.append(_planned(index, each, row, tools.get(each.call.name)))
        return ResumedTurn(calls=tuple(calls), order=order)

    async def _matched(self, assents: Sequence[Assent], joined: JoinedHistory, key_id: str) -> dict[str, Assent]:
        """Return the assents by approval id. One that only repeats an earlier decision with its request is skipped.

        Raises: ProtocolError, Conflict.
        """
        asked = {each.record.approval_id for each in joined.waiting}
        answers: dict[str, Assent] = {}
        for assent in assents:
            if assent.approval_id not in asked:
                row = await self._find(assent.approval_id, key_id)
                if row is not None and row.status == _STATUS[assent.approve] and row.id in joined.repeated:
                    continue
                raise self._stray(assent, row)
            known = answers.setdefault(assent.approval_id, assent)
            if known.approve != assent.approve:
                message = f"The approval request {assent.approval_id!r} is approved and denied at once."
                raise ProtocolError(message, param=assent.field)
        return answers

    def _stray(self, assent: Assent, row: ApprovalRow | None) -> ProtocolError | Conflict:
        """Return the error for an assent that belongs to no open request of this conversation."""
        if row is None:
            message = f"There is no approval request {assent.approval_id!r}."
            return ProtocolError(message, param=assent.field, code="approval_not_found")
        if row.used_by is not None or row.status != "pending":
            return _conflict(row, assent)
        return ProtocolError(
            f"The approval request {assent.approval_id!r} was not asked in the response that this one continues.",
            param=assent.field,
            hint="previous_response_id names the response that has the mcp_approval_request.",
        )

    async def _find(self, approval_id: str, key_id: str) -> ApprovalRow | None:
        try:
            return await self._service.find(approval_id, key_id=key_id)
        except NotFound:
            return None

    async def _decide(self, approval_id: str, assent: Assent, key_id: str) -> ApprovalRow:
        """Decide as the client says; an equal decision that was made before stands."""
        row = await self._service.find(approval_id, key_id=key_id)
        # Another run may have resumed the call since the first check.
        _check(row, assent)
        if row.status == _STATUS[assent.approve]:
            return row
        answer = Answer(approve=assent.approve, by=CLIENT, reason=assent.reason)
        try:
            return await self._service.decide(approval_id, answer, key_id=key_id)
        except Conflict:
            row = await self._service.find(approval_id, key_id=key_id)
            _check(row, assent)
            return row

    async def _settle(self, row: ApprovalRow, *, is_over: bool) -> ApprovalRow:
        """Close a request that can no longer be decided: it has expired, or the conversation has continued."""
        if row.used_by is not None or (row.status == "pending" and not is_over):
            return row
        if row.decision is not None:
            return row
        status = "expired" if row.status == "expired" else "cancelled"
        try:
            return await self._store.approvals.decide(row.id, ApprovalDecision(status=status, at=self._clock.now()))
        except Conflict:
            return await self._service.find(row.id)


def _check(row: ApprovalRow | None, assent: Assent) -> None:
    """Check that an assent can still be given. Raises: Conflict, ProtocolError."""
    if row is None:
        message = f"There is no approval request {assent.approval_id!r} any more."
        raise ProtocolError(message, param=assent.field, code="approval_not_found")
    if row.used_by is not None or row.status not in ("pending", _STATUS[assent.approve]):
        raise _conflict(row, assent)


def _conflict(row: ApprovalRow, assent: Assent) -> Conflict:
    if row.used_by is not None:
        message = f"The call of the approval request {row.id} was carried on already, by another response."
        return Conflict(message, code=USED, param=assent.field)
    message = f"The approval request {row.id} is {row.status} already."
    hint = "Go on without an answer to it: the model is told." if row.status == "expired" else None
    return Conflict(message, code=DECIDED, param=assent.field, hint=hint)


def _planned(index: int, each: WaitingCall, row: ApprovalRow | None, tool: ServerTool | None) -> PlannedCall:
    """Plan one call: it runs as it was approved, is answered, or stays deferred."""
    offer = None if tool is None else Offer(spec=tool.spec, side="server", policy=tool.policy, source=tool.source)
    planned = PlannedCall(index=index, call=each.call, offer=offer, reasons=each.record.reasons)
    if row is not None and row.status == "pending" and row.used_by is None:
        request = msgspec.structs.replace(each.record, call=each.call, index=index, is_deferred=True)
        return msgspec.structs.replace(planned, approval_id=row.id, request=request, is_deferred=True)
    record = _record(each, row)
    record = msgspec.structs.replace(record, call=each.call, index=index)
    outcome = refusal_of(record) or _changed(each, tool)
    return msgspec.structs.replace(planned, approval_id=record.approval_id, decision=record, outcome=outcome)


def _record(each: WaitingCall, row: ApprovalRow | None) -> DecisionRecord:
    """Return the decision; one that was used by another run, or is of a different call, does not apply."""
    if row is None or row.used_by is not None:
        return DecisionRecord(approval_id="", status="cancelled")
    question = row.question
    arguments = canonical_arguments(each.call.arguments)
    if question.digest != digest_of(each.call.name, question.source, arguments, row.run_id):
        return DecisionRecord(approval_id="", status="cancelled")
    return decision_record(verdict_of(row))


def _changed(each: WaitingCall, tool: ServerTool | None) -> Outcome | None:
    """Return the outcome of a call whose tool was replaced after it was approved."""
    if tool is None:
        return failure("unknown_tool", f"Not run: there is no tool {each.call.name!r} any more.")
    if tool.source != each.record.source:
        return failure("denied", f"Not run: {each.call.name} is not the tool any more that was approved.")
    return None
