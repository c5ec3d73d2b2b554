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
    WorkspacePage,
    line_of,
    read_version,
    step_of,
    take,
    view_of,
)
from treadle.server.http_exchange import Exchange, read_number
from treadle.server.server_state import Service
from treadle.workspace.excerpts import DEPTH_DEFAULT, ExcerptRange, excerpt
from treadle.workspace.workspace_service import Workspaces
from treadle.workspace.workspace_state import Actor

PAGE_MAX = 200
LOOK_BYTES_MAX = 1_048_576


async def index(service: Service, exchange: Exchange) -> None:
    """GET /treadle/v1/workspaces?limit&before.

    Raises: ProtocolError, NotFound.
    """
    query = exchange.query()
    limit = read_number(query, "limit", default=50, least=1, most=PAGE_MAX)
    before = await read_before(exchange, service.runtime.store.workspaces.find)
    rows = await desk(service, exchange).page(limit + 1, before=before)
    page = WorkspacePage(workspaces=[line_of(row) for row in rows[:limit]], has_more=len(rows) > limit)
    await exchange.answer_json(200, page)


async def create(service: Service, exchange: Exchange) -> None:
    """POST /treadle/v1/workspaces.

    Raises: ProtocolError, NotFound, Conflict, LimitExceeded.
    """
    new: NewWorkspace = await take(service, exchange, NewWorkspace)
    if new.facts:
        # Facts are a person's word, also the first ones: a session would read them as such.
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
    """GET /treadle/v1/workspaces/{workspace}?path&depth&offset&limit: all of it, or what is at a JSON Pointer.

    Raises: ProtocolError, NotFound.
    """
    query = exchange.query()
    held = await desk(service, exchange).get(exchange.params["workspace"])
    if "path" not in query:
        await exchange.answer_json(200, view_of(held))
        return
    glance = ExcerptRange(
        depth=read_number(query, "depth", default=DEPTH_DEFAULT, least=1, most=64),
        offset=read_number(query, "offset", default=0, least=0),
        limit=read_number(query, "limit", default=1_000, least=1, most=10_000),
        bytes_max=LOOK_BYTES_MAX,
    )
    page = excerpt(held.workspace.get(query["path"]), query["path"], glance)
    await exchange.answer_json(
        200, {"path": query["path"], "version": held.row.version, **msgspec.structs.asdict(page)}
    )


async def change(service: Service, exchange: Exchange) -> None:
    """PATCH /treadle/v1/workspaces/{workspace}: another name, another session.

    Raises: ProtocolError, NotFound, Conflict.
    """
    wanted: Renamed = await take(service, exchange, Renamed)
    if wanted.name is None and wanted.session is None:
        raise ProtocolError("There is nothing to change: give a name or a session.", param="name")
    session_id = wanted.session and await _session(service, exchange, wanted.session)
    held = await desk(service, exchange).update(exchange.params["workspace"], name=wanted.name, session_id=session_id)
    await exchange.answer_json(200, view_of(held))


async def delete(service: Service, exchange: Exchange) -> None:
    """DELETE /treadle/v1/workspaces/{workspace}: forget it, with its history and its proposals.

    Raises: NotFound.
    """
    await desk(service, exchange).delete(exchange.params["workspace"])
    await exchange.answer(204)


async def patch_draft(service: Service, exchange: Exchange) -> None:
    """PATCH /treadle/v1/workspaces/{workspace}/draft: all of the changes, or none.

    Raises: ProtocolError, NotFound, LimitExceeded, WorkspaceConflict.
    """
    patch: Patch = await take(service, exchange, Patch)
    workspace = exchange.params["workspace"]
    taken = await desk(service, exchange).patch_draft(
        workspace, patch.changes, author=patch.author(_actor(exchange)), base=patch.base_version
    )
    await exchange.answer_json(200, step_of(taken))


async def patch_ui(service: Service, exchange: Exchange) -> None:
    """PATCH /treadle/v1/workspaces/{workspace}/ui: all of the changes, or none.

    Raises: as `patch_draft`.
    """
    patch: Patch = await take(service, exchange, Patch)
    workspace = exchange.params["workspace"]
    taken = await desk(service, exchange).show(
        workspace, patch.changes, author=patch.author(_actor(exchange)), base=patch.base_version
    )
    await exchange.answer_json(200, step_of(taken))


async def lock(service: Service, exchange: Exchange) -> None:
    """POST /treadle/v1/workspaces/{workspace}/locks.

    Raises: ProtocolError, NotFound, LimitExceeded.
    """
    wanted: Lock = await take(service, exchange, Lock)
    taken = await desk(service, exchange).lock(exchange.params["workspace"], wanted.path, author=wanted.author())
    await exchange.answer_json(200, step_of(taken))


async def unlock(service: Service, exchange: Exchange) -> None:
    """DELETE /treadle/v1/workspaces/{workspace}/locks?path: a person lets a value change again.

    Raises: ProtocolError, NotFound.
    """
    path = exchange.query().get("path")
    if path is None:
        raise ProtocolError("path names the lock to release.", param="path")
    signed: Signed = await take(service, exchange, Signed)
    taken = await desk(service, exchange).unlock(exchange.params["workspace"], path, author=signed.author())
    await exchange.answer_json(200, step_of(taken))


async def history(service: Service, exchange: Exchange) -> None:
    """GET /treadle/v1/workspaces/{workspace}/history?before&limit: every change, newest first.

    Raises: ProtocolError, NotFound.
    """
    query = exchange.query()
    limit = read_number(query, "limit", default=50, least=1, most=PAGE_MAX)
    before = read_version(query["before"], "before") if "before" in query else None
    records = await desk(service, exchange).history(exchange.params["workspace"], before=before, limit=limit + 1)
    await exchange.answer_json(200, HistoryPage(changes=records[:limit], has_more=len(records) > limit))


async def version(service: Service, exchange: Exchange) -> None:
    """GET /treadle/v1/workspaces/{workspace}/versions/{version}: the workspace as it was.

    Raises: ProtocolError, NotFound.
    """
    wanted = read_version(exchange.params["version"], "version")
    await exchange.answer_json(200, await desk(service, exchange).at(exchange.params["workspace"], wanted))


async def diff(service: Service, exchange: Exchange) -> None:
    """GET /treadle/v1/workspaces/{workspace}/diff?from&to: what differs between two versions; `to` is now.

    Raises: ProtocolError, NotFound.
    """
    query = exchange.query()
    workspaces, workspace = desk(service, exchange), exchange.params["workspace"]
    held = await workspaces.get(workspace)
    start = read_version(query.get("from", ""), "from")
    end = read_version(query["to"], "to") if "to" in query else held.row.version
    differences = await workspaces.diff(held.row.id, start, end)
    await exchange.answer_json(200, DiffView(start=start, end=end, diff=differences))


async def restore(service: Service, exchange: Exchange) -> None:
    """POST /treadle/v1/workspaces/{workspace}/restore: bring an older version back, as a new one.

    Raises: ProtocolError, NotFound, WorkspaceConflict, which names the lock in the way.
    """
    wanted: Restoration = await take(service, exchange, Restoration)
    taken = await desk(service, exchange).restore(
        exchange.params["workspace"], wanted.version, author=wanted.author(), sections=wanted.sections
    )
    await exchange.answer_json(200, step_of(taken))


async def audit(service: Service, exchange: Exchange) -> None:
    """GET /treadle/v1/workspaces/{workspace}/audit: whether the history leads to the state.

    Raises: NotFound.
    """
    await exchange.answer_json(200, await desk(service, exchange).audit(exchange.params["workspace"]))


def desk(service: Service, exchange: Exchange) -> Workspaces:
    """Return the workspaces that the client may reach."""
    return service.runtime.workspaces.of(exchange.reach)


async def _session(service: Service, exchange: Exchange, name: str | None) -> str | None:
    return None if name is None else (await find_session(service, exchange, name)).id


def _actor(exchange: Exchange) -> Actor:
    return "person" if exchange.client.may_decide else "program"
