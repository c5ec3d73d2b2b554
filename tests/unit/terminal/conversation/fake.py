"""A host without a Treadle behind it: it tells what it is given and remembers what it is asked."""

import asyncio
from collections.abc import AsyncGenerator

from treadle.core.errors import Conflict, NotFound
from treadle.core.events import ItemDone, RunEnded, RunEvent, RunStarted, TextDelta
from treadle.core.items import text_message, text_of
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.core.tool_definitions import ServerTool, ToolSpec
from treadle.core.usage import Usage
from treadle.terminal.conversation.host_interface import (
    CallDecision,
    CallQuestion,
    HostRunInfo,
    ProposalInfo,
    SessionInfo,
)
from treadle.terminal.editor.screen_interface import Actions
from treadle.terminal.rendering.approval_card import CardChoice


class FakeHost:
    """Fits `Host`."""

    def __init__(self, *, is_persistent: bool = True, place: str = "") -> None:
        self.is_persistent = is_persistent
        self.place = place
        self.asked: list[CallQuestion] = []
        self.runs: dict[str, list[RunEvent]] = {}
        self.rows: list[HostRunInfo] = []
        self.known: dict[str, SessionInfo] = {}
        self.entries: dict[str, list[Entry]] = {}
        self.decided: list[tuple[str, CallDecision]] = []
        self.cancelled: list[str] = []
        self.open_proposals: list[ProposalInfo] = []
        self.deeds: list[str] = []
        self.answer: list[RunEvent] = []
        self.holds = asyncio.Event()
        self.holds.set()
        self.level: int | None = 3
        self.price: float | None = None

    async def sandbox(self) -> int | None:
        """Return the level."""
        return self.level

    async def start(self, ask: CallQuestion) -> str:
        """Start a run that answers with the prompt, or with what was given."""
        said = text_of(ask.items[-1].content)  # pyright: ignore[reportAttributeAccessIssue]
        if said == "fail":
            raise NotFound("no such model", hint="name another")
        self.asked.append(ask)
        run_id = f"run_{len(self.asked)}"
        answer = text_message("assistant", f"you said {said}", "m")
        told = self.answer or [TextDelta(index=0, text=f"you said {said}"), ItemDone(index=0, item=answer)]
        started = RunStarted(run_id=run_id, response_id="resp", model=ask.model or "theirs", created_at=0.0)
        self.runs[run_id] = [started, *told]
        session = self.known.get(ask.session_id or "")
        previous = session.head_run_id if session else None
        self.rows.insert(0, HostRunInfo(id=run_id, status="completed", previous_id=previous, session_id=ask.session_id))
        self.entries[run_id] = [entry_of_item(item, at=0.0, is_input=True) for item in ask.items]
        if session is not None:
            self.known[session.id] = SessionInfo(
                id=session.id, name=session.name, updated_at=1.0, head_run_id=run_id, folder=session.folder
            )
        return run_id

    async def events(self, run_id: str) -> AsyncGenerator[RunEvent, None]:
        """Yield the events; before the end it waits while it is held."""
        for event in self.runs[run_id]:
            yield event
        await asyncio.wait_for(self.holds.wait(), 10)
        is_cancelled = run_id in self.cancelled
        yield RunEnded(status="cancelled" if is_cancelled else "completed", rounds=1, usage=Usage(input_tokens=7))

    async def cancel(self, run_id: str) -> None:
        """End a run."""
        self.cancelled.append(run_id)
        self.holds.set()

    async def decide(self, approval_id: str, decision: CallDecision) -> None:
        """Remember the decision."""
        if any(known == approval_id for known, _ in self.decided):
            raise Conflict("decided already")
        self.decided.append((approval_id, decision))
        self.holds.set()

    async def list_sessions(self, limit: int, *, search: str = "") -> list[SessionInfo]:
        """Return those whose name holds a text."""
        return [each for each in self.known.values() if search in each.name][:limit]

    async def find_session(self, id_or_name: str) -> SessionInfo:
        """Return one."""
        for each in self.known.values():
            if id_or_name in (each.id, each.name):
                return each
        raise NotFound(f"There is no session {id_or_name!r}.")

    async def create_session(self, name: str, folder: str) -> SessionInfo:
        """Keep a new one."""
        if any(each.name == name for each in self.known.values()):
            raise Conflict("taken")
        info = SessionInfo(id=f"sess_{len(self.known) + 1}", name=name, updated_at=0.0, folder=folder)
        self.known[info.id] = info
        return info

    async def rename_session(self, session_id: str, name: str) -> SessionInfo:
        """Rename one."""
        old = self.known[session_id]
        self.known[session_id] = SessionInfo(id=old.id, name=name, updated_at=0.0, head_run_id=old.head_run_id)
        return self.known[session_id]

    async def fork_session(self, session_id: str, *, at: str | None = None) -> SessionInfo:
        """Fork one."""
        old = self.known[session_id]
        info = SessionInfo(
            id=f"sess_{len(self.known) + 1}",
            name=f"{old.name} (fork)",
            updated_at=0.0,
            head_run_id=at or old.head_run_id,
        )
        self.known[info.id] = info
        return info

    async def delete_session(self, session_id: str) -> None:
        """Forget one."""
        del self.known[session_id]

    async def session_entries(self, session_id: str) -> list[Entry]:
        """Return everything."""
        return [entry for run in reversed(self.rows) for entry in self.entries.get(run.id, [])]

    async def list_runs(self, limit: int, *, session_id: str | None = None) -> list[HostRunInfo]:
        """Return runs, newest first."""
        return [run for run in self.rows if session_id in (None, run.session_id)][:limit]

    async def find_run(self, run_id: str) -> HostRunInfo:
        """Return one."""
        for run in self.rows:
            if run.id == run_id:
                return run
        raise NotFound(f"There is no run {run_id!r}.")

    async def run_entries(self, run_id: str) -> list[Entry]:
        """Return the journal of one."""
        if run_id not in self.entries:
            raise NotFound(f"There is no run {run_id!r}.")
        return self.entries[run_id]

    async def tools(self) -> list[ServerTool]:
        """Return one tool."""
        return [ServerTool(spec=ToolSpec(name="add", description="Add.\nMore."))]

    async def models(self) -> list[str]:
        """Return one model."""
        return ["big"]

    async def check_model(self, name: str) -> None:
        """Refuse every other."""
        if name != "big":
            raise NotFound(f"no model {name}")

    async def cost(self, run_id: str, model: str, usage: Usage | None) -> float | None:
        """Return the price that was set."""
        return self.price

    def estimate(self, model: str, usage: Usage) -> float | None:
        """Return the price that was set."""
        return self.price

    async def proposals(self) -> list[ProposalInfo]:
        """Return the open ones."""
        return self.open_proposals

    async def confirm(self, proposal: ProposalInfo) -> None:
        """Remember it."""
        self.deeds.append(f"confirm {proposal.id} {proposal.version}")

    async def reject(self, proposal: ProposalInfo, reason: str) -> None:
        """Remember it."""
        self.deeds.append(f"reject {proposal.id} {reason}")


class FakeFace:
    """Fits `Face`: what is typed is given, what is written is kept."""

    def __init__(self, *typed: str, can_ask: bool = True) -> None:
        self.typed = list(typed)
        self.can_ask = can_ask
        self.written = ""
        self.offered: list[str] = []
        self.keys: list[str] = []
        self.answers: list[str | None] = []
        self.asked: list[list[CardChoice]] = []
        self.labels: list[str] = []
        self.redrawn = 0
        self.deeds: list[str] = []
        self.echoes = False
        self.columns = 100

    async def open(self) -> None:
        """Do nothing."""

    def serve(self, actions: Actions) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def left(self) -> None:
        """Stay."""
        await asyncio.Event().wait()

    async def read(self) -> str | None:
        """Return the next line."""
        return self.typed.pop(0) if self.typed else None

    async def choose(self, choices: list[CardChoice]) -> str | None:
        """Return the next key; without one nobody ever answers."""
        self.asked.append(choices)
        if not self.keys:
            await asyncio.Event().wait()
        return self.keys.pop(0)

    async def line(self, label: str, text: str = "") -> str | None:
        """Return the next answer."""
        self.labels.append(f"{label} {text}".strip())
        return self.answers.pop(0)

    def offer(self, text: str) -> None:
        """Keep it."""
        self.offered.append(text)

    def clear(self) -> None:
        """Remember it."""
        self.deeds.append("clear")

    def copy(self, text: str) -> bool:
        """Remember it."""
        self.deeds.append(f"copy {text}")
        return True

    def refresh(self) -> None:
        """Do nothing."""

    def redraw(self) -> None:
        """Count."""
        self.redrawn += 1

    def write(self, text: str) -> None:
        """Keep it."""
        self.written += text

    def paint(self, painter: object) -> None:
        """Do nothing."""

    def size(self) -> tuple[int, int]:
        """Return a screen."""
        return self.columns, 30
