"""The five ports as small in-memory things that remember what happened to them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from treadle.core.errors import StoreError, UpstreamError
from treadle.core.events import (
    ArgumentsDelta,
    Finished,
    ItemAdded,
    ItemDone,
    ModelEvent,
    Numbered,
    RunEnded,
    Stop,
    TextDelta,
)
from treadle.core.ids import CountingIds
from treadle.core.items import AnyItem, CallItem, MessageItem, TextPart, text_message
from treadle.core.journal_entries import Entry
from treadle.core.plan import Plan, Planner
from treadle.core.request import Options
from treadle.core.tool_definitions import CallContext, Offer, Outcome, ToolPolicy, ToolSpec
from treadle.core.usage import Usage
from treadle.engine.limits import Limits
from treadle.engine.ports import ApprovalVerdict, PendingApproval, PermissionRequest
from treadle.engine.run_loop import Ports, RunLoop
from treadle.engine.run_state import RunState

Reply = list[list[ModelEvent]] | UpstreamError


class FakeModel:
    """Plays one reply a call; remembers the plans it was asked with and the streams that were closed."""

    def __init__(self, *replies: Reply, hold: asyncio.Event | None = None) -> None:
        self.replies = list(replies)
        self.plans: list[Plan] = []
        self.closed = 0
        self.hold = hold
        self.spoke = asyncio.Event()

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        self.plans.append(plan)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, UpstreamError):
            raise reply
        try:
            for batch in reply:
                yield batch
            self.spoke.set()
            if self.hold is not None:
                await self.hold.wait()
        finally:
            self.closed += 1


class FakeToolbox:
    """Answers by a table; an unlisted name is an unknown tool."""

    def __init__(self, **tools: Callable[[CallItem], Outcome] | asyncio.Event) -> None:
        self.tools = tools
        self.ran: list[str] = []
        self.running = asyncio.Event()

    async def run(self, call: CallItem, context: CallContext) -> Outcome:
        tool = self.tools.get(call.name)
        if tool is None:
            return Outcome(text='{"error":{"code":"unknown_tool"}}', rc="unknown_tool")
        self.ran.append(call.call_id)
        self.running.set()
        if isinstance(tool, asyncio.Event):
            await tool.wait()
            return Outcome(text="late")
        return tool(call)


class FakeJournal:
    """Numbers entries; fails when told to; remembers what was durable and how many commits it took."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.commits = 0
        self.ended: list[RunEnded] = []
        self.fail_at_commit: int | None = None
        self.gate: asyncio.Event | None = None

    def append(self, entries: Sequence[Entry], ended: RunEnded | None = None) -> asyncio.Future[int]:
        return asyncio.ensure_future(self._append(entries, ended))

    async def _append(self, entries: Sequence[Entry], ended: RunEnded | None) -> int:
        if self.gate is not None:
            await self.gate.wait()
        self.commits += 1
        if self.fail_at_commit == self.commits:
            raise StoreError("disk full")
        start = len(self.entries) + 1
        numbered = [msgspec.structs.replace(entry, seq=start + n) for n, entry in enumerate(entries)]
        self.entries += numbered
        if ended is not None:
            self.ended.append(ended)
        return len(self.entries)

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.entries]


class FakeClock:
    """Stands still unless moved."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class FakeApprover:
    """Gives one verdict and remembers who asked."""

    def __init__(self, verdict: ApprovalVerdict) -> None:
        self.verdict = verdict
        self.asked: list[str] = []

    async def ask(self, request: PermissionRequest, context: CallContext) -> PendingApproval | ApprovalVerdict:
        self.asked.append(request.call.call_id)
        return self.verdict

    async def wait(self, approval_id: str, context: CallContext) -> ApprovalVerdict:
        raise AssertionError("there is nothing to wait for")


def say(text: str, *, stop: Stop = "done", usage: Usage | None = None) -> Reply:
    """Return a reply of one message."""
    item = MessageItem(id="msg_x", role="assistant")
    done = msgspec.structs.replace(item, content=(TextPart(text=text),))
    return [
        [ItemAdded(index=0, item=item), TextDelta(index=0, text=text)],
        [ItemDone(index=0, item=done), Finished(stop=stop, usage=usage)],
    ]


def call(name: str, *, arguments: str = "{}", call_id: str = "call_1") -> CallItem:
    """Return a call as a model would make it."""
    return CallItem(id=f"fc_{call_id}", call_id=call_id, name=name, arguments=arguments)


def ask_for(*calls: CallItem, stop: Stop = "calls", usage: Usage | None = None) -> Reply:
    """Return a reply of calls."""
    batches: list[list[ModelEvent]] = []
    for index, item in enumerate(calls):
        opened = msgspec.structs.replace(item, arguments="")
        batches.append([ItemAdded(index=index, item=opened), ArgumentsDelta(index=index, text=item.arguments)])
        batches.append([ItemDone(index=index, item=item)])
    batches.append([Finished(stop=stop, usage=usage)])
    return batches


def server(name: str, **policy: object) -> Offer:
    """Offer a server tool."""
    chosen = ToolPolicy(effect="read", **policy) if "effect" not in policy else ToolPolicy(**policy)
    return Offer(spec=ToolSpec(name=name), side="server", policy=chosen, source="python")


def client(name: str) -> Offer:
    """Offer a client tool."""
    return Offer(spec=ToolSpec(name=name), side="client")


def ok(text: str = "fine") -> Callable[[CallItem], Outcome]:
    """Return a tool that always gives this text."""
    return lambda _: Outcome(text=text, output_bytes=len(text))


class Bench:
    """One loop with all its fakes, run to its end."""

    def __init__(
        self,
        model: FakeModel,
        toolbox: FakeToolbox | None = None,
        *offers: Offer,
        limits: Limits | None = None,
        history: Sequence[AnyItem] = (),
        verdict: ApprovalVerdict | None = None,
        options: Options | None = None,
        **turn: object,
    ) -> None:
        self.model = model
        self.toolbox = toolbox or FakeToolbox()
        self.journal = FakeJournal()
        self.clock = FakeClock()
        self.approver = FakeApprover(verdict or ApprovalVerdict(approved=False, reason="nobody"))
        self.events: list[Numbered] = []
        limits = limits or Limits()
        table = {offer.spec.name: offer for offer in offers}
        self.planner = Planner("m", tuple(offer.spec for offer in offers), options or Options())
        self.planner.add([*history, text_message("user", "go")])
        ids = CountingIds()
        self.turn = RunState(self.planner, table, limits=limits, ids=ids, **turn)
        ports = Ports(model=model, toolbox=self.toolbox, clock=self.clock, approver=self.approver, ids=ids)
        self.loop = RunLoop(self.turn, ports, CallContext(run_id="run_1"), limits.wall_s, limits.final_answer_s)
        self.opening = self.loop.begin()

    async def run(self) -> RunEnded:
        return await self.loop.run(self.journal, self.events.extend)

    def types(self) -> list[str]:
        return [numbered.event.__struct_config__.tag for numbered in self.events]

    def of(self, kind: type) -> list:
        return [numbered.event for numbered in self.events if isinstance(numbered.event, kind)]
