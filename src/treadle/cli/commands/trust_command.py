"""`treadle trust`: show what a treadle.toml would do, trust it, or remove the trust."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.cli import command_base as command
from treadle.cli.trust_question import describe_file, remember
from treadle.core.errors import ConfigError, NotFound
from treadle.terminal.rendering.sanitize import one_line, reveal

if TYPE_CHECKING:
    from treadle.config.trusted_files import Trust

EPILOG = """\
A treadle.toml that is found in the working directory is used only if you agreed to it, as it is now: whoever wrote it
could start programs on your machine and send your keys elsewhere. At a terminal you are asked once; elsewhere Treadle
refuses until you have run this. A file that you name (--config, TREADLE_CONFIG), your own in ~/.config/treadle, and one
that only tightens what tools may do need no trust. The files that it loads or starts (Python tools and the files beside
them that they import, guests, programs of MCP servers in the folder) belong to it: if one changes, you are asked again.

examples:
  treadle trust --show             what ./treadle.toml would do, and whether it is trusted
  treadle trust                    agree to ./treadle.toml as it is now
  treadle trust --revoke           take that back
  treadle trust --list             every file that was agreed to

exit codes: 0 done (with --show: it is trusted), 1 it is not, 2 usage or configuration"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("file", nargs="?", metavar="FILE", help="the file it is about (default: treadle.toml)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="only say what it would do, and whether it is trusted")
    what.add_argument("--revoke", action="store_true", help="do not trust it any more")
    what.add_argument("--list", action="store_true", help="list the files that are trusted")
    command.add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Show the file, trust it, or remove the trust."""
    from treadle.config.loader import FILE_NAME, data_directory
    from treadle.config.trusted_files import Trust

    trust, file = Trust(data_directory(os.environ)), Path(args.file or FILE_NAME)
    if args.list:
        return _list(trust, is_json=args.json)
    if args.revoke:
        return _revoke(trust, file, is_json=args.json)
    return _show(file, is_json=args.json) if args.show else _agree(file, is_json=args.json)


def _list(trust: "Trust", *, is_json: bool) -> int:
    files = [{"path": path, "state": _state(Path(path))} for path in sorted(trust.files())]
    if is_json:
        command.print_json({"files": files})
        return command.OK
    for each in files:
        print(f"{one_line(reveal(each['path']))}  {each['state']}")
    if not files:
        print("no file is trusted")
    return command.OK


def _state(file: Path) -> str:
    from treadle.config.loader import examine_file

    if not file.is_file():
        return "gone"
    try:
        return examine_file(file, env=os.environ).doubt.state
    except ConfigError:
        # It no longer is a file that could be used.
        return "changed"


def _revoke(trust: "Trust", file: Path, *, is_json: bool) -> int:
    path = os.path.realpath(file)
    if not trust.remove(file):
        raise NotFound(f"{path} was not trusted", param="FILE", hint="`treadle trust --list` lists what is")
    command.print_json({"path": path, "state": "new"}) if is_json else print(f"not trusted any more: {one_line(path)}")
    return command.OK


def _show(file: Path, *, is_json: bool) -> int:
    from treadle.config.loader import examine_file
    from treadle.config.trust_summary import list_effects

    found = examine_file(file, env=os.environ)
    if is_json:
        command.print_json({**msgspec.structs.asdict(found.doubt), "would": list_effects(found.settings, found.keys)})
    else:
        print("\n".join(describe_file(found)))
    return command.OK if found.doubt.state == "trusted" else command.ERROR


def _agree(file: Path, *, is_json: bool) -> int:
    from treadle.config.loader import examine_file

    found = examine_file(file, env=os.environ)
    remember(found.doubt)
    if is_json:
        command.print_json({**msgspec.structs.asdict(found.doubt), "state": "trusted"})
    else:
        trusted = msgspec.structs.replace(found, doubt=msgspec.structs.replace(found.doubt, state="trusted"))
        print("\n".join(describe_file(trusted)))
    return command.OK
