"""Tools that Treadle runs: functions made into tools, held in a registry, run within their policy.

No wire word, no database, no other sibling; a failing tool is an Outcome, never an exception.
"""

from treadle.tools.function_tools import Tool, tool
from treadle.tools.result_rendering import file, image
from treadle.tools.tool_context import ToolContext
from treadle.tools.tool_registry import Registry
from treadle.tools.tool_runner import Runner, RunnerLimits

__all__ = ["Registry", "Runner", "RunnerLimits", "Tool", "ToolContext", "file", "image", "tool"]
