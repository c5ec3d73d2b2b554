"""The entry point: the table of commands, and the conversion of errors into one line and an exit code.

Only the module of the command that was asked for is imported, so that `treadle --help` answers at once.
"""

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

import msgspec

from treadle.cli import command_base as command
from treadle.cli.argument_parser import Parser
from treadle.cli.help_pages import Manual, finish_help
from treadle.core.errors import TreadleError

EPILOG = """\
Without a command Treadle opens a chat; `treadle -p "text"` is `treadle run "text"`.

examples:
  treadle                             chat with the demo model: no key, no set-up
  treadle serve                       start the gateway at http://127.0.0.1:8700
  treadle run "weather in Paris?"     one turn, for scripts
  OPENAI_API_KEY=… treadle -m MODEL   chat with a real model
  treadle doctor                      find out what does not work, and why
  treadle COMMAND --help              what a command takes, with examples

environment:
  OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY,
  OPENROUTER_API_KEY       each brings a provider's models
  OPENAI_BASE_URL          a model server, such as one on this machine; a key is not needed then
  TREADLE_SECTION__KEY     any key of the configuration, such as TREADLE_SERVER__PORT=9000
  TREADLE_CONFIG           the file to read, as --config
  TREADLE_SECRET           what keys and logins are known by, where processes share a database
  NO_COLOR, TERM=dumb      no colours; plain lines

files:
  ~/.config/treadle/treadle.toml      the configuration: `treadle config example` prints one
  ./treadle.toml                      else this one; you are asked about it once, see treadle trust
  ~/.local/share/treadle/treadle.db   the journal, unless store.url names another

exit codes: 0 done, 1 error, 2 usage or configuration; `treadle run --help` and others have more
"""


class CommandEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One command: its name, what it is for, and the module (or `module:Class`) that has it."""

    name: str
    summary: str
    module: str


class CommandModule(Protocol):
    """The interface of a command's module."""

    def describe(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Run the command and return the exit code."""
        ...


COMMANDS = (
    CommandEntry(
        name="serve", summary="start the gateway: the APIs and the pages", module="treadle.cli.commands.serve_command"
    ),
    CommandEntry(
        name="chat", summary="talk to a model here in the terminal", module="treadle.cli.commands.chat_command"
    ),
    CommandEntry(
        name="run", summary="answer one prompt and exit, for scripts", module="treadle.cli.commands.run_command"
    ),
    CommandEntry(
        name="replay",
        summary="drive a stored run again, as a proof or a fork",
        module="treadle.cli.commands.replay_command",
    ),
    CommandEntry(
        name="tools",
        summary="list the tools that Treadle runs, and check them",
        module="treadle.cli.commands.tools_command",
    ),
    CommandEntry(
        name="models", summary="list the models that can be asked", module="treadle.cli.commands.models_command"
    ),
    CommandEntry(
        name="dialects",
        summary="list how models write calls as text, and try it",
        module="treadle.cli.commands.dialects_command",
    ),
    CommandEntry(
        name="mcp", summary="be an MCP server, or look after others", module="treadle.cli.commands.mcp_command"
    ),
    CommandEntry(
        name="login",
        summary="print a one-time link to the pages, or a key",
        module="treadle.cli.commands.keys_command:Login",
    ),
    CommandEntry(
        name="keys", summary="make, list and revoke the keys of clients", module="treadle.cli.commands.keys_command"
    ),
    CommandEntry(
        name="doctor", summary="check this machine and the configuration", module="treadle.cli.commands.doctor_command"
    ),
    CommandEntry(
        name="config", summary="show, check or write the configuration", module="treadle.cli.commands.config_command"
    ),
    CommandEntry(
        name="trust", summary="agree to a treadle.toml that you found here", module="treadle.cli.commands.trust_command"
    ),
    CommandEntry(
        name="eval", summary="run scenarios and report how tools are called", module="treadle.cli.commands.eval_command"
    ),
    CommandEntry(
        name="sessions",
        summary="list, search, fork and export conversations",
        module="treadle.cli.commands.sessions_command",
    ),
    CommandEntry(
        name="logs", summary="find runs by what was said, called or failed", module="treadle.cli.commands.logs_command"
    ),
    CommandEntry(
        name="ws",
        summary="workspaces: facts, drafts, locks, proposals",
        module="treadle.cli.commands.workspace_command",
    ),
    CommandEntry(
        name="approvals",
        summary="decide about calls that wait for you",
        module="treadle.cli.commands.approvals_command",
    ),
    CommandEntry(
        name="store",
        summary="copy, restore, check and thin out the journal",
        module="treadle.cli.commands.store_command",
    ),
    CommandEntry(
        name="plan", summary="show exactly what a model call sent", module="treadle.cli.commands.plan_command"
    ),
    CommandEntry(
        name="export", summary="write runs as JSON Lines, exactly", module="treadle.cli.commands.export_command"
    ),
    CommandEntry(
        name="audit", summary="prove that runs are as they were written", module="treadle.cli.commands.audit_command"
    ),
    CommandEntry(name="diff", summary="compare two runs, entry by entry", module="treadle.cli.commands.diff_command"),
    CommandEntry(
        name="cassette", summary="make a run a recording, or a scenario", module="treadle.cli.commands.cassette_command"
    ),
    CommandEntry(
        name="wasm", summary="run, call, check, begin and build WASM guests", module="treadle.cli.commands.wasm_command"
    ),
    CommandEntry(
        name="completion", summary="print completion for a shell", module="treadle.cli.commands.completion_command"
    ),
)
_TOP_FLAGS = ("-h", "--help", "--version")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _fill_streams()
    arguments = name_command(list(sys.argv[1:] if argv is None else argv))
    try:
        code = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except TreadleError as error:
        return command.report(error)
    except KeyboardInterrupt:
        return command.CANCELLED
    except BrokenPipeError:
        _forget_output()
        return command.ERROR
    except OSError as error:
        _forget_output()
        what = error.filename or "the output can not be written"
        return command.report(TreadleError(f"{what}: {error.strerror or error}"))
    return code


def _run(arguments: list[str]) -> int:
    """Find the command and run it. Raises: TreadleError, OSError."""
    parser = build_parser(next(iter(arguments[_file_flag_length(arguments) :]), None))
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.inner(args.command).refuse(unknown, [entry.name for entry in COMMANDS])
    args.command_line = arguments
    return load(args.command).run(args)


def name_command(arguments: list[str]) -> list[str]:
    """Insert the default command if none is named: at the front, or after a --config."""
    place = _file_flag_length(arguments)
    head, rest = arguments[:place], arguments[place:]
    if not rest or (rest[0].startswith("-") and rest[0] not in _TOP_FLAGS):
        is_prompt = any(flag == "--prompt" or flag.startswith(("-p", "--prompt=")) for flag in rest)
        return [*head, "run" if is_prompt else "chat", *rest]
    return arguments


def _file_flag_length(arguments: list[str]) -> int:
    """Return how many words a --config in front takes."""
    first = arguments[0] if arguments else ""
    if first.startswith("--config="):
        return 1
    return min(2, len(arguments)) if first == "--config" else 0


def build_parser(wanted: str | None = None) -> Parser:
    """Return the parser, with the flags of the wanted command only; of all commands when none is named."""
    parser = Parser(
        prog="treadle",
        description="Keep a tool-calling loop turning between any client and any model.",
        epilog=EPILOG,
        formatter_class=lambda prog: Manual(prog, max_help_position=18),
    )
    parser.add_argument("--config", metavar="FILE", help="read this file instead of ./treadle.toml")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    for entry in COMMANDS:
        inner = commands.add_parser(
            entry.name,
            help=entry.summary,
            description=f"{entry.summary[0].upper()}{entry.summary[1:]}.",
            formatter_class=Manual,
        )
        if wanted is None or entry.name == wanted:
            load(entry.name).describe(inner)
            finish_help(inner, entry.name)
    return parser


def load(name: str) -> CommandModule:
    """Import a command."""
    entry = next(entry for entry in COMMANDS if entry.name == name)
    module, _, name = entry.module.partition(":")
    found = importlib.import_module(module)
    return cast("CommandModule", getattr(found, name) if name else found)


class _Version(argparse.Action):
    """Reads the version only when asked for: importing the package metadata takes longer than all of --help."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"treadle {version('treadle')}")
        parser.exit()


def _fill_streams() -> None:
    """Replace standard streams that the parent closed: otherwise the next opened file would get their number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            found = os.open(os.devnull, os.O_RDWR)
            if found != number:
                os.dup2(found, number)
                os.close(found)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="replace", closefd=False))


def _forget_output() -> None:
    """Discard output that cannot be written, so that the interpreter's flush at exit does not fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
