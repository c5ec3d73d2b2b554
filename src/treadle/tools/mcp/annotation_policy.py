"""From a server's hints to how its tools may run.

Hints are a stranger's word. From a server that the configuration trusts they count both ways; from any other they can
only make a tool more dangerous than the configured effect, never less.
"""

from typing import get_args

import msgspec

from treadle.core.tool_definitions import Effect, ToolPolicy
from treadle.tools.mcp.server_options import ServerOptions

_EFFECTS: tuple[Effect, ...] = get_args(Effect)


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of a tool's effects; None where it says nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


def policy_of(hints: Hints, options: ServerOptions) -> tuple[ToolPolicy, dict[str, str]]:
    """Decide how a tool may run, and say for each field who said so."""
    hinted = _hinted(hints, options.effect)
    is_believed = options.trusted or _EFFECTS.index(hinted) > _EFFECTS.index(options.effect)
    effect = hinted if is_believed else options.effect
    is_inside = options.trusted and hints.open_world is False
    policy = ToolPolicy(
        effect=effect,
        approval=options.approval,
        timeout_s=options.timeout_s,
        parallel=effect == "read",
        egress=not is_inside,
    )
    table, annotation = f"[[mcp]] {options.name}", f"annotation of the MCP server {options.name}"
    by_hint = annotation if is_believed and hinted != options.effect else table
    return policy, {
        "effect": by_hint,
        "approval": table,
        "timeout_s": table,
        "parallel": by_hint if effect == "read" else "default",
        "egress": annotation if is_inside else "MCP servers may reach anything",
    }


def _hinted(hints: Hints, otherwise: Effect) -> Effect:
    """Return the effect that the hints name; one that contradicts itself counts as the worse."""
    if hints.destructive and not hints.read_only:
        return "destructive"
    if hints.read_only:
        return "destructive" if hints.destructive else "read"
    if hints.idempotent and hints.destructive is False:
        return "idempotent"
    return "write" if hints.destructive is False else otherwise
