"""Tools that run in this process: registration, argument validation, and execution within a policy."""

from treadle.tools.function_tools import Tool, tool
from treadle.tools.result_rendering import file, image
from treadle.tools.tool_context import ToolContext
from treadle.tools.tool_registry import ToolRegistry
from treadle.tools.tool_runner import RunnerLimits, ToolRunner

__all__ = ["RunnerLimits", "Tool", "ToolContext", "ToolRegistry", "ToolRunner", "file", "image", "tool"]
