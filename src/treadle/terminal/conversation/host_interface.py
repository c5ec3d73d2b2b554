"""The port between the terminal and a Treadle: runs, approvals, sessions, tools, facts.

`LocalHost` is the runtime in this process, `RemoteHost` a server over HTTP. The screen does not know which it has.
"""

from collections.abc import AsyncGenerator
from typing import Protocol

import msgspec

from treadle.core.events import RunEvent, Status
from treadle.core.items import AnyItem
from treadle.core.journal_entries import Entry
from treadle.core.tool_definitions import ServerTool
from treadle.core.usage import Usage

FOLDER = "folder"
"""The name in a session's metadata of the folder that it was started in."""


class CallQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The input of one turn: in a session, or, without a journal, with all earlier items."""

    items: tuple[AnyItem, ...]
    model: str
    session_id: str | None = None
    schema: msgspec.Raw | None = None


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stored conversation."""

    id: str
    name: str
    updated_at: float
    head_run_id: str | None = None
    folder: str = ""


class HostRunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a stored conversation."""

    id: str
    status: Status
    model: str = ""
    previous_id: str | None = None
    session_id: str | None = None
    created_at: float = 0.0


class CallDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a person, or of a rule, on a call; `arguments` to run it with others."""

    approve: bool
    by: str = ""
    reason: str = ""
    arguments: str | None = None
    digest: str | None = None


class ProposalInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An open proposal of facts, in the words that a person reads before deciding."""

    id: str
    workspace: str
    version: int
    sha256: str | None
    lines: list[str]


class ConversationHost(Protocol):
    """Where conversations are held."""

    @property
    def place(self) -> str:
        """Return the address; nothing when it is this process."""
        ...

    @property
    def is_persistent(self) -> bool:
        """Return whether conversations are stored, so that they can be resumed."""
        ...

    async def sandbox(self) -> int | None:
        """Return the level that commands run at; None when it is not known."""
        ...

    async def start(self, ask: CallQuestion) -> str:
        """Start a run and return its id.

        Raises: TreadleError.
        """
        ...

    def events(self, run_id: str) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run, from its first one, until its end.

        Raises: TreadleError.
        """
        ...

    async def cancel(self, run_id: str) -> None:
        """End a run.

        Raises: TreadleError.
        """
        ...

    async def decide(self, approval_id: str, decision: CallDecision) -> None:
        """Answer the question whether a call may run.

        Raises: TreadleError; Conflict, when it is answered already.
        """
        ...

    async def list_sessions(self, limit: int, *, search: str = "") -> list[SessionInfo]:
        """Return sessions, the one used last first."""
        ...

    async def find_session(self, id_or_name: str) -> SessionInfo:
        """Return one session.

        Raises: NotFound.
        """
        ...

    async def create_session(self, name: str, folder: str) -> SessionInfo:
        """Create a session.

        Raises: Conflict, when the name is taken.
        """
        ...

    async def rename_session(self, session_id: str, name: str) -> SessionInfo:
        """Rename a session.

        Raises: TreadleError.
        """
        ...

    async def fork_session(self, session_id: str, *, at: str | None = None) -> SessionInfo:
        """Return a new session that continues from the same place, or from an earlier run.

        Raises: TreadleError.
        """
        ...

    async def delete_session(self, session_id: str) -> None:
        """Delete a session and its messages.

        Raises: TreadleError.
        """
        ...

    async def session_entries(self, session_id: str) -> list[Entry]:
        """Return the items of a session, oldest first."""
        ...

    async def list_runs(self, limit: int, *, session_id: str | None = None) -> list[HostRunInfo]:
        """Return runs, newest first."""
        ...

    async def find_run(self, run_id: str) -> HostRunInfo:
        """Return one run.

        Raises: NotFound.
        """
        ...

    async def run_entries(self, run_id: str) -> list[Entry]:
        """Return the journal of a run.

        Raises: NotFound.
        """
        ...

    async def tools(self) -> list[ServerTool]:
        """Return the tools that models are offered."""
        ...

    async def models(self) -> list[str]:
        """Return the names of known models."""
        ...

    async def check_model(self, name: str) -> None:
        """Refuse a model that no upstream serves.

        Raises: TreadleError.
        """
        ...

    async def cost(self, run_id: str, model: str, usage: Usage | None) -> float | None:
        """Return what a run of this usage has cost in US dollars; None when that is not known."""
        ...

    def estimate(self, model: str, usage: Usage) -> float | None:
        """Return what a usage would cost, if that is known without a request."""
        ...

    async def proposals(self) -> list[ProposalInfo]:
        """Return the open proposals of facts."""
        ...

    async def confirm(self, proposal: ProposalInfo) -> None:
        """Make a proposal fact, as it was shown.

        Raises: TreadleError; Conflict, when it moved on.
        """
        ...

    async def reject(self, proposal: ProposalInfo, reason: str) -> None:
        """Refuse a proposal.

        Raises: TreadleError.
        """
        ...
