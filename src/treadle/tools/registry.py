"""The tools of a process, by name. It holds them and says which are on; it runs nothing."""

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from treadle.canon.errors import ConfigError
from treadle.canon.tools import ServerTool, is_person_only
from treadle.tools.function import Tool, function_tool
from treadle.tools.load import load_file, load_module


class Registry:
    """Tools by name. `enabled` are patterns of names (`get_*`); what fits none of them is as if it were not there."""

    def __init__(self, tools: Sequence[Tool | Callable[..., Any]] = (), *, enabled: Sequence[str] = ("*",)) -> None:
        self._tools: dict[str, Tool] = {}
        self._enabled = tuple(enabled)
        self._listed: tuple[ServerTool, ...] | None = None
        for each in tools:
            self.add(each)

    def add(self, item: Tool | Callable[..., Any]) -> Tool:
        """Add a tool, or a plain function as a tool with the default policy.

        Raises: ConfigError, when the name is taken, naming both places, or is that of what only a person may do.
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
        self._tools[tool.name] = tool
        self._listed = None
        return tool

    def remove(self, name: str) -> Tool | None:
        """Take a tool out and return it, if it was there."""
        self._listed = None
        return self._tools.pop(name, None)

    def swap(self, names: Iterable[str], tools: Sequence[Tool]) -> None:
        """Put tools in the place of others at once, or leave everything as it was.

        Raises: ConfigError, when a name is taken.
        """
        before = dict(self._tools)
        for name in names:
            self.remove(name)
        try:
            for each in tools:
                self.add(each)
        except ConfigError:
            self._tools = before
            raise
        finally:
            self._listed = None

    def held(self, source: str) -> list[ServerTool]:
        """Return all tools of one source, also those that are off."""
        return [tool.declared for tool in self._tools.values() if tool.declared.source == source]

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, if it is there and on."""
        return self._tools.get(name) if self._is_enabled(name) else None

    def tools(self) -> tuple[ServerTool, ...]:
        """Return what can be offered, sorted by name."""
        if self._listed is None:
            self._listed = tuple(self._tools[name].declared for name in sorted(self._tools) if self._is_enabled(name))
        return self._listed

    def nearest(self, name: str, count: int = 3) -> list[str]:
        """Return the names that are closest to one that is not there."""
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

    def _is_enabled(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._enabled)
