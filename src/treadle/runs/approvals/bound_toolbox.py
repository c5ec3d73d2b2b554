"""Runs a call only with the tool that was offered: while a run waits, another tool may get the same name."""

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from treadle.core.items import CallItem
from treadle.core.memoized import Memo
from treadle.core.tool_definitions import CallContext, Outcome, ServerTool, failure
from treadle.engine.ports import Toolbox


class ToolboxSource(Protocol):
    """The current server tools."""

    def tools(self) -> Sequence[ServerTool]:
        """Return the tools; the object is replaced when they change."""
        ...


_SOURCES: Memo[Sequence[ServerTool], dict[str, str]] = Memo(lambda tools: {tool.name: tool.source for tool in tools})


class BoundToolbox(msgspec.Struct, frozen=True, eq=False):
    """Fits the engine's `Toolbox` port.

    `sources` maps the offered tools to where they came from. `known` are the tools that they were chosen from: while
    those are current, nothing has changed.
    """

    toolbox: Toolbox
    tools: ToolboxSource
    sources: Mapping[str, str]
    known: Sequence[ServerTool] | None = None

    def run(self, call: CallItem, context: CallContext) -> Coroutine[Any, Any, Outcome]:
        """Run one call, unless its name belongs to another tool by now."""
        tools = self.tools.tools()
        if tools is not self.known:
            offered = self.sources.get(call.name)
            if offered is not None and _SOURCES.of(tools).get(call.name, offered) != offered:
                return _changed(call.name)
        return self.toolbox.run(call, context)


async def _changed(name: str) -> Outcome:
    """Return the outcome of a call whose tool was replaced after it was offered."""
    return failure("denied", f"Not run: {name} is not the tool any more that was offered.")
