"""Checks whether this process has the tools that an abandoned run needs; if not, the run is left to other processes.

A tool that the run has called may have had its effect. If this process lacked it, the model would read that and try
something else; so the run waits for a process that has it. For a tool that was only offered, the run waits as long as
another process has it.
"""

from collections.abc import Callable, Iterable, Sequence

from treadle.core.memoized import Memo
from treadle.core.tool_definitions import ServerTool, essence
from treadle.runs.recovery.run_record import RunRecord

_ESSENCES: Memo[Sequence[ServerTool], dict[str, str]] = Memo(
    lambda tools: {tool.name: essence(tool.name, tool.policy, tool.source) for tool in tools}
)


class ToolsMissing(Exception):
    """This process lacks tools that the run needs, or has different ones under their names."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = tuple(names)


class RequiredTools:
    """The runs left to other processes, until the tools here change, or no other process has the required ones."""

    def __init__(self, tools: Callable[[], Sequence[ServerTool]], elsewhere: Callable[[Iterable[str]], bool]) -> None:
        self._tools = tools
        self._elsewhere = elsewhere
        self._seen: Sequence[ServerTool] = ()
        self._left: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def left(self) -> dict[str, tuple[str, ...]]:
        """Return the runs that are left to others, with the names of the missing tools."""
        tools = self._tools()
        if tools is not self._seen:
            self._seen = tools
            self._left.clear()
        given_up = [run for run, (_, offered) in self._left.items() if offered and not self._elsewhere(offered)]
        for run_id in given_up:
            del self._left[run_id]
        return {run_id: names for run_id, (names, _) in self._left.items()}

    def check(self, record: RunRecord) -> None:
        """Check that all tools of a run are here, and record it as left to others if not.

        Raises: Lacking.
        """
        frame = record.blueprint.frame
        there = _ESSENCES.of(self._tools())
        lacking = {name: what for name, what in frame.tools.items() if there.get(name) != what}
        if not lacking:
            return
        called = {entry.name for entry in record.entries if entry.kind == "tool_call"}
        called |= {planned.call.name for planned in frame.carried.calls} if frame.carried is not None else set()
        is_needed = any(name in called or name in there for name in lacking)
        offered = () if is_needed else tuple(lacking.values())
        if is_needed or self._elsewhere(offered):
            self.left()  # forgets what was found with other tools
            self._left[record.blueprint.row.id] = tuple(sorted(lacking)), offered
            raise ToolsMissing(sorted(lacking))

    def retain(self, run_ids: Iterable[str]) -> None:
        """Drop all but these runs: the others were recovered by another process, or have ended."""
        retained = {*run_ids}
        self._left = {run_id: why for run_id, why in self._left.items() if run_id in retained}
