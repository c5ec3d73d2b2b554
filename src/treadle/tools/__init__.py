"""Tools that Treadle runs: functions made into tools, held in a registry, run within their policy.

No wire word, no database, no other sibling; a failing tool is an Outcome, never an exception.
"""

from treadle.tools.context import ToolContext
from treadle.tools.envelope import file, image
from treadle.tools.function import Tool, tool
from treadle.tools.registry import Registry
from treadle.tools.runner import Runner, RunnerLimits

__all__ = ["Registry", "Runner", "RunnerLimits", "Tool", "ToolContext", "file", "image", "tool"]
