"""The entry point: the table of commands, and the edge where an error becomes one line and an exit code.

Only the module of the command that was asked for is imported, so that `treadle --help` answers at once.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

import msgspec

from treadle.canon.errors import TreadleError
from treadle.cli import command

EPILOG = """\
Without a command Treadle opens a chat; `treadle -p "text"` is `treadle run "text"`.

examples:
  treadle                             chat with the demo model: no key, no set-up
  treadle serve                       start the gateway at http://127.0.0.1:8700
  treadle run "what time is it?"      one turn, for scripts
  OPENAI_API_KEY=… treadle -m MODEL   chat with a real model
  treadle doctor                      find out what does not work, and why
"""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One command: its name, what it is for, and the module that knows it."""

    name: str
    summary: str
    module: str


class CommandModule(Protocol):
    """What the module of a command offers."""

    def describe(self, parser: argparse.ArgumentParser) -> None:
        """Say what the command takes."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do it and return the exit code."""
        ...


COMMANDS = (
    Entry(name="serve", summary="start the gateway: the APIs and the pages", module="treadle.cli.serve"),
    Entry(name="chat", summary="talk to a model here in the terminal", module="treadle.cli.chat"),
    Entry(name="run", summary="answer one prompt and exit, for scripts", module="treadle.cli.run"),
    Entry(name="tools", summary="list the tools that Treadle runs, and check them", module="treadle.cli.tools"),
    Entry(name="doctor", summary="check this machine and the configuration", module="treadle.cli.doctor"),
    Entry(name="config", summary="show, check or write the configuration", module="treadle.cli.config"),
    Entry(name="eval", summary="run scenarios and report how tools are called", module="treadle.cli.eval"),
    Entry(name="completion", summary="print completion for a shell", module="treadle.cli.completion"),
)
_TOP_FLAGS = ("-h", "--help", "--version")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = name_command(list(sys.argv[1:] if argv is None else argv))
    try:
        args = build_parser(arguments[0]).parse_args(arguments)
        return load(args.command).run(args)
    except TreadleError as error:
        return command.report(error)
    except KeyboardInterrupt:
        return command.CANCELLED
    except BrokenPipeError:
        _leave_quietly()


def name_command(arguments: list[str]) -> list[str]:
    """Put the command in front where it was left out."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in _TOP_FLAGS):
        is_prompt = any(flag == "--prompt" or flag.startswith(("-p", "--prompt=")) for flag in arguments)
        return ["run" if is_prompt else "chat", *arguments]
    return arguments


def build_parser(wanted: str | None = None) -> argparse.ArgumentParser:
    """Return the parser, with the flags of the wanted command only; of all commands when none is named."""
    parser = argparse.ArgumentParser(
        prog="treadle",
        description="Keep a tool-calling loop turning between any client and any model.",
        epilog=EPILOG,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=18),
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    for entry in COMMANDS:
        inner = commands.add_parser(
            entry.name,
            help=entry.summary,
            description=f"{entry.summary[0].upper()}{entry.summary[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if wanted is None or entry.name == wanted:
            load(entry.name).describe(inner)
    return parser


def load(name: str) -> CommandModule:
    """Import the module of a command."""
    entry = next(entry for entry in COMMANDS if entry.name == name)
    return cast("CommandModule", importlib.import_module(entry.module))


class _Version(argparse.Action):
    """Asks the installed package only when somebody wants to know: that takes longer than all of --help."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"treadle {version('treadle')}")
        parser.exit()


def _leave_quietly() -> NoReturn:
    """The reader of our output is gone: nothing is left to say, also not by the interpreter's flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(command.ERROR)


if __name__ == "__main__":
    sys.exit(main())
