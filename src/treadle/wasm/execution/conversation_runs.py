"""Makes runs of what guests send: every `cchat_send` is a run of the one engine, with its limits and its journal."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from treadle.core.errors import TreadleError
from treadle.core.events import ItemDone, RunEnded, RunStarted, ToolFinished
from treadle.core.items import AnyItem, CallItem
from treadle.core.json import write_json
from treadle.core.request import Request, Surface
from treadle.core.run_endings import failure_of
from treadle.core.tool_definitions import GUEST, CallContext, Outcome, ServerTool, ToolPolicy
from treadle.engine.limits import Limits
from treadle.engine.ports import Toolbox
from treadle.protocols.chat import read_request
from treadle.runs import RunHandle, RunOverrides, Runs
from treadle.runs.dependencies import ToolProvider
from treadle.runs.tool_offers import narrow
from treadle.telemetry import trace_parent
from treadle.wasm.execution.thread_messages import Answered, Ask, Sent

WASM = "wasm"
"""Where a guest's own tools run, whatever its isolation."""
TOOL_TIMEOUT_S = 300.0
"""A guest's tool is bounded by its guest's own limits; this one only ends what those did not."""
_NOT_CARRIED = ("stream", "stream_options", "n", "store", "background")
"""Settings of Chat Completions that mean nothing to a guest."""

CallTool = Callable[[CallItem, CallContext], Awaitable[Answered]]


Admit = Callable[[str], Awaitable[None]]
"""Lets a client ask a model, or raises."""


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """For whom a guest runs: whose key its runs are of, the server tools that one may use, and what lets it ask."""

    key_id: str = ""
    allowed: tuple[str, ...] | None = None
    admit: Admit | None = None


class GuestConversation:
    """One guest at the desk: which of Treadle's own tools it was granted, for whom it runs, its runs."""

    def __init__(self, granted: Sequence[str] = (), sender: Sender | None = None) -> None:
        self.granted = tuple(granted)
        self.sender = sender or Sender()
        self.run_ids: list[str] = []
        self.trace_parent = ""


class ConversationRuns:
    """Takes sends. Belongs to the event loop."""

    def __init__(
        self, runs: Runs, tools: ToolProvider, toolbox: Toolbox, limits: Limits, *, default_model: str = ""
    ) -> None:
        self._runs = runs
        self._tools = tools
        self._toolbox = toolbox
        self._limits = limits
        self._default_model = default_model

    async def serve(self, ask: Ask, call_tool: CallTool, visit: GuestConversation) -> Sent:
        """Run a send to its end; being cancelled cancels its run. Whatever fails is in what is returned."""
        if visit.trace_parent:
            trace_parent.set(visit.trace_parent)
        try:
            request = _request(ask, ask.model or self._default_model)
            offered = _Offered(self._offers(ask, visit))
            toolbox = _Toolbox({spec.name for spec in ask.tools}, call_tool, self._toolbox)
            sender = visit.sender
            if sender.admit is not None:
                await sender.admit(request.model)
            instead = RunOverrides(tools=offered, toolbox=toolbox)
            limits = self._limits_of(ask)
            handle = await self._runs.start(request, key_id=sender.key_id, limits=limits, instead=instead)
        except TreadleError as error:
            return Sent(error=error.info)
        toolbox.handle = handle
        visit.run_ids.append(handle.run_id)
        try:
            return await _follow(handle)
        except asyncio.CancelledError:
            await handle.cancel()
            raise

    def _offers(self, ask: Ask, visit: GuestConversation) -> list[ServerTool]:
        """Offer the guest's own tools, and of Treadle's those that it was granted; a guest's own name goes first."""
        if not ask.auto:
            return []
        policy = ToolPolicy(timeout_s=TOOL_TIMEOUT_S, output_bytes_max=ask.max_tool_output_bytes)
        own = [ServerTool(spec=spec, policy=policy, source=GUEST) for spec in ask.tools]
        names = {spec.name for spec in ask.tools}
        others = [tool for tool in narrow(self._tools.tools(), visit.sender.allowed) if tool.name not in names]
        granted = [tool for tool in others if any(fnmatchcase(tool.name, pattern) for pattern in visit.granted)]
        return own + [tool for tool in granted if ask.mcp.let_in(tool)]

    def _limits_of(self, ask: Ask) -> Limits:
        chosen: dict[str, Any] = {
            "max_iterations": ask.max_iterations,
            "max_total_tool_calls": ask.max_total_tool_calls,
            "wall_s": ask.timeout_s,
        }
        return msgspec.structs.replace(self._limits, **{name: value for name, value in chosen.items() if value})


class _Offered:
    """The tools of one send. Fits `runs.Tools`."""

    def __init__(self, tools: Sequence[ServerTool]) -> None:
        self._all = tuple(tools)

    def tools(self) -> Sequence[ServerTool]:
        """Return them in the order they were registered."""
        return self._all


class _Toolbox:
    """Runs the tools of one send: the guest's by asking the guest. Fits the engine's Toolbox port."""

    def __init__(self, names: set[str], call_tool: CallTool, others: Toolbox) -> None:
        self._names = names
        self._call_tool = call_tool
        self._others = others
        self._ending: asyncio.Task[None] | None = None
        self.handle: RunHandle | None = None

    async def run(self, call: CallItem, context: CallContext) -> Outcome:
        """Run one call. A guest that did not survive it ends its run, with this outcome written down."""
        if call.name not in self._names:
            return await self._others.run(call, context)
        answered = await self._call_tool(call, context)
        if answered.stop is not None and self.handle is not None:
            # Not awaited: the run is waiting for this very outcome, and takes it before it hears of its end.
            self._ending = asyncio.ensure_future(self.handle.cancel())
        return msgspec.structs.replace(answered.outcome, sandbox=WASM)


def _request(ask: Ask, model: str) -> Request:
    """Read the guest's settings as a Chat client's, and put its conversation in.

    Raises: ProtocolError, naming the setting.
    """
    settings = {name: value for name, value in ask.parameters.items() if name not in _NOT_CARRIED}
    tools = [{"type": "function", "function": _function(spec)} for spec in ask.tools]
    body = {**settings, "model": model, "messages": [{"role": "user", "content": ""}]}
    request = read_request(write_json({**body, "tools": tools} if tools else body))
    return msgspec.structs.replace(
        request, items=ask.items, tools=() if ask.auto else request.tools, surface=Surface(), store=True
    )


def _function(spec: Any) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return function if spec.strict is None else {**function, "strict": spec.strict}


async def _follow(handle: RunHandle) -> Sent:
    """Read a run to its end and keep what was said and called, in order."""
    items: list[AnyItem] = []
    started: RunStarted | None = None
    ended: RunEnded | None = None
    async for batch in handle.events():
        for numbered in batch:
            match numbered.event:
                case RunStarted():
                    started = numbered.event
                case ItemDone():
                    items.append(numbered.event.item)
                case ToolFinished():
                    items.append(numbered.event.result)
                case RunEnded():
                    ended = numbered.event
                case _:
                    pass
    assert started is not None, "a run begins"
    assert ended is not None, "a run ends"
    return Sent(
        run_id=handle.run_id,
        response_id=handle.response_id,
        model=started.model,
        created_at=handle.created_at,
        status=ended.status,
        stop=ended.stop,
        items=tuple(items),
        usage=ended.usage,
        limit=ended.limit,
        error=failure_of(ended),
        rounds=ended.rounds,
        calls=ended.calls,
    )
