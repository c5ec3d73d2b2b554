"""`treadle mcp`: serve the tools to an MCP client over stdio; list and review the tools of MCP servers."""

import argparse
import asyncio
import logging
import os
import sys
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import msgspec

from treadle.cli import command_base as command
from treadle.core.errors import ConfigError, NotFound
from treadle.terminal.rendering.event_messages import plural
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.config import Settings
    from treadle.tools.mcp.server_connection import Server

EPILOG = """\
Without an action it is an MCP server on standard input and output, for clients that start one: every tool that
`treadle tools` lists, under the same policy, each call a run in the journal. `treadle serve` with server.mcp = true
serves the same at /mcp.

examples:
  treadle mcp --tools my_tools.py        what an MCP client starts
  treadle mcp list                       the servers of [[mcp]], their tools, and what is left out and why
  treadle mcp review                     tools that are new or changed: old and new side by side, and the question
  treadle mcp accept files               take the new and changed tools of a server as they are now
  treadle mcp accept files read_file     only this one
  treadle mcp refuse files read_file     leave it out for as long as it looks like this"""


class McpRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the list of servers."""

    name: str
    state: str
    reason: str
    tools: list[str]
    left_out: dict[str, str]


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    actions = ("serve", "list", "review", "accept", "refuse")
    parser.add_argument("action", nargs="?", choices=actions, default="serve", help="what to do (default: serve)")
    parser.add_argument("server", nargs="?", metavar="SERVER", help="review, accept, refuse: the server's name")
    parser.add_argument(
        "names", nargs="*", metavar="TOOL", help="accept, refuse: its own names of tools (default: all that wait)"
    )
    command.add_config_flags(parser)
    command.add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Serve, list, review, accept or refuse."""
    settings = command.read_flags(args).settings
    if args.server and args.action not in ("review", "accept", "refuse"):
        raise ConfigError(f"{args.action} takes no server", param="server")
    match args.action:
        case "list":
            return _list(settings, args.json)
        case "review":
            return _review(settings, args.server, as_json=args.json)
        case "accept" | "refuse":
            return _decide(settings, args.server, args.names, is_accepted=args.action == "accept")
        case _:
            return _serve(settings)


def _serve(settings: "Settings") -> int:
    """Answer an MCP client until it closes our input."""
    server = msgspec.structs.replace(settings.server, mcp=True)
    asyncio.run(_answer(msgspec.structs.replace(settings, server=server)))
    return command.OK


async def _answer(settings: "Settings") -> None:
    from treadle.runtime import Runtime

    try:
        from mcp.server.stdio import stdio_server

        from treadle.server.mcp.served_tools import make_server
    except ImportError as error:
        raise _missing(error) from error
    async with Runtime(settings) as runtime:
        _log_to_stderr(settings)
        server = make_server(runtime)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


def _list(settings: "Settings", as_json: bool) -> int:
    from treadle.config.mcp_settings import waiting_tools

    command.quiet_logs()
    rows = asyncio.run(_rows(settings))
    if as_json:
        command.print_json(rows)
        return command.OK
    if not rows:
        print("no MCP servers: name some in [[mcp]] tables of treadle.toml")
    for row in rows:
        for line in _lines(row):
            print(clean(line))
    if any(row.kind != "refused" for _, row in waiting_tools(settings, os.environ)):
        print("treadle mcp review shows the new and changed tools, and asks whether to accept them")
    return command.OK if all(row.state == "up" for row in rows) else command.ERROR


def _lines(row: McpRow) -> list[str]:
    head = f"{row.name}: {plural(len(row.tools), 'tool')}" if row.state == "up" else f"{row.name}: {row.reason}"
    return [
        head,
        *(f"  {name}" for name in row.tools),
        *(f"  {name}: left out: {why}" for name, why in row.left_out.items()),
    ]


async def _rows(settings: "Settings") -> list[McpRow]:
    """Connect to every server once and print its tools."""
    from treadle.runtime import Runtime

    runtime = Runtime(settings)
    if runtime.mcp is None:
        return []
    try:
        await runtime.mcp.open()
        return [
            _row(server, [tool.name for tool in runtime.registry.held(server.options.source)])
            for server in runtime.mcp.all
        ]
    finally:
        await runtime.mcp.close()


def _row(server: "Server", tools: list[str]) -> McpRow:
    return McpRow(
        name=server.options.name, state=server.state, reason=server.reason, tools=tools, left_out=server.left_out
    )


def _place(settings: "Settings", name: str | None) -> str:
    """Return where a server is, by its name.

    Raises: NotFound, naming those there are.
    """
    from treadle.config.mcp_settings import options_of

    server = next((each for each in settings.mcp if each.name == name), None)
    if server is None:
        known = ", ".join(each.name for each in settings.mcp) or "none"
        raise NotFound(f"there is no MCP server {name!r}", param="server", hint=f"there are: {known}")
    return options_of(server, os.environ).place


def _decide(settings: "Settings", name: str | None, tools: list[str], *, is_accepted: bool) -> int:
    """Accept or refuse tools of a server as they were last seen."""
    from treadle.config.mcp_settings import pins_of

    place, pins = _place(settings, name), pins_of(settings, os.environ)
    decided = (pins.accept if is_accepted else pins.refuse)(place, tools or None)
    missing = [tool for tool in tools if tool not in decided]
    if missing:
        raise NotFound(f"{name} has no new or changed tool {missing[0]!r}", hint="treadle mcp review shows which wait")
    word = "accepted" if is_accepted else "refused"
    print(clean(f"{word}: {', '.join(decided)}" if decided else f"nothing waits at {name}"))
    return command.OK


def _review(settings: "Settings", name: str | None, *, as_json: bool) -> int:
    """Show the tools that wait, old and new side by side, and ask about each where a person can answer."""
    from treadle.cli.mcp_tool_review import ask, lines_of
    from treadle.config.mcp_settings import pins_of

    pins = pins_of(settings, os.environ)
    names = [name] if name else [each.name for each in settings.mcp]
    rows = [(each, place, row) for each in names for place in [_place(settings, each)] for row in pins.waiting(place)]
    if as_json:
        command.print_json([{"server": each, **msgspec.structs.asdict(row)} for each, _, row in rows])
        return command.OK
    waiting = [row for row in rows if row[2].kind != "refused" or name]
    is_asked = sys.stdin.isatty() and sys.stdout.isatty()
    for each, place, row in waiting:
        if is_asked:
            ask(pins, place, each, row)
        else:
            print("\n".join(lines_of(each, row, get_terminal_size((120, 24)).columns)))
    if waiting and not is_asked:
        print("to decide: treadle mcp accept SERVER TOOL, or treadle mcp refuse SERVER TOOL")
    if not waiting:
        print("no tool waits: as the servers were last seen")
    return command.OK


def _missing(error: ImportError) -> ConfigError:
    return ConfigError(
        f"this needs the MCP SDK, which is not installed ({error.name})", hint="pip install 'treadle[mcp]'"
    )


def _log_to_stderr(settings: "Settings") -> None:
    """Log to stderr, which MCP clients show: warnings, unless the configuration sets another level."""
    level = settings.server.log_level.upper()
    logging.basicConfig(stream=sys.stderr, format="treadle: %(message)s", level=logging.WARNING)
    logging.getLogger("treadle").setLevel("WARNING" if level == "INFO" else level)
