"""Conversations at a server: implements `ConversationHost` over Treadle's HTTP API."""

import secrets
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any, Self

import msgspec

from treadle.core.errors import NotFound, TreadleError
from treadle.core.events import ENDED, RunEvent
from treadle.core.journal_entries import Entry
from treadle.core.tool_definitions import ServerTool, ToolPolicy, ToolSpec
from treadle.core.usage import Usage
from treadle.terminal.conversation.host_interface import (
    FOLDER,
    CallDecision,
    CallQuestion,
    HostRunInfo,
    ProposalInfo,
    SessionInfo,
)
from treadle.terminal.conversation.remote_client import PersonKey, RemoteClient, segment

PAGE = 200
MESSAGES_PAGE = 1_000
PAST_ALL = 1_000_000_000
"""A number that no entry of a run has."""
_RUNS, _SESSIONS, _APPROVALS = "/treadle/v1/runs", "/treadle/v1/sessions", "/treadle/v1/approvals"


class _Session(msgspec.Struct):
    id: str
    name: str
    updated_at: float
    head_run_id: str | None = None
    metadata: dict[str, Any] | None = None

    @property
    def info(self) -> SessionInfo:
        folder = str((self.metadata or {}).get(FOLDER, ""))
        return SessionInfo(
            id=self.id, name=self.name, updated_at=self.updated_at, head_run_id=self.head_run_id, folder=folder
        )


class _Sessions(msgspec.Struct):
    sessions: list[_Session]


class _SessionEntries(msgspec.Struct):
    messages: list[Entry]
    has_more: bool


class _Runs(msgspec.Struct):
    runs: list[HostRunInfo]


class _Entries(msgspec.Struct):
    entries: list[Entry]
    has_more: bool


class _Cost(msgspec.Struct):
    status: str = ""
    cost_usd: float | None = None


class _Trace(msgspec.Struct):
    trace: _Cost


class _Tool(msgspec.Struct):
    spec: ToolSpec
    policy: ToolPolicy = ToolPolicy()
    source: str = ""
    sandbox: str = ""


class _Tools(msgspec.Struct):
    tools: list[_Tool]


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class RemoteHost:
    """A Treadle at an address; use it as an async context manager."""

    def __init__(self, url: str, key: str = "", person: PersonKey | None = None) -> None:
        self._client = RemoteClient(url, key, person)

    async def __aenter__(self) -> Self:
        await self._client.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    @property
    def place(self) -> str:
        """Return the address."""
        return self._client.place

    @property
    def is_persistent(self) -> bool:
        """Return that sessions are stored by the server."""
        return True

    async def sandbox(self) -> int | None:
        """Return the level that commands run at there, if there are any."""
        found = await self._client.get("/treadle/v1/tools", _Tools)
        level = next((tool.sandbox for tool in found.tools if tool.spec.name == "bash" and tool.source == "local"), "")
        return int(level[1]) if len(level) == 2 and level[0] == "L" and level[1].isdigit() else None

    async def start(self, ask: CallQuestion) -> str:
        """Start a run and return its id; asked again after a broken connection, it is started once.

        Raises: TreadleError.
        """
        body: dict[str, Any] = {"input": ask.items, "model": ask.model, "session": ask.session_id}
        if ask.schema is not None:
            body["schema"] = ask.schema
        return (await self._client.post_again(_RUNS, body, HostRunInfo, secrets.token_hex(16))).id

    def events(self, run_id: str) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run, from its first one, until its end."""
        return self._client.events(run_id)

    async def cancel(self, run_id: str) -> None:
        """End a run. Raises: TreadleError."""
        await self._client.post(f"{_RUNS}/{segment(run_id)}/cancel", {}, HostRunInfo)

    async def decide(self, approval_id: str, decision: CallDecision) -> None:
        """Answer the question whether a call may run. Raises: TreadleError."""
        body = {name: value for name, value in msgspec.structs.asdict(decision).items() if value not in (None, "")}
        await self._client.post(f"{_APPROVALS}/{segment(approval_id)}", body, dict[str, Any])

    async def list_sessions(self, limit: int, *, search: str = "") -> list[SessionInfo]:
        """Return sessions, the one used last first."""
        page = await self._client.get(_SESSIONS, _Sessions, {"limit": min(limit, PAGE), "search": search})
        return [session.info for session in page.sessions]

    async def find_session(self, id_or_name: str) -> SessionInfo:
        """Return one session. Raises: NotFound."""
        return (await self._client.get(f"{_SESSIONS}/{segment(id_or_name)}", _Session, {"limit": 1})).info

    async def create_session(self, name: str, folder: str) -> SessionInfo:
        """Create a session. Raises: Conflict."""
        body = {"name": name, "metadata": {FOLDER: folder}}
        return (await self._client.post(_SESSIONS, body, _Session)).info

    async def rename_session(self, session_id: str, name: str) -> SessionInfo:
        """Rename a session. Raises: TreadleError."""
        return (await self._client.patch(f"{_SESSIONS}/{segment(session_id)}", {"name": name}, _Session)).info

    async def fork_session(self, session_id: str, *, at: str | None = None) -> SessionInfo:
        """Return a new session that continues from the same place. Raises: TreadleError."""
        body = {} if at is None else {"at": at}
        return (await self._client.post(f"{_SESSIONS}/{segment(session_id)}/fork", body, _Session)).info

    async def delete_session(self, session_id: str) -> None:
        """Delete a session and its messages. Raises: TreadleError."""
        await self._client.delete(f"{_SESSIONS}/{segment(session_id)}", {"runs": "true"})

    async def session_entries(self, session_id: str) -> list[Entry]:
        """Return the items of a session, oldest first."""
        entries: list[Entry] = []
        while True:
            query = {"after": len(entries), "limit": MESSAGES_PAGE}
            page = await self._client.get(f"{_SESSIONS}/{segment(session_id)}", _SessionEntries, query)
            entries += page.messages
            if not page.has_more or not page.messages:
                return entries

    async def list_runs(self, limit: int, *, session_id: str | None = None) -> list[HostRunInfo]:
        """Return runs, newest first."""
        query = {"limit": min(limit, PAGE), "session": session_id}
        return (await self._client.get(_RUNS, _Runs, query)).runs

    async def find_run(self, run_id: str) -> HostRunInfo:
        """Return one run, without its journal. Raises: NotFound."""
        return await self._client.get(f"{_RUNS}/{segment(run_id)}", HostRunInfo, {"after": PAST_ALL})

    async def run_entries(self, run_id: str) -> list[Entry]:
        """Return the journal of a run. Raises: NotFound."""
        entries: list[Entry] = []
        while True:
            after = entries[-1].seq if entries else 0
            page = await self._client.get(f"{_RUNS}/{segment(run_id)}", _Entries, {"after": after})
            entries += page.entries
            if not page.has_more or not page.entries:
                return entries

    async def tools(self) -> list[ServerTool]:
        """Return the tools that models are offered."""
        found = await self._client.get("/treadle/v1/tools", _Tools)
        return [ServerTool(spec=tool.spec, policy=tool.policy, source=tool.source) for tool in found.tools]

    async def models(self) -> list[str]:
        """Return the names of known models."""
        return [model.id for model in (await self._client.get("/v1/models", _Models)).data]

    async def check_model(self, name: str) -> None:
        """Refuse a model that the server does not list, if it lists any. Raises: NotFound."""
        known = await self.models()
        if known and name not in known:
            raise NotFound(f"the server has no model {name!r}", hint=f"it has {', '.join(known[:20])}")

    async def cost(self, run_id: str, model: str, usage: Usage | None) -> float | None:
        """Return the cost of a run so far according to the server; None when it cannot be asked."""
        path = f"{_RUNS}/{segment(run_id)}"
        try:
            run = await self._client.get(path, _Cost, {"after": PAST_ALL})
            if run.status in ENDED:
                return run.cost_usd
            return (await self._client.get(f"{path}/trace", _Trace)).trace.cost_usd
        except TreadleError:
            return None

    def estimate(self, model: str, usage: Usage) -> float | None:
        """Return nothing: prices are known to the server."""
        return None

    async def proposals(self) -> list[ProposalInfo]:
        """Return the open proposals of facts."""
        from treadle.server.api.workspace_bodies import ProposalList, ProposalView
        from treadle.terminal.rendering.proposal_card import review_lines

        page = await self._client.get("/treadle/v1/proposals", ProposalList, {"status": "open"})
        found: list[ProposalInfo] = []
        for each in page.proposals:
            path = f"/treadle/v1/workspaces/{segment(each.workspace_id)}/proposals/{segment(each.id)}"
            review = (await self._client.get(path, ProposalView)).review
            if review is not None:
                found.append(
                    ProposalInfo(
                        id=each.id,
                        workspace=each.workspace_id,
                        version=review.facts_version,
                        sha256=review.sha256,
                        lines=review_lines(review),
                    )
                )
        return found

    async def confirm(self, proposal: ProposalInfo) -> None:
        """Make a proposal fact, as it was shown. Raises: TreadleError."""
        body = {"version": proposal.version, "sha256": proposal.sha256}
        await self._client.post(f"{_proposal(proposal)}/confirm", body, dict[str, Any])

    async def reject(self, proposal: ProposalInfo, reason: str) -> None:
        """Refuse a proposal. Raises: TreadleError."""
        await self._client.post(f"{_proposal(proposal)}/reject", {"reason": reason}, dict[str, Any])


def _proposal(proposal: ProposalInfo) -> str:
    return f"/treadle/v1/workspaces/{segment(proposal.workspace)}/proposals/{segment(proposal.id)}"
