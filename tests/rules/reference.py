"""The reference pages, made from code: every endpoint, flag, event, host call and public name."""

import argparse
import importlib
import inspect
from collections.abc import Iterator
from typing import Any, get_args

import msgspec

from gateway.mistakes import MISTAKES
from rules.api import documented, signature_of, type_text
from rules.tree import ROOT
from treadle.cli.main import COMMANDS, build_parser
from treadle.core import events
from treadle.server.openapi_document import operations
from treadle.server.route_table import TABLE
from treadle.wasm.cchat_abi import CALLS, MODULE, MODULE_COMPATIBLE


def write_endpoints() -> str:
    """Write every operation of the HTTP server, by API."""
    lines: list[str] = []
    described = list(operations(TABLE))
    for tag in dict.fromkeys(each.row.tag for each in described):
        rows = [
            f"| `{each.method}` | `{each.path}` | {_cell(row.summary)} | {_names(q.name for q in row.query)} |"
            for each in described
            if (row := each.row).tag == tag
        ]
        lines += [f"## {tag}", "", "| method | path | does | query |", "|---|---|---|---|", *rows, ""]
    return "\n".join(["", *lines])


def write_events() -> str:
    """Write every event of a run: its type, when it comes, what it carries."""
    rows = [_event(kind) for kind in get_args(events.RunEvent)]
    return "\n".join(["| `type` | in Python | is | fields |", "|---|---|---|---|", *rows, ""])


def _event(kind: type[msgspec.Struct]) -> str:
    fields = [f"`{each.name}`{'' if each.required else '?'}" for each in msgspec.structs.fields(kind)]
    fields += [f"`{name}`" for name, member in vars(kind).items() if isinstance(member, property)]
    tag = kind.__struct_config__.tag
    return f"| `{tag}` | `{kind.__name__}` | {_cell(_first(kind))} | {', '.join(fields)} |"


def write_mistakes() -> str:
    """Write what a newcomer can get wrong, in the words that are then said."""
    rows = [
        f"| {each.name} | {' | '.join(_names([_bare(text)] if text else []) for text in said)} |"
        for each in MISTAKES
        for said in ((each.what, each.way_out, each.doctor),)
    ]
    return "\n".join(["| mistake | it says | and what to do | the doctor finds |", "|---|---|---|---|", *rows, ""])


def write_decisions() -> str:
    """Write the decisions, oldest first, by their titles."""
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    titles = [page.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ") for page in pages]
    return "".join(f"- [{title}](decisions/{page.name})\n" for page, title in zip(pages, titles, strict=True))


def write_host_calls() -> str:
    """Write the host calls of guests: what each takes, and how it can fail."""
    rows = [
        f"| `{call.name}({', '.join(call.parameters)})` | {call.result} |"
        f" {_names(sorted(error.name for error in call.errors))} | {'yes' if call.compatible else 'no'} |"
        for call in CALLS.values()
    ]
    head = f"| call of `{MODULE}` | returns | errors | also in `{MODULE_COMPATIBLE}` |"
    return "\n".join([head, "|---|---|---|---|", *rows, ""])


def write_library() -> str:
    """Write every public name: how it is called and what it is."""
    lines: list[str] = []
    for module, names in sorted(documented().items()):
        found = {name: getattr(importlib.import_module(module), name) for name in sorted(names)}
        rows = [f"| {_call(name, value)} | {_cell(_first(value))} |" for name, value in found.items()]
        lines += [f"## `{module}`", "", "| name | is |", "|---|---|", *rows, ""]
    return "\n".join(["", *lines])


def _call(name: str, value: Any) -> str:
    if inspect.isclass(value):
        return f"`{name}`"
    return f"`{_bare(name + signature_of(value))}`" if callable(value) else f"`{name}` = `{_bare(type_text(value))}`"


def _bare(text: str) -> str:
    """Write code in a cell of a table."""
    return text.replace("|", "\\|")


def write_cli() -> str:
    """Write every flag of every command."""
    lines: list[str] = []
    for entry in COMMANDS:
        parser = build_parser(entry.name)
        [commands] = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        lines += [f"## treadle {entry.name}", "", f"{entry.summary[0].upper()}{entry.summary[1:]}.", ""]
        lines += _parser(commands.choices[entry.name], f"treadle {entry.name}")
    return "\n".join(["", *lines])


def _parser(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    inner: list[tuple[str, argparse.ArgumentParser]] = []
    rows: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner += _once(name, action.choices)
            continue
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        words = argparse.HelpFormatter(name)._expand_help(action) if action.help else ""
        rows.append(f"| {_flag(action)} | {_cell(words)} |")
    if rows:
        yield from [f"| `{name}` takes | |", "|---|---|", *rows, ""]
    for each, sub in inner:
        yield from _parser(sub, each)


def _once(name: str, choices: dict[str, argparse.ArgumentParser]) -> list[tuple[str, argparse.ArgumentParser]]:
    """Return inner commands by their full name, each once: an alias is the same parser again."""
    found: dict[int, tuple[str, argparse.ArgumentParser]] = {}
    for each, parser in choices.items():
        found.setdefault(id(parser), (f"{name} {each}", parser))
    return list(found.values())


def _flag(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    shown = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        return f"`{_bare(shown)}`"
    takes = "" if action.nargs == 0 else f" {shown}"
    return ", ".join(f"`{_bare(each + takes)}`" for each in action.option_strings)


def _first(value: Any) -> str:
    """Return the first sentence of what an object says of itself; of a value that is no class or function, nothing."""
    if not (inspect.isclass(value) or callable(value)):
        return "one of these"
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


def _names(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
