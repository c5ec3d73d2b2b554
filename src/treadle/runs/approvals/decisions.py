"""Lists and decides approvals, for every interface through which a person approves or denies a call."""

import asyncio
from typing import Any, Literal

import msgspec

from treadle.core.errors import Conflict, NotFound, ProtocolError
from treadle.core.ids import RULE, IdSource
from treadle.core.json import BadJson, read_json
from treadle.core.shared_ports import Clock
from treadle.journal.approvals_interface import ApprovalDecision, ApprovalRow, ApprovalStatus, RuleKind, RuleRow
from treadle.journal.journal_interface import Store
from treadle.runs.approvals.remembered_rules import canonical_arguments, make_rule
from treadle.runs.run_setup import read_frame
from treadle.tools.json_schema import BadSchema, Validator
from treadle.tools.schema_worker import CheckTimeout

REASON_CHARS_MAX = 2_000
FAULTS_WAIT_S = 5.0
FAULTS_SHOWN_MAX = 10
ARGUMENTS_BYTES_MAX = 1_048_576
Scope = Literal["session", "project"]


class Remember(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which calls are approved from now on, and where: in this session, or everywhere in this store."""

    kind: RuleKind = "call"
    scope: Scope = "session"
    patterns: dict[str, str] = {}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A person's decision: `arguments` changes those of the call, `digest` must match the call that was shown."""

    approve: bool
    by: str = ""
    reason: str = ""
    arguments: str | None = None
    remember: Remember | None = None
    digest: str | None = None


class Approvals:
    """Finds, lists and decides approvals, and stores remembered rules."""

    def __init__(
        self, store: Store, clock: Clock, ids: IdSource, *, arguments_bytes_max: int = ARGUMENTS_BYTES_MAX
    ) -> None:
        self._arguments_bytes_max = arguments_bytes_max
        self._store = store
        self._clock = clock
        self._ids = ids

    async def find(self, approval_id: str, *, key_id: str | None = None) -> ApprovalRow:
        """Return an approval with its current status.

        Raises: NotFound.
        """
        row = await self._store.approvals.find(approval_id, key_id=key_id)
        if row is None:
            raise NotFound(
                f"There is no approval {approval_id!r}.",
                hint="`treadle approvals` and GET /treadle/v1/approvals list them.",
            )
        return self.current_status(row)

    async def page(
        self,
        limit: int = 50,
        *,
        key_id: str | None = None,
        status: ApprovalStatus | None = None,
        run_id: str | None = None,
        before: str | None = None,
    ) -> list[ApprovalRow]:
        """Return approvals, newest first.

        Raises: NotFound.
        """
        rows = await self._store.approvals.page(limit, key_id=key_id, status=status, run_id=run_id, before=before)
        shown = [self.current_status(row) for row in rows]
        return [row for row in shown if status != "pending" or row.status == "pending"]

    async def decide(self, approval_id: str, answer: Answer, *, key_id: str | None = None) -> ApprovalRow:
        """Decide a pending approval, once, and store the rule that comes with it.

        Raises: NotFound; ProtocolError, naming the field; Conflict, naming the decision that stands.
        """
        row = await self.find(approval_id, key_id=key_id)
        if answer.digest is not None and answer.digest != row.question.digest:
            message = "The digest is not that of this call: what was read is not what would run."
            raise Conflict(message, code="approval_digest", param="digest")
        arguments = _changed(answer, row, self._arguments_bytes_max)
        if arguments is not None and row.status == "pending":
            await self._check(row, arguments)
        rule = None if answer.remember is None else self._rule(answer, answer.remember, _as_approved(row, arguments))
        decision = ApprovalDecision(
            status="approved" if answer.approve else "denied",
            at=self._clock.now(),
            by=answer.by,
            reason=answer.reason[:REASON_CHARS_MAX],
            arguments=arguments,
        )
        decided = await self._store.approvals.decide(approval_id, decision)
        if rule is not None:
            await self._store.approvals.add_rule(rule)
        return decided

    async def rules(self, *, key_id: str | None = None) -> list[RuleRow]:
        """Return the remembered rules, newest first."""
        return await self._store.approvals.rules(key_id=key_id)

    async def forget_rule(self, rule_id: str, *, key_id: str | None = None) -> None:
        """Delete a rule.

        Raises: NotFound.
        """
        if not await self._store.approvals.delete_rule(rule_id, key_id=key_id):
            raise NotFound(
                f"There is no rule {rule_id!r}.",
                hint="`treadle approvals rules` and GET /treadle/v1/approvals/rules list them.",
            )

    async def _check(self, row: ApprovalRow, arguments: str) -> None:
        """Check changed arguments against the schema that the model was offered.

        Raises: ProtocolError, listing the faults.
        """
        frame = read_frame(await self._store.entries(row.run_id, for_next=True))
        offers = {} if frame is None else {framed.name: framed.offer for framed in frame.offers}
        offer = offers.get(row.question.tool)
        if offer is None:
            return
        problem = await _faults(offer.spec.parameters, arguments)
        if problem:
            message = f"The arguments do not fit the parameters of {row.question.tool}: {problem}."
            raise ProtocolError(message, param="arguments")

    def _rule(self, answer: Answer, remember: Remember, row: ApprovalRow) -> RuleRow:
        if not answer.approve:
            raise ProtocolError("Only an approval can be remembered.", param="remember")
        session_id = row.question.session_id if remember.scope == "session" else None
        if remember.scope == "session" and session_id is None:
            raise ProtocolError(
                "The run belongs to no session.", param="remember.scope", hint='scope "project" holds everywhere'
            )
        rule = make_rule(remember.kind, row.question, remember.patterns, is_everywhere=session_id is None)
        return RuleRow(
            id=self._ids.new(RULE),
            created_at=self._clock.now(),
            rule=rule,
            session_id=session_id,
            key_id=row.key_id,
        )

    def current_status(self, row: ApprovalRow) -> ApprovalRow:
        """Return the row with its current status: a pending one whose time is over has expired."""
        if row.status == "pending" and row.expires_at <= self._clock.now():
            return msgspec.structs.replace(row, status="expired")
        return row


def _as_approved(row: ApprovalRow, arguments: str | None) -> ApprovalRow:
    """Return the row with the approved arguments, so that a rule remembers those."""
    if arguments is None:
        return row
    return msgspec.structs.replace(row, question=msgspec.structs.replace(row.question, arguments=arguments))


async def _faults(parameters: msgspec.Raw, arguments: str) -> str:
    """Return the faults of arguments, empty if they fit. The check is bounded in time."""
    value: Any = read_json(arguments)
    try:
        validator = await asyncio.to_thread(Validator, parameters)
        if await validator.fits(value):
            return ""
        found = await asyncio.wait_for(asyncio.to_thread(validator.faults, value), FAULTS_WAIT_S)
    except (BadSchema, CheckTimeout, TimeoutError) as error:
        return str(error) or "they do not fit the schema"
    return "; ".join(f"{fault.path or '/'} {fault.message}" for fault in found[:FAULTS_SHOWN_MAX])


def _changed(answer: Answer, row: ApprovalRow, bytes_max: int) -> str | None:
    """Return the arguments to run with, if they differ from those of the request."""
    if answer.arguments is None:
        return None
    if not answer.approve:
        raise ProtocolError("A call that is denied has no arguments.", param="arguments")
    if len(answer.arguments.encode("utf-8", "replace")) > bytes_max:
        raise ProtocolError(f"The arguments are larger than {bytes_max} bytes.", param="arguments")
    try:
        value: Any = read_json(answer.arguments)
    except BadJson as error:
        raise ProtocolError(f"The arguments are not JSON: {error}.", param="arguments") from None
    if not isinstance(value, dict):
        raise ProtocolError("The arguments must be a JSON object.", param="arguments")
    changed = canonical_arguments(answer.arguments)
    return None if changed == row.question.arguments else changed
