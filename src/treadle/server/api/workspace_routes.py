"""Treadle's own API: workspaces. Made, read by pointer, patched, locked, looked at as they were, and restored.

A change by somebody known by a key or a login is recorded as a person's, any other as a program's. What a model does
comes through its tools.
"""

import msgspec

from treadle.core.errors import ProtocolError
from treadle.server.api.page_cursor import read_before
from treadle.server.api.session_routes import find_session
from treadle.server.api.workspace_bodies import (
    DiffView,
    HistoryPage,
    Lock,
    NewWorkspace,
    Patch,
    Renamed,
    Restoration,
    Signed,
    StepView,
    WorkspacePage,
    WorkspaceView,
    line_of,
    read_version,
    step_of,
    take,
    view_of,
)
from treadle.server.auth.route_permissions import PREPARE, TREADLE
from treadle.server.http_exchange import Exchange, read_number
from treadle.server.route import BEFORE, COUNT, LIMIT, NOTHING, TEXT, RouteGroup, Schema, fields, gives, number, text
from treadle.server.server_state import Service
from treadle.workspace.excerpts import DEPTH_DEFAULT, ExcerptRange, excerpt
from treadle.workspace.workspace_audit import WorkspaceFinding
from treadle.workspace.workspace_service import Workspaces
from treadle.workspace.workspace_state import Actor, Workspace

PAGE_MAX = 200
EXCERPT_BYTES_MAX = 1_048_576


async def index(service: Service, exchange: Exchange) -> None:
    """Return a page of workspaces. Raises: ProtocolError, NotFound."""
    query = exchange.query()
    limit = read_number(query, "limit", default=50, least=1, most=PAGE_MAX)
    before = await read_before(exchange, service.runtime.store.workspaces.find)
    rows = await workspaces_of(service, exchange).page(limit + 1, before=before)
    page = WorkspacePage(workspaces=[line_of(row) for row in rows[:limit]], has_more=len(rows) > limit)
    await exchange.answer_json(200, page)


async def create(service: Service, exchange: Exchange) -> None:
    """Create a workspace. Raises: ProtocolError, NotFound, Conflict, LimitExceeded."""
    new: NewWorkspace = await take(service, exchange, NewWorkspace)
    if new.facts:
        # Sessions trust facts as a person's statements, so creating them needs a person too.
        exchange.client.check_decides("Making a workspace with facts")
    held = await service.runtime.workspaces.of(exchange.client.key_id).create(
        new.name,
        sections={"facts": new.facts, "draft": new.draft, "ui": new.ui},
        locks=new.locks,
        session_id=await _session(service, exchange, new.session),
        author=new.author(_actor(exchange)),
    )
    location = (b"location", f"/treadle/v1/workspaces/{held.row.id}".encode())
    await exchange.answer_json(201, view_of(held), (location,))


async def get(service: Service, exchange: Exchange) -> None:
    """Return a workspace, or the value at a JSON Pointer in it. Raises: ProtocolError, NotFound."""
    query = exchange.query()
    held = await workspaces_of(service, exchange).get(exchange.params["workspace"])
    if "path" not in query:
        await exchange.answer_json(200, view_of(held))
        return
    glance = ExcerptRange(
        depth=read_number(query, "depth", default=DEPTH_DEFAULT, least=1, most=64),
        offset=read_number(query, "offset", default=0, least=0),
        limit=read_number(query, "limit", default=1_000, least=1, most=10_000),
        bytes_max=EXCERPT_BYTES_MAX,
    )
    page = excerpt(held.workspace.get(query["path"]), query["path"], glance)
    await exchange.answer_json(
        200, {"path": query["path"], "version": held.row.version, **msgspec.structs.asdict(page)}
    )


async def change(service: Service, exchange: Exchange) -> None:
    """Change the name or the session. Raises: ProtocolError, NotFound, Conflict."""
    wanted: Renamed = await take(service, exchange, Renamed)
    if wanted.name is None and wanted.session is None:
        raise ProtocolError("There is nothing to change: give a name or a session.", param="name")
    session_id = wanted.session and await _session(service, exchange, wanted.session)
    held = await workspaces_of(service, exchange).update(
        exchange.params["workspace"], name=wanted.name, session_id=session_id
    )
    await exchange.answer_json(200, view_of(held))


async def delete(service: Service, exchange: Exchange) -> None:
    """Delete a workspace with its history and its proposals. Raises: NotFound."""
    await workspaces_of(service, exchange).delete(exchange.params["workspace"])
    await exchange.answer(204)


async def patch_draft(service: Service, exchange: Exchange) -> None:
    """Apply all changes to the draft, or none. Raises: ProtocolError, NotFound, LimitExceeded, WorkspaceConflict."""
    patch: Patch = await take(service, exchange, Patch)
    workspace = exchange.params["workspace"]
    taken = await workspaces_of(service, exchange).patch_draft(
        workspace, patch.changes, author=patch.author(_actor(exchange)), base=patch.base_version
    )
    await exchange.answer_json(200, step_of(taken))


async def patch_ui(service: Service, exchange: Exchange) -> None:
    """Apply all changes to the UI state, or none. Raises: as `patch_draft`."""
    patch: Patch = await take(service, exchange, Patch)
    workspace = exchange.params["workspace"]
    taken = await workspaces_of(service, exchange).show(
        workspace, patch.changes, author=patch.author(_actor(exchange)), base=patch.base_version
    )
    await exchange.answer_json(200, step_of(taken))


async def lock(service: Service, exchange: Exchange) -> None:
    """Lock a value. Raises: ProtocolError, NotFound, LimitExceeded."""
    wanted: Lock = await take(service, exchange, Lock)
    taken = await workspaces_of(service, exchange).lock(
        exchange.params["workspace"], wanted.path, author=wanted.author()
    )
    await exchange.answer_json(200, step_of(taken))


async def unlock(service: Service, exchange: Exchange) -> None:
    """Unlock a value. Raises: ProtocolError, NotFound."""
    path = exchange.query().get("path")
    if path is None:
        raise ProtocolError("path names the lock to release.", param="path")
    signed: Signed = await take(service, exchange, Signed)
    taken = await workspaces_of(service, exchange).unlock(exchange.params["workspace"], path, author=signed.author())
    await exchange.answer_json(200, step_of(taken))


async def history(service: Service, exchange: Exchange) -> None:
    """Return a page of changes, newest first. Raises: ProtocolError, NotFound."""
    query = exchange.query()
    limit = read_number(query, "limit", default=50, least=1, most=PAGE_MAX)
    before = read_version(query["before"], "before") if "before" in query else None
    records = await workspaces_of(service, exchange).history(
        exchange.params["workspace"], before=before, limit=limit + 1
    )
    await exchange.answer_json(200, HistoryPage(changes=records[:limit], has_more=len(records) > limit))


async def version(service: Service, exchange: Exchange) -> None:
    """Return the workspace as it was at a version. Raises: ProtocolError, NotFound."""
    wanted = read_version(exchange.params["version"], "version")
    await exchange.answer_json(200, await workspaces_of(service, exchange).at(exchange.params["workspace"], wanted))


async def diff(service: Service, exchange: Exchange) -> None:
    """Compare two versions; `to` defaults to the current one. Raises: ProtocolError, NotFound."""
    query = exchange.query()
    workspaces, workspace = workspaces_of(service, exchange), exchange.params["workspace"]
    held = await workspaces.get(workspace)
    start = read_version(query.get("from", ""), "from")
    end = read_version(query["to"], "to") if "to" in query else held.row.version
    differences = await workspaces.diff(held.row.id, start, end)
    await exchange.answer_json(200, DiffView(start=start, end=end, diff=differences))


async def restore(service: Service, exchange: Exchange) -> None:
    """Restore an older version as a new one.

    Raises: ProtocolError, NotFound, WorkspaceConflict, which names the lock in the way.
    """
    wanted: Restoration = await take(service, exchange, Restoration)
    taken = await workspaces_of(service, exchange).restore(
        exchange.params["workspace"], wanted.version, author=wanted.author(), sections=wanted.sections
    )
    await exchange.answer_json(200, step_of(taken))


async def audit(service: Service, exchange: Exchange) -> None:
    """Check whether the history leads to the current state. Raises: NotFound."""
    await exchange.answer_json(200, await workspaces_of(service, exchange).audit(exchange.params["workspace"]))


def workspaces_of(service: Service, exchange: Exchange) -> Workspaces:
    """Return the workspaces that the client may access."""
    return service.runtime.workspaces.of(exchange.reach)


async def _session(service: Service, exchange: Exchange, name: str | None) -> str | None:
    return None if name is None else (await find_session(service, exchange, name)).id


def _actor(exchange: Exchange) -> Actor:
    return "person" if exchange.client.may_decide else "program"


_SHOWN: Schema = {"anyOf": [WorkspaceView, fields(path=TEXT, version=COUNT, value={})]}
_ROWS = RouteGroup("Workspaces", TREADLE)
_PREPARE = RouteGroup("Workspaces", PREPARE)
ROUTES = (
    _ROWS.get(
        "/treadle/v1/workspaces",
        index,
        "List workspaces, the one changed last first",
        gives(WorkspacePage),
        query=(LIMIT, BEFORE),
    ),
    _PREPARE.post(
        "/treadle/v1/workspaces",
        create,
        "Make a workspace",
        gives(WorkspaceView, 201),
        body=NewWorkspace,
        needs_body=False,
    ),
    _ROWS.get(
        "/treadle/v1/workspaces/{workspace}",
        get,
        "Show a workspace, or what is at a JSON Pointer in it",
        gives(_SHOWN),
        query=(
            text("path", "a JSON Pointer"),
            number("depth", "how deep", least=1, most=64),
            number("offset", "from which member"),
            number("limit", "how many members", least=1, most=10_000),
        ),
    ),
    _ROWS.row(
        "PATCH",
        "/treadle/v1/workspaces/{workspace}",
        change,
        "Give a workspace another name or session",
        gives(WorkspaceView),
        body=Renamed,
    ),
    _ROWS.row("DELETE", "/treadle/v1/workspaces/{workspace}", delete, "Forget a workspace", NOTHING),
    _PREPARE.row(
        "PATCH",
        "/treadle/v1/workspaces/{workspace}/draft",
        patch_draft,
        "Change the draft: all of it, or nothing",
        gives(StepView),
        body=Patch,
    ),
    _PREPARE.row(
        "PATCH",
        "/treadle/v1/workspaces/{workspace}/ui",
        patch_ui,
        "Change the UI state: all of it, or nothing",
        gives(StepView),
        body=Patch,
    ),
    _ROWS.post("/treadle/v1/workspaces/{workspace}/locks", lock, "Lock a value", gives(StepView), body=Lock),
    _ROWS.row(
        "DELETE",
        "/treadle/v1/workspaces/{workspace}/locks",
        unlock,
        "Let a value change again",
        gives(StepView),
        query=(text("path", "a JSON Pointer"),),
        body=Signed,
        needs_body=False,
    ),
    _ROWS.get(
        "/treadle/v1/workspaces/{workspace}/history",
        history,
        "List every change, newest first",
        gives(HistoryPage),
        query=(LIMIT, number("before", "the last version of the page before")),
    ),
    _ROWS.get(
        "/treadle/v1/workspaces/{workspace}/versions/{version}", version, "Show a workspace as it was", gives(Workspace)
    ),
    _ROWS.get(
        "/treadle/v1/workspaces/{workspace}/diff",
        diff,
        "Compare two versions",
        gives(DiffView),
        query=(number("from", "a version"), number("to", "a version; now")),
    ),
    _ROWS.post(
        "/treadle/v1/workspaces/{workspace}/restore",
        restore,
        "Bring an older version back",
        gives(StepView),
        body=Restoration,
    ),
    _ROWS.get(
        "/treadle/v1/workspaces/{workspace}/audit",
        audit,
        "Say whether the history leads to the state",
        gives(WorkspaceFinding),
    ),
)
