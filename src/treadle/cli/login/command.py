"""`treadle login`: print a one-time link to the pages of the server that runs with this configuration."""

import argparse
import json
import os
import time

from treadle.canon.errors import ConfigError
from treadle.cli import command

EPILOG = """\
The link is for the server that runs with the same configuration and the same journal, and works once, for ten minutes.
viewer may look; operator may also ask, stop and decide; admin may also give out links.

examples:
  treadle login
  treadle login --scope viewer --name ada --url https://treadle.example.org"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.epilog = EPILOG
    scopes = ("viewer", "operator", "admin")
    parser.add_argument("--scope", choices=scopes, default="admin", help="what the login may do (default: admin)")
    parser.add_argument("--name", default="admin", help="who logs in, as decisions will show it (default: admin)")
    parser.add_argument("--url", help="where the server is (default: http://HOST:PORT of the configuration)")
    command.add_journal_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Print a link."""
    from treadle.server.login.gate import asks_for_login, make_gate
    from treadle.server.login.secret import is_shared
    from treadle.server.serve import Address

    settings = command.read_flags(args).settings
    if not asks_for_login(settings):
        raise ConfigError(
            "nobody need log in: only this machine can reach the pages",
            param="server.login",
            hint='open the address that `treadle serve` prints, or set server.login = "always"',
        )
    if not is_shared(settings, os.environ):
        raise ConfigError(
            "this journal keeps no secret that the server could know this link by",
            param="TREADLE_SECRET",
            hint="set TREADLE_SECRET for the server and for this command alike",
        )
    now = time.time()
    url = args.url or Address(host=settings.server.host, port=settings.server.port).url
    link = url.rstrip("/") + make_gate(settings, now).link_path(args.name, args.scope, now)
    print(json.dumps({"url": link, "scope": args.scope, "name": args.name}) if args.json else link)
    return command.OK
