"""Which abandoned runs this process leaves to others, because it lacks the tools that they need.

A tool that a run has called may have had its effect. A process that lacks it, or has another of its name, would tell
the model so, and the model would try something else: the run waits for a process that has it. A tool that a run was
only offered is waited for as long as another process has it.
"""

from collections.abc import Callable, Iterable, Sequence

from treadle.core.memoized import Memo
from treadle.core.tool_definitions import ServerTool, essence
from treadle.runs.recovery.run_record import RunRecord

_ESSENCES: Memo[Sequence[ServerTool], dict[str, str]] = Memo(
    lambda tools: {tool.name: essence(tool.name, tool.policy, tool.source) for tool in tools}
)


class ToolsMissing(Exception):
    """This process lacks tools that the run needs, or has others of their names."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = tuple(names)


class RequiredTools:
    """Knows which runs were left, until this process has other tools, or no other has them any more."""

    def __init__(self, tools: Callable[[], Sequence[ServerTool]], elsewhere: Callable[[Iterable[str]], bool]) -> None:
        self._tools = tools
        self._elsewhere = elsewhere
        self._seen: Sequence[ServerTool] = ()
        self._left: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def left(self) -> dict[str, tuple[str, ...]]:
        """Return the runs that are left to others, with the names of what is lacking."""
        tools = self._tools()
        if tools is not self._seen:
            self._seen = tools
            self._left.clear()
        given_up = [run for run, (_, offered) in self._left.items() if offered and not self._elsewhere(offered)]
        for run_id in given_up:
            del self._left[run_id]
        return {run_id: names for run_id, (names, _) in self._left.items()}

    def check(self, record: RunRecord) -> None:
        """Leave a run to others whose tools are not all here.

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
        """Forget all but these runs: the others were taken over elsewhere, or ended."""
        kept = {*run_ids}
        self._left = {run_id: why for run_id, why in self._left.items() if run_id in kept}
