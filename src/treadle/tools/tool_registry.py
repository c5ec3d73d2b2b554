"""The tools of a process, by name, and which of them are on. Running them belongs to the runner."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from treadle.core.errors import ConfigError
from treadle.core.tool_definitions import LEVELS, ServerTool, is_person_only
from treadle.tools.effective_policy import Policies
from treadle.tools.function_tools import Tool, function_tool
from treadle.tools.tool_loading import load_file, load_module


class ToolRegistry:
    """Tools by name. `enabled` are name patterns (`get_*`); tools that match none cannot be offered or called.

    Every added tool gets its effective policy, whatever its source.
    """

    def __init__(
        self,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        *,
        enabled: Sequence[str] = ("*",),
        policies: Policies | None = None,
    ) -> None:
        self._policies = policies or Policies()
        self._watchers: list[Callable[[], None]] = []
        self._tools: dict[str, Tool] = {}
        self._enabled = tuple(enabled)
        self._on: dict[str, Tool] | None = None
        self._listed: tuple[ServerTool, ...] | None = None
        for each in tools:
            self.add(each)

    def add(self, item: Tool | Callable[..., Any]) -> Tool:
        """Add a tool, or a plain function as a tool with the default policy.

        Raises: ConfigError, when the name is taken, naming both origins, or reserved for what only a person may do.
        """
        tool = item if isinstance(item, Tool) else function_tool(item)
        if is_person_only(tool.name):
            raise ConfigError(
                f'{tool.origin}: a tool cannot be named "{tool.name}": facts are committed by a person only',
                param="tools",
                hint="give it another name",
            )
        taken = self._tools.get(tool.name)
        if taken is not None:
            raise ConfigError(
                f'two tools are named "{tool.name}": {taken.origin} and {tool.origin}',
                param="tools",
                hint="give one of them another name",
            )
        self._tools[tool.name] = tool = self._policies.apply(tool)
        self._publish_change()
        return tool

    def remove(self, name: str) -> Tool | None:
        """Remove a tool and return it; None if there is none of that name."""
        taken = self._tools.pop(name, None)
        self._publish_change()
        return taken

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the tools change; the returned function unsubscribes."""
        self._watchers.append(callback)
        return lambda: self._watchers.remove(callback)

    def swap(self, names: Iterable[str], tools: Sequence[Tool]) -> None:
        """Replace tools by others in one step, or change nothing.

        Raises: ConfigError, when a name is taken.
        """
        before, watchers = dict(self._tools), self._watchers
        # Muted until the swap is complete: watchers must not see the registry half changed.
        self._watchers = []
        try:
            for name in names:
                self.remove(name)
            for each in tools:
                self.add(each)
        except ConfigError:
            self._tools = before
            raise
        finally:
            self._watchers = watchers
            self._publish_change()

    def held(self, source: str) -> list[ServerTool]:
        """Return all tools of one source, including those that are off."""
        return [tool.declared for tool in self._tools.values() if tool.declared.source == source]

    def everything(self) -> list[Tool]:
        """Return all tools sorted by name, including those that are off."""
        return [self._tools[name] for name in sorted(self._tools)]

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name if it exists and is on."""
        return (self._on or self._enabled_tools()).get(name)

    def refusal(self, name: str, source: str, arguments: Mapping[str, Any]) -> str:
        """Return why a call would fail even if it were approved, or ""."""
        tool = self.get(name)
        known = None if tool is None or tool.declared.source != source else tool.refuses
        return "" if known is None else known(arguments)

    def command_level(self, name: str, source: str) -> str:
        """Return the sandbox level that a tool runs commands at, or ""."""
        tool = self.get(name)
        is_command = tool is not None and tool.declared.source == source and tool.declared.policy.exec
        return tool.sandbox if tool is not None and is_command and tool.sandbox in LEVELS else ""

    def tools(self) -> tuple[ServerTool, ...]:
        """Return the tools that can be offered, sorted by name."""
        if self._listed is None:
            self._listed = tuple([tool.declared for tool in self._enabled_tools().values()])
        return self._listed

    def nearest(self, name: str, count: int = 3) -> list[str]:
        """Return the most similar existing names, for a message about an unknown one."""
        return get_close_matches(name, [each.name for each in self.tools()], count, cutoff=0.5)

    def load_module(self, name: str) -> list[Tool]:
        """Add all tools of a module.

        Raises: ConfigError.
        """
        return [self.add(tool) for tool in load_module(name)]

    def load_file(self, path: str) -> list[Tool]:
        """Add all tools of a Python file.

        Raises: ConfigError.
        """
        return [self.add(tool) for tool in load_file(path)]

    def _publish_change(self) -> None:
        self._on = self._listed = None
        for callback in list(self._watchers):
            callback()

    def _enabled_tools(self) -> dict[str, Tool]:
        """Return the tools that are on, sorted by name."""
        if self._on is None:
            self._on = {tool.name: tool for tool in self.everything() if tool.is_on and self._is_enabled(tool.name)}
        return self._on

    def _is_enabled(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._enabled)
