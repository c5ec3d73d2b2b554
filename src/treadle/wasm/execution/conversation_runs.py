"""Starts runs for guests: every `cchat_send` is a run of the engine, with its limits and its journal."""

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
"""The sandbox name of a guest's own tools, whatever its isolation."""
TOOL_TIMEOUT_S = 300.0
"""A backstop: a guest's tool is bounded by the limits of its guest."""
_NOT_CARRIED = ("stream", "stream_options", "n", "store", "background")
"""Chat Completions settings that do not apply to guests."""

CallTool = Callable[[CallItem, CallContext], Awaitable[Answered]]


Admit = Callable[[str], Awaitable[None]]
"""Checks that a client may use a model; raises if not."""


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """The client a guest runs for: its key, the server tools it may use, and its admission check."""

    key_id: str = ""
    allowed: tuple[str, ...] | None = None
    admit: Admit | None = None


class GuestConversation:
    """The state of one guest: the server tools it was granted, the client it runs for, and its runs."""

    def __init__(self, granted: Sequence[str] = (), sender: Sender | None = None) -> None:
        self.granted = tuple(granted)
        self.sender = sender or Sender()
        self.run_ids: list[str] = []
        self.trace_parent = ""


class ConversationRuns:
    """Runs the sends of guests. Use it on the event loop only."""

    def __init__(
        self, runs: Runs, tools: ToolProvider, toolbox: Toolbox, limits: Limits, *, default_model: str = ""
    ) -> None:
        self._runs = runs
        self._tools = tools
        self._toolbox = toolbox
        self._limits = limits
        self._default_model = default_model

    async def serve(self, ask: Ask, call_tool: CallTool, conversation: GuestConversation) -> Sent:
        """Run a send to its end; cancellation cancels its run. Errors are in the result."""
        if conversation.trace_parent:
            trace_parent.set(conversation.trace_parent)
        try:
            request = _request(ask, ask.model or self._default_model)
            offered = _Offered(self._offers(ask, conversation))
            toolbox = _Toolbox({spec.name for spec in ask.tools}, call_tool, self._toolbox)
            sender = conversation.sender
            if sender.admit is not None:
                await sender.admit(request.model)
            instead = RunOverrides(tools=offered, toolbox=toolbox)
            limits = self._limits_of(ask)
            handle = await self._runs.start(request, key_id=sender.key_id, limits=limits, instead=instead)
        except TreadleError as error:
            return Sent(error=error.info)
        toolbox.handle = handle
        conversation.run_ids.append(handle.run_id)
        try:
            return await _collect(handle)
        except asyncio.CancelledError:
            await handle.cancel()
            raise

    def _offers(self, ask: Ask, conversation: GuestConversation) -> list[ServerTool]:
        """Return the guest's own tools and the granted server tools; on a name clash the guest's own wins."""
        if not ask.auto:
            return []
        policy = ToolPolicy(timeout_s=TOOL_TIMEOUT_S, output_bytes_max=ask.max_tool_output_bytes)
        own = [ServerTool(spec=spec, policy=policy, source=GUEST) for spec in ask.tools]
        names = {spec.name for spec in ask.tools}
        others = [tool for tool in narrow(self._tools.tools(), conversation.sender.allowed) if tool.name not in names]
        granted = [tool for tool in others if any(fnmatchcase(tool.name, pattern) for pattern in conversation.granted)]
        return own + [tool for tool in granted if ask.mcp.let_in(tool)]

    def _limits_of(self, ask: Ask) -> Limits:
        chosen: dict[str, Any] = {
            "max_iterations": ask.max_iterations,
            "max_total_tool_calls": ask.max_total_tool_calls,
            "wall_s": ask.timeout_s,
        }
        return msgspec.structs.replace(self._limits, **{name: value for name, value in chosen.items() if value})


class _Offered:
    """The tools of one send; implements `ToolProvider`."""

    def __init__(self, tools: Sequence[ServerTool]) -> None:
        self._all = tuple(tools)

    def tools(self) -> Sequence[ServerTool]:
        """Return the tools in the order of their registration."""
        return self._all


class _Toolbox:
    """Runs the tools of one send, the guest's own in the guest; implements the engine's Toolbox port."""

    def __init__(self, names: set[str], call_tool: CallTool, others: Toolbox) -> None:
        self._names = names
        self._call_tool = call_tool
        self._others = others
        self._ending: asyncio.Task[None] | None = None
        self.handle: RunHandle | None = None

    async def run(self, call: CallItem, context: CallContext) -> Outcome:
        """Run one call. If it stopped the guest, the run is cancelled after it has recorded this outcome."""
        if call.name not in self._names:
            return await self._others.run(call, context)
        answered = await self._call_tool(call, context)
        if answered.stop is not None and self.handle is not None:
            # Not awaited: the run is waiting for this outcome, and must receive it before its cancellation.
            self._ending = asyncio.ensure_future(self.handle.cancel())
        return msgspec.structs.replace(answered.outcome, sandbox=WASM)


def _request(ask: Ask, model: str) -> Request:
    """Decode the guest's settings as a Chat request, and insert its conversation.

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


async def _collect(handle: RunHandle) -> Sent:
    """Follow a run to its end and collect its items in order."""
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
