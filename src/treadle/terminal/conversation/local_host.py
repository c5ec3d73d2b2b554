"""Conversations in this process: implements `ConversationHost` on the runtime."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import msgspec

from treadle.core.errors import Conflict, NotFound
from treadle.core.events import RunEnded, RunEvent
from treadle.core.ids import SESSION
from treadle.core.journal_entries import Entry
from treadle.core.request import Options, Request, answer_form
from treadle.core.tool_definitions import ServerTool
from treadle.core.usage import Usage
from treadle.terminal.conversation.host_interface import (
    FOLDER,
    CallDecision,
    CallQuestion,
    HostRunInfo,
    ProposalInfo,
    SessionInfo,
)

if TYPE_CHECKING:
    from treadle.journal.journal_interface import RunRow, SessionRow
    from treadle.runs import RunHandle
    from treadle.runtime import Runtime

PROPOSALS_MAX = 50


class LocalHost:
    """The runtime in this process."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._handles: dict[str, RunHandle] = {}

    @property
    def place(self) -> str:
        """Return nothing: it is here."""
        return ""

    @property
    def is_persistent(self) -> bool:
        """Return whether the settings store runs."""
        return self._runtime.settings.store.persistence == "on"

    async def sandbox(self) -> int | None:
        """Return the level that commands run at here; it is found by a probe the first time."""
        found = await asyncio.to_thread(lambda: self._runtime.sandbox.found)
        return found.level

    async def start(self, ask: CallQuestion) -> str:
        """Start a run and return its id.

        Raises: TreadleError.
        """
        options = Options() if ask.schema is None else Options(output_schema=answer_form(ask.schema))
        request = Request(protocol="treadle", model=ask.model, items=ask.items, options=options)
        handle = await self._runtime.runs.start(request, session_id=ask.session_id)
        self._handles[handle.run_id] = handle
        return handle.run_id

    async def events(self, run_id: str) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run until its end; the session has been advanced when the last one is yielded.

        Raises: NotFound.
        """
        handle = self._handles.get(run_id) or self._runtime.runs.attach(await self._run(run_id))
        try:
            async for batch in handle.events():
                for numbered in batch:
                    if isinstance(numbered.event, RunEnded):
                        await handle.wait()
                    yield numbered.event
        finally:
            self._handles.pop(run_id, None)

    async def cancel(self, run_id: str) -> None:
        """End a run."""
        if (handle := self._handles.get(run_id)) is not None:
            await handle.cancel()
        else:
            await self._runtime.runs.cancel(run_id)

    async def decide(self, approval_id: str, decision: CallDecision) -> None:
        """Answer the question whether a call may run.

        Raises: TreadleError.
        """
        from treadle.runs.approvals.decisions import Answer

        answer = Answer(
            approve=decision.approve,
            by=decision.by,
            reason=decision.reason,
            arguments=decision.arguments,
            digest=decision.digest or None,
        )
        await self._runtime.approvals.decide(approval_id, answer)

    async def list_sessions(self, limit: int, *, search: str = "") -> list[SessionInfo]:
        """Return sessions, the one used last first."""
        return [_session(row) for row in await self._store.list_sessions(limit, search=search or None)]

    async def find_session(self, id_or_name: str) -> SessionInfo:
        """Return one session.

        Raises: NotFound.
        """
        return _session(await self._session(id_or_name))

    async def create_session(self, name: str, folder: str) -> SessionInfo:
        """Create a session.

        Raises: Conflict.
        """
        from treadle.journal.session_operations import check_name

        if await self._store.find_session(name, key_id="") is not None:
            raise Conflict(f"There is a session {name!r} already.", param="name")
        metadata = msgspec.Raw(msgspec.json.encode({FOLDER: folder}))
        row = msgspec.structs.replace(self._new_row(), name=check_name(name), metadata=metadata)
        await self._store.create_session(row)
        return _session(row)

    async def rename_session(self, session_id: str, name: str) -> SessionInfo:
        """Rename a session.

        Raises: TreadleError.
        """
        from treadle.journal.session_operations import check_name

        return _session(await self._store.update_session(session_id, name=check_name(name)))

    async def fork_session(self, session_id: str, *, at: str | None = None) -> SessionInfo:
        """Return a new session that continues from the same place, or from an earlier run.

        Raises: TreadleError.
        """
        from treadle.journal.session_operations import fork_session

        return _session(await fork_session(self._store, await self._session(session_id), self._new_row(), at=at))

    async def delete_session(self, session_id: str) -> None:
        """Delete a session and its messages.

        Raises: TreadleError.
        """
        from treadle.journal.session_operations import forget_session

        await forget_session(self._store, await self._session(session_id), with_runs=True)

    async def session_entries(self, session_id: str) -> list[Entry]:
        """Return the items of a session, oldest first."""
        from treadle.journal.session_operations import read_items

        return await read_items(self._store, await self._session(session_id))

    async def list_runs(self, limit: int, *, session_id: str | None = None) -> list[HostRunInfo]:
        """Return runs, newest first."""
        return [_run_info(row) for row in await self._store.list_runs(limit=limit, session_id=session_id)]

    async def find_run(self, run_id: str) -> HostRunInfo:
        """Return one run.

        Raises: NotFound.
        """
        return _run_info(await self._run(run_id))

    async def run_entries(self, run_id: str) -> list[Entry]:
        """Return the journal of a run.

        Raises: NotFound.
        """
        return await self._store.entries((await self._run(run_id)).id)

    async def tools(self) -> list[ServerTool]:
        """Return the tools that models are offered."""
        return list(self._runtime.registry.tools())

    async def models(self) -> list[str]:
        """Return the names of known models."""
        return [info.id for info in await self._runtime.router.list_models()]

    async def check_model(self, name: str) -> None:
        """Refuse a model that no upstream serves.

        Raises: NotFound.
        """
        from treadle.config.cross_checks import check_model

        check_model(msgspec.structs.replace(self._runtime.settings, default_model=name))
        self._runtime.router.model_for(name)

    async def cost(self, run_id: str, model: str, usage: Usage | None) -> float | None:
        """Return what a usage costs, as far as the settings price it."""
        return self._runtime.prices.cost(model, usage)

    def estimate(self, model: str, usage: Usage) -> float | None:
        """Return what a usage would cost, as far as the settings price it."""
        return self._runtime.prices.cost(model, usage)

    async def proposals(self) -> list[ProposalInfo]:
        """Return the open proposals of facts."""
        from treadle.terminal.rendering.proposal_card import review_lines

        desk = self._runtime.workspaces
        found: list[ProposalInfo] = []
        for standing in await desk.standings(None, status="open", limit=PROPOSALS_MAX):
            review = await desk.review(standing.workspace_id, standing.proposal.id)
            found.append(
                ProposalInfo(
                    id=standing.proposal.id,
                    workspace=standing.workspace_id,
                    version=review.facts_version,
                    sha256=review.sha256,
                    lines=review_lines(review),
                )
            )
        return found

    async def confirm(self, proposal: ProposalInfo) -> None:
        """Make a proposal fact, as it was shown.

        Raises: TreadleError.
        """
        from treadle.workspace.workspace_service import Consent

        consent = Consent(version=proposal.version, sha256=proposal.sha256)
        await self._runtime.workspaces.confirm(proposal.workspace, proposal.id, consent)

    async def reject(self, proposal: ProposalInfo, reason: str) -> None:
        """Refuse a proposal.

        Raises: TreadleError.
        """
        from treadle.workspace.workspace_store import Author

        author = Author(actor="person", reason=reason)
        await self._runtime.workspaces.reject(proposal.workspace, proposal.id, author=author)

    async def _session(self, id_or_name: str) -> "SessionRow":
        from treadle.journal.session_operations import get_session

        return await get_session(self._store, id_or_name, key_id=None)

    async def _run(self, run_id: str) -> "RunRow":
        row = await self._store.find_run(run_id)
        if row is None:
            raise NotFound(f"There is no run {run_id!r}.", param="run")
        return row

    def _new_row(self) -> "SessionRow":
        from treadle.journal.journal_interface import SessionRow

        now = self._runtime.clock.now()
        return SessionRow(id=self._runtime.ids.new(SESSION), created_at=now, updated_at=now)


def _run_info(row: "RunRow") -> HostRunInfo:
    return HostRunInfo(**{name: getattr(row, name) for name in HostRunInfo.__struct_fields__})


def _session(row: "SessionRow") -> SessionInfo:
    return SessionInfo(
        id=row.id,
        name=row.name,
        updated_at=row.updated_at,
        head_run_id=row.head_run_id,
        folder=folder_of(row.metadata),
    )


def folder_of(metadata: msgspec.Raw | None) -> str:
    """Return the folder that a session was started in, if its metadata names one."""
    if metadata is None:
        return ""
    try:
        return str(msgspec.json.decode(metadata, type=dict[str, object]).get(FOLDER, ""))
    except msgspec.MsgspecError:
        return ""
