"""`treadle tools`: list what Treadle runs, and `treadle tools lint`: what providers could not take of it."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from treadle.cli import command
from treadle.cli.terminal.clean import clean
from treadle.cli.terminal.words import plural

if TYPE_CHECKING:
    from treadle.canon.tools import ServerTool
    from treadle.tools.mcp.servers import Servers

EPILOG = """\
examples:
  treadle tools                        the tools that a server started here would offer
  treadle tools --tools my_tools.py    with the @tool functions of a file
  treadle tools lint                   warn of what some provider can not take"""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as the list shows it."""

    name: str
    description: str
    effect: str
    approval: str
    needs_approval: bool
    timeout_s: float
    source: str
    parameters: msgspec.Raw


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.epilog = EPILOG
    parser.add_argument(
        "action", nargs="?", choices=("list", "lint"), default="list", help="list them (default), or check them"
    )
    command.add_config_flags(parser)
    command.add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """List or check the tools of this configuration."""
    from treadle.runtime import Runtime

    settings = command.read_flags(args).settings
    runtime = Runtime(settings)
    if runtime.mcp is not None:
        asyncio.run(_visit(runtime.mcp))
    tools = runtime.registry.tools()
    return _lint(tools, args.json) if args.action == "lint" else _list(tools, args.json)


async def _visit(servers: "Servers") -> None:
    """Ask the MCP servers once for their tools, and say which could not be asked."""
    command.quiet_logs()
    await servers.open()
    for server in servers.all:
        if server.state != "up":
            print(clean(f"treadle: MCP server {server.options.name}: {server.reason}"), file=sys.stderr)
    await servers.close()


def _list(tools: "Sequence[ServerTool]", as_json: bool) -> int:
    rows = [row_of(tool) for tool in tools]
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return command.OK
    if not rows:
        print("no tools: load some with --tools FILE, or name local ones in tools.local.enabled")
    cells = [("name", "effect", "approval", "timeout", "source", "what it does")]
    for row in rows:
        approval = "needed" if row.needs_approval else row.approval
        about = row.description.split("\n")[0]
        cells.append((row.name, row.effect, approval, f"{row.timeout_s:g} s", row.source, about))
    for line in _aligned(cells) if rows else []:
        print(clean(line))
    return command.OK


def _lint(tools: "Sequence[ServerTool]", as_json: bool) -> int:
    from treadle.tools.lint import lint

    found = {tool.name: lint(tool.spec) for tool in tools}
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        for name, warnings in found.items():
            for warning in warnings:
                print(clean(f"{name}: {warning}"))
        count = sum(map(len, found.values()))
        print(f"{plural(len(found), 'tool')}, {plural(count, 'warning')}")
    return command.ERROR if any(found.values()) else command.OK


def row_of(tool: "ServerTool") -> Row:
    """Return a tool as a row."""
    return Row(
        name=tool.name,
        description=tool.spec.description,
        effect=tool.policy.effect,
        approval=tool.policy.approval,
        needs_approval=tool.policy.needs_approval,
        timeout_s=tool.policy.timeout_s,
        source=tool.source,
        parameters=tool.spec.parameters,
    )


def _aligned(cells: "Sequence[tuple[str, ...]]") -> list[str]:
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
