"""The desk: asks people about calls through durable rows, so that a question outlives the process that asked it."""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol, cast

import msgspec

from treadle.core.errors import Conflict, StoreError
from treadle.core.ids import APPROVAL, IdSource
from treadle.core.json import BadJson, read_json
from treadle.core.tool_definitions import CallContext
from treadle.engine.approval_reasons import POLICY
from treadle.engine.ports import Clock, PendingApproval, PermissionRequest, Verdict
from treadle.journal.approvals_interface import ApprovalDecision, ApprovalQuestion, ApprovalRow
from treadle.journal.journal_interface import RunRow, Store
from treadle.providers.direct_call_model import DIRECT_MODEL
from treadle.runs.approvals.remembered_rules import agrees, canonical_arguments, digest_of
from treadle.runs.approvals.unattended import DenyAll

HEARD = frozenset({"chat", "messages", "gemini", "responses"})
"""APIs whose client holds its connection while the run waits."""
LOOK_S = 1.0
"""How long the desk relies on being woken before it looks by itself."""
BY_PRECHECK = f"{POLICY}protected"
"""Who denies a call that would fail whatever a person says."""
PAUSE_S = 0.05
"""What it waits at least between two looks."""


class AskedTools(Protocol):
    """What is known of the tools here before a person is asked about a call of one; a registry fits."""

    def refusal(self, name: str, source: str, arguments: Mapping[str, Any]) -> str:
        """Return why a call would fail even if a person allowed it, or ""."""
        ...

    def command_level(self, name: str, source: str) -> str:
        """Return the sandbox level that a tool runs commands at, or ""."""
        ...


class DeskRules(msgspec.Struct, frozen=True, kw_only=True):
    """How long a question stands: where a client waits, and where none does. `is_open` false asks nobody.

    `project` is the folder that rules without a session hold for.
    """

    wait_s: float = 300.0
    stored_s: float = 3600.0
    is_open: bool = True
    project: str = ""


class ApprovalDesk:
    """Fits the engine's Approver port."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdSource,
        rules: DeskRules | None = None,
        tools: AskedTools | None = None,
    ) -> None:
        self._tools = tools
        self._store = store
        self._clock = clock
        self._ids = ids
        self._rules = rules or DeskRules()

    async def ask(self, plea: PermissionRequest, context: CallContext) -> PendingApproval | Verdict:
        """Answer by a remembered rule, else put the question where people find it.

        Raises: StoreError.
        """
        run = await self._store.find_run(context.run_id)
        key_id = "" if run is None else run.key_id
        question = _question(plea, context, self._rules.project)
        if self._tools is not None and (level := self._tools.command_level(question.tool, question.source)):
            question = msgspec.structs.replace(question, sandbox=level)
        for row in await self._store.approvals.rules(key_id=key_id, tool=question.tool):
            if agrees(row, question):
                return Verdict(approved=True, by=f"rule {row.id}", sandbox=row.rule.sandbox)
        if not self._rules.is_open:
            return await DenyAll().ask(plea, context)
        if self._tools is not None and (why := await _refusal(question, self._tools)):
            return Verdict(approved=False, by=BY_PRECHECK, reason=why)
        now = self._clock.now()
        asked = ApprovalRow(
            id=self._ids.new(APPROVAL),
            run_id=context.run_id,
            call_id=plea.call.call_id,
            key_id=key_id,
            created_at=now,
            expires_at=now + self._time_for(plea, run),
            question=question,
        )
        row = await self._store.approvals.file(asked)
        if row.question.digest != question.digest:
            return Verdict(approved=False, reason="The approval of this call belongs to a call with other arguments.")
        return PendingApproval(approval_id=row.id, digest=row.question.digest, expires_at=row.expires_at)

    async def hear(self, approval_id: str, context: CallContext) -> Verdict:
        """Wait until somebody decides, or until the time is over; a store that is away meanwhile is waited for too.

        Raises: StoreError, for what does not pass by itself.
        """
        while True:
            try:
                verdict = await self._look(approval_id, context)
            except StoreError as error:
                if error.info.code != StoreError.code:
                    raise
                # Nothing is lost by waiting: a run whose lease is lost meanwhile is ended by its heartbeat.
                await self._clock.sleep(LOOK_S)
                continue
            if verdict is not None:
                return verdict

    async def _look(self, approval_id: str, context: CallContext) -> Verdict | None:
        """Look once what was decided; where nothing was, wait until it is worth looking again."""
        row = await self._store.approvals.find(approval_id)
        if row is None:
            return Verdict(approved=False, code="cancelled", approval_id=approval_id)
        if row.status != "pending":
            return verdict_of(row)
        left_s = row.expires_at - self._clock.now()
        if left_s <= 0:
            await self._expire(row)
            return None
        begun = self._clock.monotonic()
        await self._store.wait_change(context.run_id, min(left_s, LOOK_S))
        if self._clock.monotonic() - begun < PAUSE_S:
            await self._clock.sleep(PAUSE_S)
        return None

    async def _expire(self, row: ApprovalRow) -> None:
        try:
            await self._store.approvals.decide(row.id, ApprovalDecision(status="expired", at=self._clock.now()))
        except Conflict:
            return  # somebody decided at the last moment, and that stands

    def _time_for(self, plea: PermissionRequest, run: RunRow | None) -> float:
        if run is None or run.background or plea.is_deferred:
            return self._rules.stored_s
        is_heard = run.protocol in HEARD or run.model == DIRECT_MODEL
        return self._rules.wait_s if is_heard else self._rules.stored_s


def verdict_of(row: ApprovalRow) -> Verdict:
    """Return a decided approval as the engine hears it."""
    decision = row.decision or ApprovalDecision(status=row.status, at=0.0)
    return Verdict(
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


def _question(plea: PermissionRequest, context: CallContext, project: str) -> ApprovalQuestion:
    arguments = canonical_arguments(plea.call.arguments)
    policy = plea.offer.policy
    return ApprovalQuestion(
        tool=plea.call.name,
        source=plea.offer.source,
        arguments=arguments,
        digest=digest_of(plea.call.name, plea.offer.source, arguments, context.run_id),
        reasons=plea.reasons,
        session_id=context.session_id,
        project=project,
        is_tainted=plea.is_tainted,
        is_exec=policy is not None and policy.exec,
        is_deferred=plea.is_deferred,
    )
