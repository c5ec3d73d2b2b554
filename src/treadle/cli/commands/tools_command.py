"""`treadle tools`: list the server's tools, show one's permissions and their origin, check schemas for providers."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from treadle.cli import command_base as command
from treadle.core.errors import ConfigError, NotFound
from treadle.core.tool_definitions import SANDBOXES, ToolPolicy
from treadle.terminal.rendering.event_messages import plural
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.config import Settings
    from treadle.core.tool_definitions import ServerTool
    from treadle.tools import Tool, ToolRegistry
    from treadle.tools.mcp.server_set import Servers

EPILOG = """\
examples:
  treadle tools                        the tools that a server started here would offer
  treadle tools --tools my_tools.py    with the @tool functions of a file
  treadle tools show bash              how this one may run, and who said so
  treadle tools lint                   warn of what some provider can not take"""


class ToolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the list of tools."""

    name: str
    description: str
    effect: str
    approval: str
    needs_approval: bool
    timeout_s: float
    source: str
    parameters: msgspec.Raw
    enabled: bool
    sandbox: str
    policy: ToolPolicy
    why: dict[str, str]


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    actions = ("list", "show", "lint")
    parser.add_argument(
        "action", nargs="?", choices=actions, default="list", help="list them (default), show one, or check them"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="show: the name of the tool")
    command.add_config_flags(parser)
    command.add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """List or check the tools of this configuration."""
    from treadle.runtime import Runtime

    if args.action == "show" and not args.name:
        raise ConfigError("show wants the name of a tool", param="name", hint="treadle tools lists them")
    if args.name and args.action != "show":
        raise ConfigError(f"{args.action} takes no name", param="name", hint="treadle tools show NAME")
    settings = command.read_flags(args).settings
    runtime = Runtime(settings)
    if runtime.mcp is not None:
        asyncio.run(_visit(runtime.mcp))
    registry = runtime.registry
    match args.action:
        case "lint":
            return _lint(registry.tools(), args.json)
        case "show":
            return _show(registry, args.name, args.json)
        case _:
            return _list([tool for tool in registry.everything() if registry.get(tool.name)], settings, args.json)


async def _visit(servers: "Servers") -> None:
    """Ask each MCP server once for its tools, and report those that do not answer."""
    command.quiet_logs()
    await servers.open()
    for server in servers.all:
        if server.state != "up":
            print(clean(f"treadle: MCP server {server.options.name}: {server.reason}"), file=sys.stderr)
    await servers.close()


def _show(registry: "ToolRegistry", name: str, as_json: bool) -> int:
    """Show one tool, also one that is off: each field of its policy and who set it."""
    tool = next((each for each in registry.everything() if each.name == name), None)
    if tool is None:
        near = registry.nearest(name)
        hint = f"did you mean {', '.join(near)}?" if near else "treadle tools lists them"
        raise NotFound(f"there is no tool {name!r}", param="name", hint=hint)
    row = row_of(tool, is_on=registry.get(name) is not None)
    if as_json:
        command.print_json(row)
        return command.OK
    state = "yes" if row.enabled else "no"
    cells = [
        ("name", row.name, ""),
        ("source", row.source, tool.origin),
        ("enabled", state, row.why.get("enabled", "default" if row.enabled else "tools.enabled")),
        ("sandbox", row.sandbox, SANDBOXES.get(row.sandbox, "")),
        ("needs approval", "yes" if row.needs_approval else "no", ""),
    ]
    for field, value in msgspec.structs.asdict(tool.policy).items():
        cells.append((field, _shown(value), row.why.get(field, "default")))
    for line in [row.description.split("\n")[0], "", *_aligned(cells)]:
        print(clean(line))
    return command.OK


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[object, ...]", value))) or "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _list(tools: "Sequence[Tool]", settings: "Settings", as_json: bool) -> int:
    rows = [row_of(tool) for tool in tools]
    if as_json:
        command.print_json(rows)
        return command.OK
    if not rows:
        is_off = not settings.tools.enabled
        why = "tools.enabled is false" if is_off else "load some with --tools FILE, or name them in tools.local.enabled"
        print(f"no tools: {why}")
    cells = [("name", "effect", "approval", "timeout", "source", "what it does")]
    for row in rows:
        approval = "needed" if row.needs_approval else row.approval
        about = row.description.split("\n")[0]
        cells.append((row.name, row.effect, approval, f"{row.timeout_s:g} s", row.source, about))
    for line in _aligned(cells) if rows else []:
        print(clean(line))
    return command.OK


def _lint(tools: "Sequence[ServerTool]", as_json: bool) -> int:
    from treadle.tools.provider_lint import lint

    found = {tool.name: lint(tool.spec) for tool in tools}
    if as_json:
        command.print_json(found)
    else:
        for name, warnings in found.items():
            for warning in warnings:
                print(clean(f"{name}: {warning}"))
        count = sum(map(len, found.values()))
        print(f"{plural(len(found), 'tool')}, {plural(count, 'warning')}")
    return command.ERROR if any(found.values()) else command.OK


def row_of(tool: "Tool", *, is_on: bool = True) -> ToolRow:
    """Return a tool as a row."""
    return ToolRow(
        name=tool.name,
        description=tool.spec.description,
        effect=tool.policy.effect,
        approval=tool.policy.approval,
        needs_approval=tool.policy.needs_approval,
        timeout_s=tool.policy.timeout_s,
        source=tool.declared.source,
        parameters=tool.spec.parameters,
        enabled=is_on,
        sandbox=tool.sandbox,
        policy=tool.policy,
        why=tool.why,
    )


def _aligned(cells: "Sequence[tuple[str, ...]]") -> list[str]:
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
