"""The command line's parser: argparse with errors that suggest what was probably meant."""

import argparse
import re
import sys
from collections.abc import Collection
from typing import Any, NoReturn, cast

_CHOICE = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)")
USAGE_ERROR = 2


class Parser(argparse.ArgumentParser):
    """Prints errors like the rest of Treadle: what is wrong, then a hint."""

    def error(self, message: str) -> NoReturn:
        """Print the usage, the mistake and the way out, and leave with the code for usage."""
        found = _CHOICE.search(message)
        near = ""
        if found:
            near = _nearest(found["given"], re.findall(r"[\w.-]+", found["known"]))
        self._leave(message, near)

    def refuse(self, unknown: list[str], commands: Collection[str] = ()) -> NoReturn:
        """Exit over unknown arguments; if one of them is a command, suggest it as the first word."""
        flags = [flag for action in actions_of(self) for flag in action.option_strings if flag.startswith("--")]
        wrong = next((word for word in unknown if word.startswith("-")), "")
        near = _nearest(wrong.partition("=")[0], flags)
        command = next((word for word in unknown if word in commands), "")
        self._leave(f"unrecognized arguments: {' '.join(unknown)}", near or (command and f"treadle {command} …"))

    def inner(self, name: str) -> "Parser":
        """Return the parser of a command."""
        return cast("Parser", commands_of(self)[name])

    def _leave(self, message: str, near: str) -> NoReturn:
        self.print_usage(sys.stderr)
        meant = f"did you mean {near}? " if near else ""
        sys.stderr.write(f"treadle: {message}\n  hint: {meant}`{self.prog} --help` lists what there is\n")
        raise SystemExit(USAGE_ERROR)


def actions_of(parser: argparse.ArgumentParser) -> list[Any]:
    """Return the actions of a parser; argparse has no public way to list them."""
    return cast("list[Any]", vars(parser)["_actions"])


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands or actions of a parser, by name; none where it has none."""
    found = next((each for each in actions_of(parser) if isinstance(each.choices, dict)), None)
    return {} if found is None else cast("dict[str, argparse.ArgumentParser]", found.choices)


def _nearest(given: str, known: list[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(given, known, n=1, cutoff=0.6)), "") if given else ""
