"""What the routes of workspaces take and give: bodies and views, as structs."""

from typing import Any

import msgspec

from treadle.core.errors import ProtocolError
from treadle.journal.workspaces_interface import ProposalStatus, WorkspaceRow
from treadle.server.http_exchange import Exchange, read_body
from treadle.server.run_response import read
from treadle.server.server_state import Service
from treadle.workspace.json_pointer import Json
from treadle.workspace.proposal_review import Review
from treadle.workspace.workspace_diff import Difference
from treadle.workspace.workspace_state import Actor, Change, Proposal, Section, WorkspaceRecord
from treadle.workspace.workspace_store import Author, ProposalStanding, StoredWorkspace, Taken


class Signed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every change may say: who makes it (`by`, where nobody is known by a key or a login), and why."""

    by: str = ""
    reason: str = ""

    def author(self, actor: Actor = "person") -> Author:
        """Return who acts."""
        return Author(actor=actor, who=self.by, reason=self.reason)


class NewWorkspace(Signed, frozen=True, kw_only=True):
    """The body of POST /treadle/v1/workspaces; `session` is the name or id of one whose runs work on it."""

    name: str = ""
    facts: dict[str, Json] = {}
    draft: dict[str, Json] = {}
    ui: dict[str, Json] = {}
    locks: tuple[str, ...] = ()
    session: str | None = None


class Renamed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of PATCH: what is left out stays, an empty value takes away."""

    name: str | None = None
    session: str | None = None


class Patch(Signed, frozen=True, kw_only=True):
    """Changes to the draft or the UI state; `base_version` is the version that they were made for."""

    changes: tuple[Change, ...]
    base_version: int | None = None


class Lock(Signed, frozen=True, kw_only=True):
    """The body of POST …/locks."""

    path: str


class NewProposal(Signed, frozen=True, kw_only=True):
    """The body of POST …/proposals; `base_version` is the version of the facts that they were made for."""

    changes: tuple[Change, ...]
    base_version: int | None = None


class Confirmation(Signed, frozen=True, kw_only=True):
    """The body of POST …/confirm; `version` is the version of the facts that the person was shown."""

    version: int
    only: tuple[int, ...] | None = None
    changes: tuple[Change, ...] | None = None
    sha256: str | None = None


class Restoration(Signed, frozen=True, kw_only=True):
    """The body of POST …/restore."""

    version: int
    sections: tuple[Section, ...] = ("facts", "draft", "ui")


class WorkspaceLine(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace in a list."""

    id: str
    name: str
    session_id: str | None
    created_at: float
    updated_at: float
    version: int


class WorkspaceView(WorkspaceLine, frozen=True, kw_only=True):
    """A workspace with all it holds."""

    facts_version: int
    facts: dict[str, Json]
    draft: dict[str, Json]
    locks: tuple[str, ...]
    ui: dict[str, Json]
    proposals: tuple[Proposal, ...]


class WorkspacePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of workspaces, the one changed last first; `before` the last id gives the next page."""

    workspaces: list[WorkspaceLine]
    has_more: bool


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of history, newest first; `before` the last version gives the next page."""

    changes: list[WorkspaceRecord]
    has_more: bool


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """What a change led to."""

    version: int
    facts_version: int
    change: WorkspaceRecord


class DiffView(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two versions."""

    start: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")
    diff: tuple[Difference, ...]


class ProposalView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A proposal; an open one with what a person decides on, a decided one with the record of that."""

    workspace_id: str
    id: str
    status: ProposalStatus
    sha256: str
    proposal: Proposal
    decision: WorkspaceRecord | None = None
    review: Review | None = None


class ProposalList(msgspec.Struct, frozen=True, kw_only=True):
    """Proposals, newest first."""

    proposals: list[ProposalView]


def line_of(row: WorkspaceRow) -> WorkspaceLine:
    """Return a workspace as a list shows it."""
    return WorkspaceLine(**{name: getattr(row, name) for name in WorkspaceLine.__struct_fields__})


def view_of(held: StoredWorkspace) -> WorkspaceView:
    """Return a workspace with all it holds."""
    fields: dict[str, Any] = msgspec.structs.asdict(line_of(held.row))
    names = ("facts_version", "facts", "draft", "locks", "ui", "proposals")
    return WorkspaceView(**fields, **{name: getattr(held.workspace, name) for name in names})


def step_of(taken: Taken) -> StepView:
    """Return what a change led to."""
    now = taken.held.workspace
    return StepView(version=now.version, facts_version=now.facts_version, change=taken.record)


def proposal_view(standing: ProposalStanding, review: Review | None = None) -> ProposalView:
    """Return a proposal as this API shows it."""
    proposal = standing.proposal
    return ProposalView(
        workspace_id=standing.workspace_id,
        id=proposal.id,
        status=standing.status,
        sha256=proposal.sha256,
        proposal=proposal,
        decision=standing.decision,
        review=review,
    )


async def take(service: Service, exchange: Exchange, kind: type[Any]) -> Any:
    """Read the body of a request; who is known by a key or a login signs with that name and no other.

    Raises: ProtocolError, naming the field; LimitExceeded, HttpError.
    """
    body = await service.body(exchange)
    given = await read(body or b"{}", lambda data: read_body(data, kind))
    is_signed = isinstance(given, Signed)
    return msgspec.structs.replace(given, by=service.signer(exchange, given.by)) if is_signed else given


def read_version(text: str, name: str) -> int:
    """Read a version from a path or a query.

    Raises: ProtocolError.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise ProtocolError(f"{name} must be a version: a whole number.", param=name)
    return int(text)
