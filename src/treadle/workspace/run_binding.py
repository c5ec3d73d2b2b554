"""Finds the workspace of a run: the one its request names, else its session's, else the configured default."""

from typing import cast

import msgspec

from treadle.core.errors import Conflict, ToolFailed
from treadle.core.json import OptionalRaw, type_errors
from treadle.journal.journal_interface import Store
from treadle.workspace.workspace_service import Workspaces
from treadle.workspace.workspace_store import PROGRAM, StoredWorkspace

METADATA_KEY = "treadle_workspace"
"""The member of a request's metadata that names a workspace."""


class _Surface(msgspec.Struct, frozen=True, kw_only=True):
    metadata: OptionalRaw = None


class _RequestSurface(msgspec.Struct, frozen=True, kw_only=True):
    surface: _Surface = _Surface()


class Binding:
    """Finds the workspace of a run. `default` is created on first use; empty is none."""

    def __init__(self, workspaces: Workspaces, store: Store, *, default: str = "") -> None:
        self._workspaces = workspaces
        self._store = store
        self._default = default

    async def find(self, run_id: str, session_id: str | None) -> StoredWorkspace:
        """Return the workspace of a run, which belongs to the run's key.

        Raises: ToolFailed, when there is none.
        """
        row = await self._store.find_run(run_id) if run_id else None
        workspaces = self._workspaces if row is None else self._workspaces.of(row.key_id)
        named = None if row is None or row.request is None else _named(row.request)
        if named is not None:
            held = await workspaces.find(named)
            if held is None:
                raise ToolFailed(f"There is no workspace {named[:64]!r}.", code="no_workspace")
            return held
        held = None if session_id is None else await workspaces.find_of_session(session_id)
        if held is None and self._default:
            held = await self._made(workspaces)
        if held is None:
            raise ToolFailed("This run has no workspace.", code="no_workspace")
        return held

    async def _made(self, workspaces: Workspaces) -> StoredWorkspace:
        held = await workspaces.find(self._default)
        if held is None:
            try:
                return await workspaces.create(self._default, author=PROGRAM)
            except Conflict:  # another process was first
                return await workspaces.get(self._default)
        return held


def _named(request: msgspec.Raw) -> str | None:
    """Return the workspace that a request names in its metadata."""
    try:
        metadata = msgspec.json.decode(request, type=_RequestSurface).surface.metadata
        members: object = None if metadata is None else msgspec.json.decode(metadata)
    except type_errors:
        return None
    value = cast("dict[str, object]", members).get(METADATA_KEY) if isinstance(members, dict) else None
    return value if isinstance(value, str) and value else None
