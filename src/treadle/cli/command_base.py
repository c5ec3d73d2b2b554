"""Shared by all commands: exit codes, common flags, settings from flags, and printing of errors.

It loads no runtime and no screen: a command that needs one imports it when it runs.
"""

import argparse
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.core.errors import ConfigError, NotApproved, RequestError, TreadleError
from treadle.terminal.exit_codes import CANCELLED as CANCELLED
from treadle.terminal.exit_codes import DENIED as DENIED
from treadle.terminal.exit_codes import ERROR as ERROR
from treadle.terminal.exit_codes import EXIT_CODES as EXIT_CODES
from treadle.terminal.exit_codes import LIMIT as LIMIT
from treadle.terminal.exit_codes import OK as OK
from treadle.terminal.exit_codes import TERMINATED as TERMINATED
from treadle.terminal.exit_codes import USAGE as USAGE

if TYPE_CHECKING:
    from treadle.config import Loaded, Settings

_FLAG_KEYS = {
    "host": "server.host",
    "port": "server.port",
    "allow_remote": "server.allow_remote",
    "workers": "server.workers",
    "log_level": "server.log_level",
    "store": "store.url",
    "tools": "tools.load",
    "model": "default_model",
    "record": "record",
    "policy": "terminal.policy",
}
"""The flag of a command and the key it sets."""


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose a configuration."""
    add_store_flags(parser)
    parser.add_argument(
        "--tools",
        metavar="FILE_OR_MODULE",
        action="append",
        help="load the @tool functions of a Python file or module (may be repeated)",
    )


def add_store_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose a journal."""
    add_file_flag(parser)
    parser.add_argument("--store", metavar="URL", help="keep runs here: sqlite:///FILE or postgresql://…")


def add_file_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names the file; one that stands before the command holds unless the command has it too."""
    help_text = "read this file instead of ./treadle.toml"
    parser.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=help_text)


def add_model_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag that chooses a model."""
    parser.add_argument(
        "-m", "--model", metavar="NAME", help="the model to ask (default: default_model, else the demo)"
    )


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name a remote server."""
    parser.add_argument("--server", metavar="URL", help="talk to the Treadle at this address, not to one in here")
    parser.add_argument("--key-env", metavar="NAME", help="the variable that holds the key for that server")


def add_record_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag that records what upstreams answer."""
    parser.add_argument("--record", metavar="DIR", help="record every upstream call in this folder, as cassettes")


def add_journal_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a command that only works on a journal: which one, and how the output reads."""
    add_store_flags(parser)
    add_json_flag(parser)


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag for programs that read the output."""
    parser.add_argument("--json", action="store_true", help="print JSON for a program to read")


def print_json(value: object) -> None:
    """Print a value as that flag promises; a terminal gets nothing that it would obey."""
    from treadle.terminal.rendering.sanitize import escape_json

    text = msgspec.json.format(msgspec.json.encode(value)).decode()
    print(escape_json(text) if sys.stdout.isatty() else text)


def read_flags(args: argparse.Namespace) -> "Loaded":
    """Read the settings that the file, the environment and this command's flags make.

    A file that was only found here is asked about, where there is a person to ask.

    Raises: ConfigError.
    """
    from treadle.cli.trust_question import agree
    from treadle.config import read_settings
    from treadle.config.trusted_files import Untrusted
    from treadle.terminal.rendering.sanitize import clean

    named, overrides = vars(args).get("config"), overrides_of(args)
    try:
        loaded = read_settings(named, env=os.environ, overrides=overrides)
    except Untrusted as error:
        if not agree(Path(error.doubt.path)):
            raise
        loaded = read_settings(named, env=os.environ, overrides=overrides)
    for warning in loaded.warnings:
        print(f"treadle: {clean(warning)}", file=sys.stderr)
    return loaded


def overrides_of(args: argparse.Namespace) -> Mapping[str, object]:
    """Return what this command's flags set, by key; None where one was left out."""
    given = vars(args)
    found: dict[str, object] = {key: given[flag] or None for flag, key in _FLAG_KEYS.items() if flag in given}
    # Port 0 means a free port, and would be dropped above as not given.
    return {**found, "server.port": 0} if given.get("port") == 0 else found


def terminal_settings(args: argparse.Namespace) -> "Settings":
    """Read the settings with the terminal's limits, local tools confined to the project around the working directory.

    Raises: ConfigError.
    """
    import msgspec

    from treadle.config import for_terminal
    from treadle.config.cross_checks import check_model

    loaded = read_flags(args)
    settings = for_terminal(loaded.settings)
    if not vars(args).get("server"):
        check_model(settings)
    if loaded.source("tools.local.root") != "default":
        return settings
    local = msgspec.structs.replace(settings.tools.local, root=str(project_root(Path.cwd())))
    return msgspec.structs.replace(settings, tools=msgspec.structs.replace(settings.tools, local=local))


def asked_model(args: argparse.Namespace, settings: "Settings") -> str:
    """Return the model to ask; empty where a remote server has its own default."""
    return (args.model or "") if args.server else settings.model


def project_root(folder: Path) -> Path:
    """Return the top of the repository that a folder is in, else the folder."""
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)


def quiet_logs() -> None:
    """Keep library log lines out of the output; what a person needs to know arrives as an event."""
    logging.getLogger("treadle").addHandler(logging.NullHandler())
    logging.getLogger("treadle").propagate = False


def report(error: TreadleError) -> int:
    """Print an error and its hint to stderr and return the exit code."""
    from treadle.terminal.rendering.event_messages import error_lines

    first, *more = error_lines(error.operator_info)
    print("\n".join([f"treadle: {first}", *more]), file=sys.stderr)
    return exit_code(error)


def exit_code(error: TreadleError) -> int:
    """Return the exit code of an error."""
    match error:
        case ConfigError():
            return USAGE
        case RequestError() if error.param in ("model", "prompt", "files"):
            return USAGE
        case NotApproved():
            return DENIED
        case _:
            return ERROR
