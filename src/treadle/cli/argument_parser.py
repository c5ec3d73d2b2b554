"""The parser of the command line: as argparse's, but a mistake is said with what was probably meant."""

import argparse
import re
import sys
from collections.abc import Collection
from typing import Any, NoReturn, cast

_CHOICE = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)")
USAGE_ERROR = 2


class Parser(argparse.ArgumentParser):
    """Says errors as all of Treadle's are said: what is wrong, and below it what to do."""

    def error(self, message: str) -> NoReturn:
        """Print the usage, the mistake and the way out, and leave with the code for usage."""
        found = _CHOICE.search(message)
        near = ""
        if found:
            near = _nearest(found["given"], re.findall(r"[\w.-]+", found["known"]))
        self._leave(message, near)

    def refuse(self, unknown: list[str], commands: Collection[str] = ()) -> NoReturn:
        """Leave over words that nobody knows; one of them may be a command that belongs in front."""
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
    """Return what a parser takes; argparse keeps it under an underscore and offers no other way to list it."""
    return cast("list[Any]", vars(parser)["_actions"])


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands or actions of a parser, by name; none where it has none."""
    found = next((each for each in actions_of(parser) if isinstance(each.choices, dict)), None)
    return {} if found is None else cast("dict[str, argparse.ArgumentParser]", found.choices)


def _nearest(given: str, known: list[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(given, known, n=1, cutoff=0.6)), "") if given else ""
