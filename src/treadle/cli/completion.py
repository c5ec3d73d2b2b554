"""`treadle completion`: a script for the shell, written from the parsers so that it knows every command and flag."""

import argparse
from collections.abc import Iterable
from typing import Any, cast

from treadle.cli import command

EPILOG = """\
examples:
  source <(treadle completion bash)
  treadle completion zsh > ~/.zfunc/_treadle
  treadle completion fish > ~/.config/fish/completions/treadle.fish"""

_BASH = """\
_treadle() {{
  local words
  if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"; else
    case "${{COMP_WORDS[1]}}" in
{cases}
      *) words="" ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _treadle treadle
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that shall complete")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from treadle.cli.main import COMMANDS, build_parser

    parsers = _subparsers(build_parser())
    words = {name: list(_words(parser)) for name, parser in parsers.items()}
    summaries = {entry.name: entry.summary for entry in COMMANDS}
    if args.shell == "fish":
        print(_fish(words, summaries))
        return command.OK
    cases = "\n".join(f'      {name}) words="{" ".join(found)}" ;;' for name, found in words.items())
    script = _BASH.format(commands=" ".join(words), cases=cases)
    prefix = "#compdef treadle\nautoload -U +X bashcompinit && bashcompinit\n" if args.shell == "zsh" else ""
    print(f"{prefix}{script}", end="")
    return command.OK


def _fish(words: dict[str, list[str]], summaries: dict[str, str]) -> str:
    lines = [
        f"complete -c treadle -n __fish_use_subcommand -f -a {name} -d '{summary}'"
        for name, summary in summaries.items()
    ]
    for name, found in words.items():
        seen = f"'__fish_seen_subcommand_from {name}'"
        for word in found:
            kind = f"-l {word.removeprefix('--')}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c treadle -n {seen} {kind}")
    return "\n".join(lines)


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next(action.choices for action in _actions(parser) if action.dest == "command")


def _words(parser: argparse.ArgumentParser) -> Iterable[str]:
    for action in _actions(parser):
        if not action.option_strings and action.choices:
            yield from map(str, action.choices)
        yield from (flag for flag in action.option_strings if flag.startswith("--"))


def _actions(parser: argparse.ArgumentParser) -> list[Any]:
    """Return what a parser takes; argparse keeps it under an underscore and offers no other way to list it."""
    return cast("list[Any]", vars(parser)["_actions"])
