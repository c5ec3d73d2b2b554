"""`treadle completion`: print a shell completion script.

`shtab` writes the scripts from the parsers. What is added here: which arguments are files or folders, and, for bash,
completion after `--flag=`.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treadle.cli import command_base as command
from treadle.cli.argument_parser import actions_of, commands_of

EPILOG = """\
The script completes commands, their actions and flags, and what flags take. Make it again after an upgrade.

examples:
  source <(treadle completion bash)                                     this bash, now
  treadle completion bash > ~/.local/share/bash-completion/completions/treadle
  treadle completion zsh > ~/.zfunc/_treadle                            with ~/.zfunc in $fpath, before compinit
  treadle completion fish > ~/.config/fish/completions/treadle.fish
  treadle completion tcsh > ~/.treadle.tcsh                             and `source ~/.treadle.tcsh` in ~/.tcshrc
  treadle completion powershell > treadle.ps1                           and `. ./treadle.ps1` in $PROFILE"""

SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")
_FILES = frozenset({"FILE", "PATH", "FILE_OR_MODULE"})
_FOLDERS = frozenset({"DIR", "FOLDER"})

# Bash splits words at `=`, and shtab counts what is left as arguments of their own: "--output = te" would complete a
# positional argument. It also takes a value in front of the command for the command: "--config store ke". Readline's
# default stays, so that files are offered where nothing else is known.
_BASH_FLAG_VALUES = """

_treadle() {
  local word last="${COMP_WORDS[COMP_CWORD]}" words=()
  for word in "${COMP_WORDS[@]:0:COMP_CWORD}"; do [ "$word" = "=" ] || words+=("$word"); done
  [ "$last" = "=" ] && last=""
  if [ "${words[1]-}" = --config ] && [ ${#words[@]} -gt 2 ]; then words=(treadle "${words[@]:3}"); fi
  local COMP_WORDS=("${words[@]}" "$last") COMP_CWORD=${#words[@]}
  _shtab_treadle
}
complete -o bashdefault -o default -F _treadle treadle
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=SHELLS, help="the shell to write completions for")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from treadle.cli.main import build_parser

    parser = build_parser()
    for action in _actions(parser):
        if action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY
        elif action.metavar in _FILES or action.type is Path:
            action.complete = shtab.FILE
        elif action.metavar == "ACTION or PATH":
            action.complete = _eval_paths()
    script = shtab.complete(parser, args.shell)
    sys.stdout.write(script + (_BASH_FLAG_VALUES if args.shell == "bash" else "\n"))
    return command.OK


def _actions(parser: argparse.ArgumentParser) -> Iterator[Any]:
    """Yield the arguments of a parser and of the parsers of its commands."""
    yield from (each for each in actions_of(parser) if each.nargs != 0 and not isinstance(each.choices, dict))
    for inner in commands_of(parser).values():
        yield from _actions(inner)


def _eval_paths() -> dict[str, str | dict[str, str]]:
    """Return how the arguments of `treadle eval` complete: its parser takes its actions for paths."""
    from treadle.cli.commands.eval_command import ACTIONS

    names = " ".join(ACTIONS)
    return {
        "bash": "_treadle_eval_files",
        "zsh": f"{{_alternative 'actions:action:({names})' 'files:file:_files'}}",
        "tcsh": "f",
        "fish": f"{names} (__fish_complete_path (commandline -ct))",
        "powershell": "_treadle_eval_files",
        "preamble": {
            "bash": f'_treadle_eval_files() {{ compgen -W "{names}" -- "$1"; _shtab_compgen_files "$1"; }}',
            "powershell": "function _treadle_eval_files { param([string]$WordToComplete) "
            f"(@('{names}' -split ' ') | Where-Object {{ $_ -like \"$WordToComplete*\" }}) + "
            "@(_shtab_powershell_compgen_files $WordToComplete) }",
        },
    }
