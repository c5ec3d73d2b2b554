"""`treadle completion`: a script for the shell, written from the parsers so that it knows every command and flag."""

import argparse
import sys
from collections.abc import Callable, Iterable

from treadle.cli import command_base as command
from treadle.cli.bash_completion import write_bash
from treadle.cli.command_tree import ArgumentPlace, read_places
from treadle.cli.fish_completion import write_fish
from treadle.cli.zsh_completion import write_zsh

EPILOG = """\
The script completes commands, their actions and flags, and what flags take. Make it again after an upgrade.

examples:
  source <(treadle completion bash)                                     this bash, now
  treadle completion bash > ~/.local/share/bash-completion/completions/treadle
  treadle completion zsh > ~/.zfunc/_treadle                            with ~/.zfunc in $fpath, before compinit
  treadle completion fish > ~/.config/fish/completions/treadle.fish"""

SHELLS: dict[str, Callable[[Iterable[ArgumentPlace]], str]] = {"bash": write_bash, "zsh": write_zsh, "fish": write_fish}


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=tuple(SHELLS), help="the shell that shall complete")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from treadle.cli.main import build_parser

    sys.stdout.write(SHELLS[args.shell](read_places(build_parser())))
    return command.OK
