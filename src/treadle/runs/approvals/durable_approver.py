"""The approver that stores requests as rows, so that a request outlives the process that made it."""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol, cast

import msgspec

from treadle.core.errors import Conflict, StoreError
from treadle.core.ids import APPROVAL, IdSource
from treadle.core.json import BadJson, read_json
from treadle.core.shared_ports import Clock
from treadle.core.tool_definitions import CallContext
from treadle.engine.approval_reasons import POLICY
from treadle.engine.ports import ApprovalVerdict, PendingApproval, PermissionRequest
from treadle.journal.approvals_interface import ApprovalDecision, ApprovalQuestion, ApprovalRow
from treadle.journal.journal_interface import RunRow, Store
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.providers.direct_call_model import DIRECT_MODEL
from treadle.runs.approvals.remembered_rules import agrees, canonical_arguments, digest_of

POLL_S = 1.0
"""How long to wait for a change notification before the row is read again."""
BY_PRECHECK = f"{POLICY}protected"
"""Who denies a call that would fail whatever a person says."""
PAUSE_S = 0.05
"""The minimum time between two reads."""


class AskedTools(Protocol):
    """What is known of the tools here before a person is asked about a call of one; a registry fits."""

    def refusal(self, name: str, source: str, arguments: Mapping[str, Any]) -> str:
        """Return why a call would fail even if a person allowed it, or ""."""
        ...

    def command_level(self, name: str, source: str) -> str:
        """Return the sandbox level that a tool runs commands at, or ""."""
        ...


class DenyAll:
    """Denies every request, for processes where no person can be asked. Fits the engine's `Approver` port."""

    async def ask(self, request: PermissionRequest, context: CallContext) -> PendingApproval | ApprovalVerdict:
        """Deny the call, with the reason for the model."""
        why = "; ".join(request.reasons)
        reason = f"The tool {request.call.name!r} needs a person's approval ({why}), and there is nobody to ask here."
        return ApprovalVerdict(approved=False, reason=reason)

    async def wait(self, approval_id: str, context: CallContext) -> ApprovalVerdict:
        """Deny a request that another approver made."""
        return ApprovalVerdict(approved=False, reason="There is nobody to ask here.")


class ApproverRules(msgspec.Struct, frozen=True, kw_only=True):
    """How long requests stay open: `wait_s` while a client waits, else `stored_s`. Without `is_open` all are denied.

    `project` is the folder that rules without a session apply to.
    """

    wait_s: float = 300.0
    stored_s: float = 3600.0
    is_open: bool = True
    project: str = ""


class DurableApprover:
    """Fits the engine's `Approver` port."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdSource,
        rules: ApproverRules | None = None,
        tools: AskedTools | None = None,
    ) -> None:
        self._tools = tools
        self._store = store
        self._clock = clock
        self._ids = ids
        self._rules = rules or ApproverRules()

    async def ask(self, request: PermissionRequest, context: CallContext) -> PendingApproval | ApprovalVerdict:
        """Approve by a remembered rule, else store a pending request.

        Raises: StoreError.
        """
        run = await self._store.find_run(context.run_id)
        key_id = "" if run is None else run.key_id
        question = _question(request, context, self._rules.project)
        if self._tools is not None and (level := self._tools.command_level(question.tool, question.source)):
            question = msgspec.structs.replace(question, sandbox=level)
        for row in await self._store.approvals.rules(key_id=key_id, tool=question.tool):
            if agrees(row, question):
                return ApprovalVerdict(approved=True, by=f"rule {row.id}", sandbox=row.rule.sandbox)
        if not self._rules.is_open:
            return await DenyAll().ask(request, context)
        if self._tools is not None and (why := await _refusal(question, self._tools)):
            return ApprovalVerdict(approved=False, by=BY_PRECHECK, reason=why)
        now = self._clock.now()
        asked = ApprovalRow(
            id=self._ids.new(APPROVAL),
            run_id=context.run_id,
            call_id=request.call.call_id,
            key_id=key_id,
            created_at=now,
            expires_at=now + self._time_for(request, run),
            question=question,
        )
        row = await self._store.approvals.file(asked)
        if row.question.digest != question.digest:
            return ApprovalVerdict(
                approved=False, reason="The approval of this call belongs to a call with other arguments."
            )
        return PendingApproval(approval_id=row.id, digest=row.question.digest, expires_at=row.expires_at)

    async def wait(self, approval_id: str, context: CallContext) -> ApprovalVerdict:
        """Wait for the decision or the expiry; an unavailable store is waited for too.

        Raises: StoreError, for a lasting failure.
        """
        while True:
            try:
                verdict = await self._poll(approval_id, context)
            except StoreError as error:
                if error.info.code != StoreError.code:
                    raise
                # Waiting is safe: if the lease is lost in the meantime, the heartbeat ends the run.
                await self._clock.sleep(POLL_S)
                continue
            if verdict is not None:
                return verdict

    async def _poll(self, approval_id: str, context: CallContext) -> ApprovalVerdict | None:
        """Return the decision if there is one, else wait for the next change of the run."""
        row = await self._store.approvals.find(approval_id)
        if row is None:
            return ApprovalVerdict(approved=False, code="cancelled", approval_id=approval_id)
        if row.status != "pending":
            return verdict_of(row)
        left_s = row.expires_at - self._clock.now()
        if left_s <= 0:
            await self._expire(row)
            return None
        started_at = self._clock.monotonic()
        await self._store.wait_change(context.run_id, min(left_s, POLL_S))
        if self._clock.monotonic() - started_at < PAUSE_S:
            await self._clock.sleep(PAUSE_S)
        return None

    async def _expire(self, row: ApprovalRow) -> None:
        try:
            await self._store.approvals.decide(row.id, ApprovalDecision(status="expired", at=self._clock.now()))
        except Conflict:
            return  # it was decided at the last moment, and that stands

    def _time_for(self, request: PermissionRequest, run: RunRow | None) -> float:
        if run is None or run.background or request.is_deferred:
            return self._rules.stored_s
        is_connected = run.protocol in PROTOCOLS or run.model == DIRECT_MODEL
        return self._rules.wait_s if is_connected else self._rules.stored_s


def verdict_of(row: ApprovalRow) -> ApprovalVerdict:
    """Return a decided approval as the engine's verdict."""
    decision = row.decision or ApprovalDecision(status=row.status, at=0.0)
    return ApprovalVerdict(
        approved=row.status == "approved",
        code=row.status,
        reason=decision.reason,
        by=decision.by,
        arguments=decision.arguments,
        approval_id=row.id,
        sandbox=row.question.sandbox,
    )


async def _refusal(question: ApprovalQuestion, tools: AskedTools) -> str:
    """Return why a call fails whatever a person says: so nobody is asked, and the model reads how to ask."""
    try:
        value: Any = read_json(question.arguments)
    except BadJson:
        return ""
    if not isinstance(value, dict):
        return ""
    # It looks at the disk, which may be a slow one.
    arguments = cast("dict[str, Any]", value)
    return await asyncio.to_thread(tools.refusal, question.tool, question.source, arguments)


def _question(request: PermissionRequest, context: CallContext, project: str) -> ApprovalQuestion:
    arguments = canonical_arguments(request.call.arguments)
    policy = request.offer.policy
    return ApprovalQuestion(
        tool=request.call.name,
        source=request.offer.source,
        arguments=arguments,
        digest=digest_of(request.call.name, request.offer.source, arguments, context.run_id),
        reasons=request.reasons,
        session_id=context.session_id,
        project=project,
        is_tainted=request.is_tainted,
        is_exec=policy is not None and policy.exec,
        is_deferred=request.is_deferred,
    )
