"""Runs a call only by the tool that was offered: tools come and go while a run waits, and others take their names."""

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from treadle.core.items import CallItem
from treadle.core.memoized import Memo
from treadle.core.tool_definitions import CallContext, Outcome, ServerTool, failure
from treadle.engine.ports import Toolbox


class ToolboxSource(Protocol):
    """The server tools there are now."""

    def tools(self) -> Sequence[ServerTool]:
        """Return them: another object once they are others."""
        ...


_SOURCES: Memo[Sequence[ServerTool], dict[str, str]] = Memo(lambda tools: {tool.name: tool.source for tool in tools})


class BoundToolbox(msgspec.Struct, frozen=True, eq=False):
    """Fits the engine's Toolbox port. `sources` are where the offered tools came from, by name, and `known` the tools
    that they were chosen from: while those are there nothing has changed."""

    toolbox: Toolbox
    tools: ToolboxSource
    sources: Mapping[str, str]
    known: Sequence[ServerTool] | None = None

    def run(self, call: CallItem, context: CallContext) -> Coroutine[Any, Any, Outcome]:
        """Run one call, unless its name means something else by now."""
        tools = self.tools.tools()
        if tools is not self.known:
            offered = self.sources.get(call.name)
            if offered is not None and _SOURCES.of(tools).get(call.name, offered) != offered:
                return _changed(call.name)
        return self.toolbox.run(call, context)


async def _changed(name: str) -> Outcome:
    """Return what a call gets whose tool is not the one any more that the model was told of."""
    return failure("denied", f"Not run: {name} is not the tool any more that was offered.")
