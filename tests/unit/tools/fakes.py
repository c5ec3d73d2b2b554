"""A runner with a clock that does not wait, and calls to give it."""

from collections.abc import Callable
from typing import Any

from treadle.core.items import CallItem
from treadle.core.tool_definitions import CallContext, Outcome
from treadle.tools import RunnerLimits, ToolRegistry, ToolRunner
from treadle.tools.tool_runner import Keep, Report

CONTEXT = CallContext(run_id="run_1", session_id="sess_1")


class StillClock:
    """A clock that moves only when somebody sleeps on it."""

    def __init__(self) -> None:
        self.at = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds


def make_runner(
    *tools: Callable[..., Any],
    limits: RunnerLimits | None = None,
    keep: Keep | None = None,
    report: Report | None = None,
    clock: StillClock | None = None,
) -> ToolRunner:
    """Return a runner for these tools."""
    return ToolRunner(ToolRegistry(tools), clock=clock or StillClock(), limits=limits, keep=keep, report=report)


def call(name: str, arguments: str = "{}") -> CallItem:
    """Return a call of a server tool."""
    return CallItem(call_id="call_1", name=name, arguments=arguments, side="server")


async def outcome(tool: Callable[..., Any], arguments: str = "{}", **options: Any) -> Outcome:
    """Run one tool once, in a runner of its own."""
    runner = make_runner(tool, **options)
    try:
        return await runner.run(call(getattr(tool, "name", ""), arguments), CONTEXT)
    finally:
        runner.close()
