"""`treadle login`: print a one-time link to the pages of the server that runs with this configuration, or a key for a
program of the person's own."""

import argparse
import json
import os
import time

from treadle.cli import command_base as command
from treadle.core.errors import ConfigError

EPILOG = """\
The link is for the server that runs with the same configuration and the same journal, and works once, for ten minutes.
With --key it prints a key instead, which works for twelve hours in every API: for a program that decides for you.
viewer may look; operator may also ask, stop and decide; admin may also give out links.

examples:
  treadle login
  export OPENAI_API_KEY=$(treadle login --key)
  treadle login --scope viewer --name ada --url https://treadle.example.org"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.epilog = EPILOG
    scopes = ("viewer", "operator", "admin")
    parser.add_argument("--scope", choices=scopes, default="admin", help="what the login may do (default: admin)")
    parser.add_argument("--name", default="admin", help="who logs in, as decisions will show it (default: admin)")
    parser.add_argument("--key", action="store_true", help="print a key for a program instead of a link")
    parser.add_argument("--url", help="where the server is (default: http://HOST:PORT of the configuration)")
    command.add_journal_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Print a link or a key."""
    from treadle.server.auth.installation_secret import is_shared
    from treadle.server.auth.page_access import KEY_S, make_gate
    from treadle.server.server_process import Address

    settings = command.read_flags(args).settings
    if not is_shared(settings, os.environ):
        raise ConfigError(
            "this journal keeps no secret that the server could know a login by",
            param="TREADLE_SECRET",
            hint="set TREADLE_SECRET for the server and for this command alike",
        )
    now = time.time()
    gate = make_gate(settings, now)
    if args.key:
        key = gate.tickets.key(args.name, args.scope, now, KEY_S)
        shown = {"key": key, "scope": args.scope, "name": args.name, "expires_at": now + KEY_S}
        print(json.dumps(shown) if args.json else key)
        return command.OK
    url = args.url or Address(host=settings.server.host, port=settings.server.port).url
    link = url.rstrip("/") + gate.link_path(args.name, args.scope, now)
    print(json.dumps({"url": link, "scope": args.scope, "name": args.name}) if args.json else link)
    return command.OK
