"""Treadle's own API: calls that wait for a person, the decision about each, and the rules that people want remembered.

A decision stands once. Who comes second gets 409 with the approval as it was decided.
"""

from typing import Any, cast, get_args

import msgspec

from treadle.core.errors import Conflict, ProtocolError
from treadle.core.json import canonical_json
from treadle.journal.approvals_interface import ApprovalDecision, ApprovalRow, ApprovalRule, ApprovalStatus, RuleRow
from treadle.runs.approvals.decisions import Answer, Approvals, Remember
from treadle.server.api.page_cursor import read_before
from treadle.server.auth.route_permissions import TREADLE
from treadle.server.http_exchange import NO_RETRY, Exchange, read_body, read_number
from treadle.server.route import BEFORE, FLAG, LIMIT, TEXT, RouteGroup, fields, gives, listed, one_of, text
from treadle.server.server_state import Service

PAGE_MAX = 200
BY_CHARS_MAX = 200
_STATUSES: tuple[str, ...] = get_args(ApprovalStatus)


class DecisionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a decision. `arguments`, an object or its JSON text, are what the call runs with instead."""

    approve: bool
    reason: str = ""
    by: str = ""
    arguments: dict[str, Any] | str | None = None
    remember: Remember | None = None
    digest: str | None = None


class ApprovalView(msgspec.Struct, frozen=True, kw_only=True):
    """An approval as this API shows it; `arguments` is canonical JSON, `digest` what a decision is bound to."""

    id: str
    run_id: str
    call_id: str
    status: ApprovalStatus
    tool: str
    source: str
    arguments: str
    digest: str
    reasons: tuple[str, ...]
    created_at: float
    expires_at: float
    session_id: str | None = None
    is_tainted: bool = False
    is_deferred: bool = False
    used_by: str | None = None
    decision: ApprovalDecision | None = None


class ApprovalPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of approvals, newest first; `before` the last id gives the next page."""

    approvals: list[ApprovalView]
    has_more: bool
    last_id: str | None = None


class RuleView(msgspec.Struct, frozen=True, kw_only=True):
    """A remembered rule; without a session it holds in every one of its project."""

    id: str
    created_at: float
    session_id: str | None
    rule: ApprovalRule


async def index(service: Service, exchange: Exchange) -> None:
    """Return a page of approvals. Raises: ProtocolError, NotFound."""
    query = exchange.query()
    limit = read_number(query, "limit", default=50, least=1, most=PAGE_MAX)
    status = query.get("status")
    if status is not None and status not in _STATUSES:
        raise ProtocolError(f"status must be one of {', '.join(_STATUSES)}.", param="status")
    wanted = cast("ApprovalStatus | None", status)
    before = await read_before(exchange, service.runtime.store.approvals.find)
    rows = await service.runtime.store.approvals.page(
        limit + 1, key_id=exchange.reach, status=wanted, run_id=query.get("run"), before=before
    )
    shown = [_approvals(service).current_status(row) for row in rows[:limit]]
    page = ApprovalPage(
        approvals=[view(row) for row in shown if wanted is None or row.status == wanted],
        has_more=len(rows) > limit,
        last_id=shown[-1].id if shown else None,
    )
    await exchange.answer_json(200, page)


async def get(service: Service, exchange: Exchange) -> None:
    """Return one approval. Raises: NotFound."""
    row = await _approvals(service).find(exchange.params["approval_id"], key_id=exchange.reach)
    await exchange.answer_json(200, view(row))


async def decide(service: Service, exchange: Exchange) -> None:
    """Approve or deny a call once; the body may change its arguments or add a rule.

    Raises: ProtocolError, naming the field; NotFound; LimitExceeded.
    """
    choice = await service.read(exchange, lambda body: read_body(body, DecisionBody))
    if len(choice.by) > BY_CHARS_MAX:
        raise ProtocolError(f"by has at most {BY_CHARS_MAX} characters.", param="by")
    arguments = choice.arguments
    answer = Answer(
        approve=choice.approve,
        by=service.signer(exchange, choice.by),
        reason=choice.reason,
        arguments=canonical_json(arguments).decode() if isinstance(arguments, dict) else arguments,
        remember=choice.remember,
        digest=choice.digest,
    )
    approval_id = exchange.params["approval_id"]
    try:
        row = await _approvals(service).decide(approval_id, answer, key_id=exchange.reach)
    except Conflict as error:
        await _conflict(service, exchange, error)
        return
    await exchange.answer_json(200, view(row))


async def rules(service: Service, exchange: Exchange) -> None:
    """List the remembered rules."""
    found = await _approvals(service).rules(key_id=exchange.reach)
    await exchange.answer_json(200, {"rules": [_rule_view(row) for row in found]})


async def forget_rule(service: Service, exchange: Exchange) -> None:
    """Delete a remembered rule: its calls need approval again. Raises: NotFound."""
    rule_id = exchange.params["rule_id"]
    await _approvals(service).forget_rule(rule_id, key_id=exchange.reach)
    await exchange.answer_json(200, {"id": rule_id, "deleted": True})


def view(row: ApprovalRow) -> ApprovalView:
    """Return an approval in this API's form."""
    question = row.question
    return ApprovalView(
        id=row.id,
        run_id=row.run_id,
        call_id=row.call_id,
        status=row.status,
        tool=question.tool,
        source=question.source,
        arguments=question.arguments,
        digest=question.digest,
        reasons=question.reasons,
        created_at=row.created_at,
        expires_at=row.expires_at,
        session_id=question.session_id,
        is_tainted=question.is_tainted,
        is_deferred=question.is_deferred,
        used_by=row.used_by,
        decision=row.decision,
    )


def _rule_view(row: RuleRow) -> RuleView:
    return RuleView(id=row.id, created_at=row.created_at, session_id=row.session_id, rule=row.rule)


async def _conflict(service: Service, exchange: Exchange, error: Conflict) -> None:
    """Answer 409 with the decision that was made."""
    info = error.info
    shown = {"code": info.code, "message": info.message, "hint": info.hint, "param": info.param}
    row = await _approvals(service).find(exchange.params["approval_id"], key_id=exchange.reach)
    await exchange.answer_json(info.status, {"error": shown, "approval": view(row)}, (NO_RETRY,))


def _approvals(service: Service) -> Approvals:
    return service.runtime.approvals


_STATUS = one_of("status", "only those", *_STATUSES)
_ROWS = RouteGroup("Approvals", TREADLE)
ROUTES = (
    _ROWS.get(
        "/treadle/v1/approvals",
        index,
        "List calls that wait for a person, or waited",
        gives(ApprovalPage),
        query=(LIMIT, BEFORE, _STATUS, text("run", "of this run")),
    ),
    _ROWS.get(
        "/treadle/v1/approvals/rules",
        rules,
        "List what is agreed to without asking",
        gives(fields(rules=listed(RuleView))),
    ),
    _ROWS.row(
        "DELETE",
        "/treadle/v1/approvals/rules/{rule_id}",
        forget_rule,
        "Ask again from now on",
        gives(fields(id=TEXT, deleted=FLAG)),
    ),
    _ROWS.get("/treadle/v1/approvals/{approval_id}", get, "Show an approval", gives(ApprovalView)),
    _ROWS.post(
        "/treadle/v1/approvals/{approval_id}",
        decide,
        "Approve or deny a call, once",
        gives(ApprovalView),
        body=DecisionBody,
    ),
    _ROWS.post(
        "/treadle/v1/approvals/{approval_id}/decide",
        decide,
        "Approve or deny a call, once",
        gives(ApprovalView),
        body=DecisionBody,
    ),
)
