"""Treadle's own API: proposals to change facts, and a person's decision on each. This is what `facts.commit` is.

A decision is bound to the proposal and to the version of the facts that was shown. When they have moved on the answer
is 409 with all three sides of every change, and nothing is merged.
"""

from typing import cast, get_args

import msgspec

from treadle.core.errors import Conflict, NotFound, ProtocolError, WorkspaceConflict
from treadle.journal.workspaces_interface import ProposalStatus
from treadle.server.api.workspace_bodies import (
    Confirmation,
    NewProposal,
    ProposalList,
    ProposalView,
    Signed,
    StepView,
    proposal_view,
    step_of,
    take,
)
from treadle.server.api.workspace_routes import PAGE_MAX, workspaces_of
from treadle.server.auth.route_permissions import PREPARE, TREADLE
from treadle.server.http_exchange import NO_RETRY, Exchange, read_number
from treadle.server.route import LIMIT, RouteGroup, gives, one_of
from treadle.server.server_state import Service
from treadle.workspace.proposal_review import Review
from treadle.workspace.workspace_service import Consent

_STATUSES: tuple[str, ...] = get_args(ProposalStatus)


async def everywhere(service: Service, exchange: Exchange) -> None:
    """Return the proposals of all workspaces. Raises: ProtocolError."""
    await _list(service, exchange, None)


async def index(service: Service, exchange: Exchange) -> None:
    """Return the proposals of a workspace. Raises: ProtocolError, NotFound."""
    await _list(service, exchange, exchange.params["workspace"])


async def create(service: Service, exchange: Exchange) -> None:
    """Create a proposal for a person to decide. Raises: ProtocolError, NotFound, LimitExceeded, WorkspaceConflict."""
    new: NewProposal = await take(service, exchange, NewProposal)
    workspace = exchange.params["workspace"]
    standing = await workspaces_of(service, exchange).propose(
        workspace, new.changes, author=new.author("program"), base=new.base_version
    )
    review = await workspaces_of(service, exchange).review(workspace, standing.proposal.id)
    location = f"/treadle/v1/workspaces/{standing.workspace_id}/proposals/{standing.proposal.id}"
    await exchange.answer_json(201, proposal_view(standing, review), ((b"location", location.encode()),))


async def get(service: Service, exchange: Exchange) -> None:
    """Return a proposal with what it would change. Raises: NotFound."""
    workspace, proposal = exchange.params["workspace"], exchange.params["proposal"]
    review = await _review(service, exchange, workspace, proposal)
    await exchange.answer_json(
        200, proposal_view(await workspaces_of(service, exchange).standing(workspace, proposal), review)
    )


async def confirm(service: Service, exchange: Exchange) -> None:
    """Apply a proposal to the facts. Raises: ProtocolError, NotFound; Conflict, when it is decided already."""
    given: Confirmation = await take(service, exchange, Confirmation)
    workspace, proposal = exchange.params["workspace"], exchange.params["proposal"]
    consent = Consent(version=given.version, only=given.only, changes=given.changes, sha256=given.sha256)
    try:
        taken = await workspaces_of(service, exchange).confirm(workspace, proposal, consent, author=given.author())
    except WorkspaceConflict as error:
        await _conflict(service, exchange, error)
        return
    await exchange.answer_json(200, step_of(taken))


async def reject(service: Service, exchange: Exchange) -> None:
    """Reject a proposal, with a reason. Raises: ProtocolError, NotFound; Conflict, when it is decided already."""
    given: Signed = await take(service, exchange, Signed)
    workspace, proposal = exchange.params["workspace"], exchange.params["proposal"]
    await exchange.answer_json(
        200, step_of(await workspaces_of(service, exchange).reject(workspace, proposal, author=given.author()))
    )


async def _list(service: Service, exchange: Exchange, workspace: str | None) -> None:
    query = exchange.query()
    status = query.get("status")
    if status is not None and status not in _STATUSES:
        raise ProtocolError(f"status must be one of {', '.join(_STATUSES)}.", param="status")
    limit = read_number(query, "limit", default=100, least=1, most=PAGE_MAX)
    standings = await workspaces_of(service, exchange).standings(
        workspace, status=cast("ProposalStatus | None", status), limit=limit
    )
    await exchange.answer_json(200, ProposalList(proposals=[proposal_view(each) for each in standings]))


async def _conflict(service: Service, exchange: Exchange, error: WorkspaceConflict) -> None:
    """Answer 409 with the current review, which a person needs to decide again."""
    info = error.info
    shown = {"code": info.code, "message": info.message, "hint": info.hint, "param": info.param}
    review = await _review(service, exchange, exchange.params["workspace"], exchange.params["proposal"])
    body = {"error": shown, "review": None if review is None else msgspec.to_builtins(review)}
    await exchange.answer_json(info.status, body, (NO_RETRY,))


async def _review(service: Service, exchange: Exchange, workspace: str, proposal: str) -> Review | None:
    """Return the review of an open proposal."""
    try:
        return await workspaces_of(service, exchange).review(workspace, proposal)
    except Conflict:
        return None
    except NotFound:
        # Decided between the two reads, so there is nothing to review. The caller has checked that it exists.
        await workspaces_of(service, exchange).standing(workspace, proposal)
        return None


_STATUS = one_of("status", "only those", *_STATUSES)
_ROWS = RouteGroup("Workspaces", TREADLE)
_PREPARE = RouteGroup("Workspaces", PREPARE)
ROUTES = (
    _ROWS.get(
        "/treadle/v1/workspaces/{workspace}/proposals",
        index,
        "List the proposals of a workspace",
        gives(ProposalList),
        query=(LIMIT, _STATUS),
    ),
    _PREPARE.post(
        "/treadle/v1/workspaces/{workspace}/proposals",
        create,
        "Propose a change of facts",
        gives(ProposalView, 201),
        body=NewProposal,
    ),
    _ROWS.get("/treadle/v1/workspaces/{workspace}/proposals/{proposal}", get, "Show a proposal", gives(ProposalView)),
    _ROWS.post(
        "/treadle/v1/workspaces/{workspace}/proposals/{proposal}/confirm",
        confirm,
        "Make a proposal fact",
        gives(StepView),
        body=Confirmation,
    ),
    _ROWS.post(
        "/treadle/v1/workspaces/{workspace}/proposals/{proposal}/reject",
        reject,
        "Reject a proposal",
        gives(StepView),
        body=Signed,
        needs_body=False,
    ),
    _ROWS.get(
        "/treadle/v1/proposals",
        everywhere,
        "List the proposals of all workspaces",
        gives(ProposalList),
        query=(LIMIT, _STATUS),
    ),
)
