"""Runs a call only by the tool that was offered: tools come and go while a run waits, and others take their names."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from treadle.canon.items import CallItem
from treadle.canon.memo import Memo
from treadle.canon.tools import CallContext, Outcome, ServerTool, failure
from treadle.engine.ports import Toolbox


class Tools(Protocol):
    """The server tools there are now."""

    def tools(self) -> Sequence[ServerTool]:
        """Return them: another object once they are others."""
        ...


_SOURCES: Memo[Sequence[ServerTool], dict[str, str]] = Memo(lambda tools: {tool.name: tool.source for tool in tools})


class BoundToolbox:
    """Fits the engine's Toolbox port. `sources` are where the offered tools came from, by name."""

    def __init__(self, toolbox: Toolbox, tools: Tools, sources: Mapping[str, str]) -> None:
        self._toolbox = toolbox
        self._tools = tools
        self._sources = sources

    async def run(self, call: CallItem, context: CallContext) -> Outcome:
        """Run one call, unless its name means something else by now."""
        offered = self._sources.get(call.name)
        if offered is not None and _SOURCES.of(self._tools.tools()).get(call.name, offered) != offered:
            return failure("denied", f"Not run: {call.name} is not the tool any more that was offered.")
        return await self._toolbox.run(call, context)
