"""What can be completed: the commands, their actions, flags and words, read from the parsers themselves."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.cli.argument_parser import actions_of, commands_of

Kind = Literal["nothing", "choice", "file", "text"]
_FILES = frozenset({"FILE", "PATH", "DIR", "FOLDER", "FILE_OR_MODULE", "ACTION or PATH"})


class CommandFlag(msgspec.Struct, frozen=True, kw_only=True):
    """A flag: its spellings, what it is for, and what comes behind it."""

    names: tuple[str, ...]
    summary: str
    kind: Kind
    choices: tuple[str, ...] = ()


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """A word that may stand at a place, and what it is for."""

    text: str
    summary: str


class ArgumentPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A command or one of its actions: `path` is what has been typed so far, such as `treadle keys create`."""

    path: str
    flags: tuple[CommandFlag, ...]
    words: tuple[Word, ...]
    takes_files: bool = False

    @property
    def steps(self) -> list[str]:
        """Return the words behind the program."""
        return self.path.split()[1:]


def read_places(parser: argparse.ArgumentParser, path: str = "treadle") -> Iterator[ArgumentPlace]:
    """Yield every place below a parser, itself first."""
    inner = commands_of(parser)
    positional = [each for each in actions_of(parser) if not each.option_strings]
    words = [Word(text=name, summary=_summary(parser, name)) for name in inner]
    if not inner:
        words += [Word(text=str(choice), summary="") for each in positional for choice in each.choices or ()]
        words += _eval_actions(path)
    flags = [_flag(each) for each in actions_of(parser) if each.option_strings]
    takes_files = any(_kind(each) == "file" for each in positional)
    yield ArgumentPlace(path=path, flags=tuple(flags), words=tuple(words), takes_files=takes_files)
    for name, each in inner.items():
        yield from read_places(each, f"{path} {name}")


def _eval_actions(path: str) -> list[Word]:
    """Return the actions of `treadle eval`, which its parser takes for paths."""
    if path != "treadle eval":
        return []
    from treadle.cli.commands.eval_command import ACTIONS

    return [Word(text=name, summary="") for name in ACTIONS]


def _summary(parser: argparse.ArgumentParser, name: str) -> str:
    """Return the line that the help shows beside a command."""
    listed: list[Any] = next(each for each in actions_of(parser) if isinstance(each.choices, dict))._choices_actions
    return next((str(each.help) for each in listed if each.dest == name), "")


def _flag(action: Any) -> CommandFlag:
    choices = tuple(str(choice) for choice in action.choices or ())
    return CommandFlag(
        names=tuple(action.option_strings),
        summary=str(action.help or "").replace("%%", "%"),
        kind=_kind(action),
        choices=choices,
    )


def _kind(action: Any) -> Kind:
    if action.option_strings and action.nargs == 0:
        return "nothing"
    if action.choices:
        return "choice"
    return "file" if action.metavar in _FILES or action.type is Path else "text"
