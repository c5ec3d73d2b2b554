"""The `glob` tool: finds files by pattern below the root. Links to files inside are listed; none are walked into."""

import os
import stat
import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from treadle.core.errors import ToolError
from treadle.tools.local.directory_walk import Walk, printable
from treadle.tools.local.glob_pattern import BadPattern, glob_pattern
from treadle.tools.local.result_limits import DEFAULT_CAPS, LocalCaps, answer, fitting, odd_names_words, unread_words
from treadle.tools.local.safe_open import Root
from treadle.tools.result_rendering import ToolAnswer
from treadle.tools.tool_context import ToolContext

LIMIT_DEFAULT = 200
DEADLINE_S = 10.0
RECENT_S = 86_400.0
ENVELOPE_BYTES = 200
"""The most bytes of JSON around the paths."""


def make_glob(
    root: Root, now: Callable[[], float] = time.time, *, caps: LocalCaps = DEFAULT_CAPS
) -> Callable[..., ToolAnswer]:
    """Return the tool's function for one root."""

    def glob(
        context: ToolContext,
        pattern: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)],
        path: str = ".",
        hidden: bool = False,
        limit: Annotated[int, msgspec.Meta(ge=1, le=caps.glob_paths_max)] = min(LIMIT_DEFAULT, caps.glob_paths_max),
    ) -> ToolAnswer:
        """Find files by pattern, recently changed ones first. Files that .gitignore leaves out are not found.

        Args:
            pattern: What the paths look like, such as *.py or src/**/*.{js,ts}; ** crosses directories.
            path: The directory to look in, relative to the root.
            hidden: Also find names that start with a dot.
            limit: How many paths to return at most.
        """
        deadline = time.monotonic() + DEADLINE_S
        try:
            compiled = glob_pattern(pattern, hidden=hidden)
        except BadPattern as error:
            raise ToolError(f"Invalid pattern: {error}", code="invalid_pattern") from None
        walk = Walk(root, compiled, lambda: context.cancelled or time.monotonic() > deadline)
        walk.run(_base(root, path))
        recent = now() - RECENT_S
        paths = [name for name, _ in sorted(walk.found, key=lambda each: (each[1] < recent, each[0]))]
        return _answer(walk, paths, limit, context.output_bytes_max, caps.glob_paths_max)

    return glob


def _base(root: Root, path: str) -> tuple[str, ...]:
    """Return the path of the directory to search, with links resolved, as names."""
    opened = root.open(path)
    try:
        if not stat.S_ISDIR(os.fstat(opened.fd).st_mode):
            raise ToolError(f"Not a directory: {path}", code="not_a_directory")
    finally:
        os.close(opened.fd)
    return () if opened.name == "." else tuple(opened.name.split("/"))


def _answer(walk: Walk, paths: list[str], limit: int, bytes_max: int, most: int) -> ToolAnswer:
    shown = fitting((printable(path) for path in paths[:limit]), bytes_max - ENVELOPE_BYTES)
    body: dict[str, Any] = {"output": "\n".join(shown), "count": len(paths)}
    if len(shown) < len(paths) or not walk.is_complete:
        body["truncated"] = True
    if not walk.is_complete:
        body["code"] = "stopped_early"
    elif len(shown) == limit < min(len(paths), most):
        body["next"] = {"limit": min(len(paths), most)}
    warnings = (*odd_names_words(paths[: len(shown)]), *unread_words(walk.unread, "folder"))
    return answer(body, f"{len(paths)} file{'' if len(paths) == 1 else 's'} found", warnings=warnings)
