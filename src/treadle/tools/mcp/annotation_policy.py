"""Derives a tool's policy from the annotations of its MCP server.

Annotations are untrusted input. From a server that the configuration trusts they are used as they are; from any other
server they can only make a tool more dangerous than the configured effect, never less.
"""

from typing import get_args

import msgspec

from treadle.core.tool_definitions import Effect, ToolPolicy
from treadle.tools.mcp.server_options import ServerOptions

_EFFECTS: tuple[Effect, ...] = get_args(Effect)


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """A server's annotations of a tool; None where it has none."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


def policy_of(hints: Hints, options: ServerOptions) -> tuple[ToolPolicy, dict[str, str]]:
    """Return a tool's policy, and the source of each field."""
    hinted = _hinted(hints, options.effect)
    is_hint_used = options.trusted or _EFFECTS.index(hinted) > _EFFECTS.index(options.effect)
    effect = hinted if is_hint_used else options.effect
    is_closed_world = options.trusted and hints.open_world is False
    policy = ToolPolicy(
        effect=effect,
        approval=options.approval,
        timeout_s=options.timeout_s,
        parallel=effect == "read",
        egress=not is_closed_world,
    )
    table, annotation = f"[[mcp]] {options.name}", f"annotation of the MCP server {options.name}"
    by_hint = annotation if is_hint_used and hinted != options.effect else table
    return policy, {
        "effect": by_hint,
        "approval": table,
        "timeout_s": table,
        "parallel": by_hint if effect == "read" else "default",
        "egress": annotation if is_closed_world else "MCP servers may reach anything",
    }


def _hinted(hints: Hints, default: Effect) -> Effect:
    """Return the effect that the hints imply; contradictory hints count as destructive."""
    if hints.destructive and not hints.read_only:
        return "destructive"
    if hints.read_only:
        return "destructive" if hints.destructive else "read"
    if hints.idempotent and hints.destructive is False:
        return "idempotent"
    return "write" if hints.destructive is False else default
