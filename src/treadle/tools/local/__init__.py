"""Tools on the files below one root, with the result shapes of S3."""

from collections.abc import Sequence
from pathlib import Path

from treadle.canon.tools import ToolPolicy
from treadle.tools.function import Tool, function_tool
from treadle.tools.local.glob import make_glob
from treadle.tools.local.opener import Root
from treadle.tools.local.read import make_file_read

__all__ = ["Root", "local_tools"]

# A little more than the tools' own deadlines, so that they can still say how far they came.
_POLICY = ToolPolicy(effect="read", approval="never", parallel=True, timeout_s=12.0)


def local_tools(root: str | Path | Root, *, allow: Sequence[str] = ()) -> list[Tool]:
    """Return the file tools for one root; `allow` are patterns of names that are read although masked.

    Raises: ConfigError, when the root cannot be opened.
    """
    place = root if isinstance(root, Root) else Root(root, allow=allow)
    functions = (make_glob(place), make_file_read(place))
    return [function_tool(function, policy=_POLICY, source="local", style="s3") for function in functions]
