"""The local tools: files below one root directory, and a shell in the sandbox."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.tool_definitions import LOCAL, ToolPolicy
from treadle.tools.function_tools import Refuses, Tool, function_tool
from treadle.tools.local.bash_tool import TIMEOUT_MAX_S, git_refusal, make_bash
from treadle.tools.local.file_read import make_file_read
from treadle.tools.local.file_write import SeenFiles, make_file_edit, make_file_write, write_refusal
from treadle.tools.local.glob_tool import make_glob
from treadle.tools.local.grep_tool import find_ripgrep, make_grep
from treadle.tools.local.outline import make_outline
from treadle.tools.local.output_read import OutputStore, Piece, make_output_read
from treadle.tools.local.result_limits import DEFAULT_CAPS, LocalCaps
from treadle.tools.local.safe_open import Root
from treadle.tools.sandbox import CommandSandbox

__all__ = ["LOCAL_NAMES", "READING", "LocalCaps", "OutputStore", "Piece", "Root", "local_tools"]

# Slightly longer than the tools' own deadlines, so that a tool can still return a partial result.
_READS = ToolPolicy(effect="read", approval="never", parallel=True, timeout_s=12.0)
_WRITES = ToolPolicy(effect="write", approval="always", timeout_s=12.0, resources=("file:{path}",))
_RUNS = ToolPolicy(effect="destructive", approval="always", timeout_s=TIMEOUT_MAX_S + 10, resources=("*",), exec=True)
_POLICIES = {
    "glob": _READS,
    "file_read": _READS,
    "grep": _READS,
    "outline": _READS,
    "output_read": _READS,
    "file_write": _WRITES,
    "file_edit": _WRITES,
    "bash": _RUNS,
}
LOCAL_NAMES = tuple(_POLICIES)
_SANDBOXED = {"bash": 3, "grep": 2}
"""Tools that run a program, with the highest sandbox level it runs at; the others open files in this process."""
_BYTE_CAPS: dict[str, Callable[[LocalCaps], int]] = {
    "file_read": lambda caps: caps.file_read_bytes_max,
    "output_read": lambda caps: caps.output_read_bytes_max,
    "bash": lambda caps: caps.bash_bytes_max,
}
"""The byte limits of tools that have one; the policy's output limit must leave room for them."""
AROUND_BYTES = 8_192
"""Room for the JSON around those bytes."""
READING = tuple(name for name, policy in _POLICIES.items() if policy.effect == "read")
"""The tools that change nothing."""


def local_tools(  # noqa: PLR0913 - one place makes them all
    root: str | Path | Root,
    *,
    allow: Sequence[str] = (),
    names: Sequence[str] = LOCAL_NAMES,
    sandbox: CommandSandbox | None = None,
    shelf: OutputStore | None = None,
    is_trusted: bool = False,
    caps: LocalCaps = DEFAULT_CAPS,
) -> list[Tool]:
    """Return the local tools for one root; `allow` are name patterns that may be read although masked.

    `caps` limit the size of results, and `is_trusted` lets writes and commands run without approval.
    Raises: ConfigError, when the root cannot be opened or a tool name is unknown.
    """
    place = root if isinstance(root, Root) else Root(root, allow=allow)
    shell, outputs, seen = sandbox or CommandSandbox(), shelf or OutputStore(), SeenFiles()
    makers: dict[str, Callable[[], Callable[..., Any]]] = {
        "glob": lambda: make_glob(place, caps=caps),
        "file_read": lambda: make_file_read(place, seen, caps),
        "grep": lambda: make_grep(place, shell, find_ripgrep(), caps),
        "outline": lambda: make_outline(place, caps),
        "output_read": lambda: make_output_read(outputs, caps),
        "file_write": lambda: make_file_write(place, seen, caps),
        "file_edit": lambda: make_file_edit(place, seen, caps),
        "bash": lambda: make_bash(place, shell, outputs, caps),
    }
    checks: dict[str, Refuses] = dict.fromkeys(("file_write", "file_edit"), functools.partial(write_refusal, place))
    checks["bash"] = functools.partial(git_refusal, place, shell)
    for name in names:
        if name not in makers:
            hint = f"there are {', '.join(makers)}"
            raise ConfigError(f"there is no local tool {name!r}", param="tools.local.enabled", hint=hint)
    made = [
        function_tool(
            makers[name](),
            policy=_policy(name, shell, caps, is_trusted=is_trusted),
            source=LOCAL,
            style="s3",
        ).placed(
            functools.partial(_level, shell, _SANDBOXED[name]) if name in _SANDBOXED else "root",
            _why(name, shell, is_trusted=is_trusted),
        )
        for name in names
    ]
    for each in made:
        each.refuses = checks.get(each.name)
    return made


def _level(sandbox: CommandSandbox, best: int) -> str:
    return f"L{min(sandbox.found.level, best)}"


def _why(name: str, sandbox: CommandSandbox, *, is_trusted: bool) -> dict[str, str]:
    """Return the policy fields that the configuration set, with the setting of each."""
    why: dict[str, str] = {}
    if is_trusted and _POLICIES[name].approval == "always":
        why["approval"] = 'tools.local.policy = "trust"'
    if name == "bash" and sandbox.rules.network:
        why["egress"] = "tools.local.network"
    return why


def _policy(name: str, sandbox: CommandSandbox, caps: LocalCaps, *, is_trusted: bool) -> ToolPolicy:
    policy = _POLICIES[name]
    shown = _BYTE_CAPS[name](caps) + AROUND_BYTES if name in _BYTE_CAPS else 0
    if shown > policy.output_bytes_max:
        policy = msgspec.structs.replace(policy, output_bytes_max=shown)
    if is_trusted and policy.approval == "always":
        policy = msgspec.structs.replace(policy, approval="never")
    if name == "bash" and sandbox.rules.network:
        policy = msgspec.structs.replace(policy, egress=True)
    return policy
