"""`treadle models`: list the models of all upstreams, by the names that -m takes."""

import argparse
import asyncio
import sys

import msgspec

from treadle.cli import command_base as command
from treadle.terminal.rendering.sanitize import one_line

EPILOG = """\
Upstreams are asked for their lists; one that does not answer in a few seconds is left out. An upstream may serve models
that it does not list: -m takes any name that a route or an upstream fits.

examples:
  treadle models
  treadle models --json
  treadle models --server https://treadle.example.org --key-env TREADLE_KEY"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    command.add_server_flags(parser)
    command.add_journal_flags(parser)


def run(args: argparse.Namespace) -> int:
    """List the names."""
    command.quiet_logs()
    names = asyncio.run(_names(args))
    if args.json:
        command.print_json(names)
        return command.OK
    for name in names:
        print(one_line(name))
    if not names:
        print("treadle: no upstream lists its models; -m NAME asks one by its name", file=sys.stderr)
    return command.OK


async def _names(args: argparse.Namespace) -> list[str]:
    """Return the names, the default first. Raises: TreadleError."""
    if args.server:
        from treadle.terminal.conversation.open_conversation import server_key
        from treadle.terminal.conversation.remote_host import RemoteHost

        async with RemoteHost(args.server, server_key(args)) as host:
            return await host.models()
    from treadle.config import ToolsSection
    from treadle.runtime import Runtime

    settings = command.read_flags(args).settings
    store = msgspec.structs.replace(settings.store, persistence="off")
    alone = msgspec.structs.replace(settings, tools=ToolsSection(demo=False), store=store, record="")
    async with Runtime(alone) as runtime:
        return [info.id for info in await runtime.router.list_models()]
