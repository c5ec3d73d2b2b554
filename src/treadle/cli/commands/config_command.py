"""`treadle config`: show the settings in force and their sources, check a file, print an example."""

import argparse
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from treadle.cli import command_base as command
from treadle.journal.store_url import shown_url
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.config import Loaded, ToolsSection
    from treadle.config.error_messages import Problem

EPILOG = """\
Later wins: treadle.toml, then TREADLE_SECTION__KEY in the environment, then flags.

examples:
  treadle config show                         every key, its value, and where that comes from
  treadle config example > treadle.toml       a commented file with every key
  treadle config check                        find all mistakes in treadle.toml at once
  treadle config check other.toml             or in another file"""

SOURCE_COLUMN = 48


class ShownSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One key in force."""

    key: str
    value: Any
    source: str


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="print every key in force and where it comes from")
    command.add_config_flags(show)
    command.add_json_flag(show)
    actions.add_parser("example", help="print a commented treadle.toml with every key and its default")
    check = actions.add_parser("check", help="find the mistakes in a file")
    check.add_argument("file", nargs="?", metavar="FILE", help="the file to check (default: treadle.toml)")
    command.add_file_flag(check)


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    return {"show": _show, "example": _example, "check": _check}[args.action](args)


def _show(args: argparse.Namespace) -> int:
    loaded = command.read_flags(args)
    shown = list_shown(loaded)
    keys = key_states(loaded)
    if args.json:
        document = {"file": loaded.file, "settings": shown, "keys": keys}
        command.print_json(document)
        return command.OK
    print(f"# file: {loaded.file or 'none (treadle.toml is not here)'}")
    for row in shown:
        line = f"{row.key} = {_text(row.value)}"
        print(clean(f"{line:<{SOURCE_COLUMN}}  # {row.source}"))
    for name, state in keys.items():
        print(clean(f"# key {name}: {state}"))
    return command.OK


def _example(args: argparse.Namespace) -> int:
    from treadle.config import write_example

    print(write_example(), end="")
    return command.OK


def _check(args: argparse.Namespace) -> int:
    """Read the file alone: a variable that happens to be set must not hide a mistake."""
    from treadle.config import inspect_settings
    from treadle.config.error_messages import raise_problems
    from treadle.config.loader import FILE_NAME

    loaded, problems = inspect_settings(args.file or vars(args).get("config") or FILE_NAME, env={})
    raise_problems(problems + find_missing(loaded))
    print(f"{loaded.file}: no mistakes")
    return command.OK


def find_missing(loaded: "Loaded") -> "list[Problem]":
    """Return what the settings name and this machine does not have."""
    from treadle.config.error_messages import origin_of

    found = _missing(loaded.settings.tools)
    return [
        msgspec.structs.replace(problem, origin=origin_of(tuple(problem.path.split(".")), loaded.sources))
        for problem in found
    ]


def _missing(tools: "ToolsSection") -> Iterable["Problem"]:
    from treadle.config.error_messages import Problem
    from treadle.tools.local import LOCAL_NAMES
    from treadle.tools.tool_loading import names_file

    for name in tools.load:
        if names_file(name) and not os.path.isfile(os.path.expanduser(name)):
            yield Problem(path="tools.load", message=f"there is no file {name}")
    root = tools.local.root
    if not os.path.isdir(root):
        yield Problem(path="tools.local.root", message=f"there is no folder {root}")
    for name in tools.local.enabled:
        if name not in LOCAL_NAMES:
            hint = f"there are {', '.join(LOCAL_NAMES)}"
            yield Problem(path="tools.local.enabled", message=f"there is no local tool {name!r}", hint=hint)


def list_shown(loaded: "Loaded") -> list[ShownSetting]:
    """Return every key in force; of secrets there are only names of variables, and stars for a password."""
    rows = _rows(loaded, msgspec.to_builtins(loaded.settings), "")
    return [msgspec.structs.replace(row, value=shown_url(row.value)) if row.key == "store.url" else row for row in rows]


def key_states(loaded: "Loaded") -> dict[str, str]:
    """Return for each variable that holds a provider's key whether it is set."""
    names = [upstream.key_env for upstream in loaded.settings.upstream if upstream.key_env]
    return {name: "set" if os.environ.get(name) else "unset" for name in dict.fromkeys(names)}


def _rows(loaded: "Loaded", value: Any, path: str) -> list[ShownSetting]:
    pairs: list[tuple[str, Any]]
    if isinstance(value, dict) and (value or not path):
        table = cast("dict[str, Any]", value)
        pairs = [(f"{path}.{key}" if path else key, inner) for key, inner in table.items()]
    elif _is_rows(value):
        pairs = [(f"{path}[{index}]", inner) for index, inner in enumerate(cast("list[Any]", value))]
    else:
        return [ShownSetting(key=path, value=value, source=_source(loaded, path))]
    return [row for name, inner in pairs for row in _rows(loaded, inner, name)]


def _is_rows(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(row, dict) for row in cast("list[Any]", value))


def _source(loaded: "Loaded", path: str) -> str:
    """Return the origin of a key, or of the whole list that it came with."""
    while path not in loaded.sources and path:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return loaded.source(path)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
