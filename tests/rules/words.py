"""Every word that is persisted or public, as text: what a journal, a file, a script or a client may hold on to.

`PYTHONPATH=tests:src python -m rules.words` writes `words.txt` and `openapi.json` anew. No line names a module, a class
or a function, so that moving or renaming those changes nothing here.
"""

import argparse
import ast
import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_args

import apsw
import msgspec

import treadle
from rules.api import documented
from rules.generated import all_series
from rules.tree import SOURCE, modules, parsed
from treadle.cli.main import COMMANDS, build_parser
from treadle.config import Settings
from treadle.config.environment import ENABLE_TOOLS, PROVIDERS, leaf_paths, variable_of
from treadle.config.error_messages import bare_type, field_types, is_struct, row_type
from treadle.core import events
from treadle.core.errors import STORE_MESSAGES, StoreError, TreadleError
from treadle.core.journal_entries import EntryKind
from treadle.journal.sqlite.migrations import migrate, read_migrations
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.text_calls.dialect_table import DIALECTS
from treadle.providers.quirk_table import PRESETS, QUIRKS
from treadle.server.openapi_document import document
from treadle.server.route_table import TABLE as ROUTES
from treadle.server.route_table import write_openapi
from treadle.terminal.slash_commands.command_registry import COMMANDS as SLASH
from treadle.wasm.cchat_abi import CALLS, MODULE, MODULE_COMPATIBLE

FROZEN = Path(__file__).with_name("words.txt")
OPENAPI = Path(__file__).with_name("openapi.json")
_CODE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_VARIABLE = re.compile(r"TREADLE_[A-Z]+(_[A-Z]+)*")
_HEADER = re.compile(r"x-treadle-[a-z-]+")
_TABLE = re.compile(r"CREATE (?:UNLOGGED )?TABLE (\w+) \(\n(.*?)\n\)", re.DOTALL)
_COLUMN = re.compile(r"^\s+([a-z_0-9]+)\s+[a-z]")
_ALTERED = re.compile(r"ALTER TABLE (\w+)\s+(.*?);", re.DOTALL)
_FIELD_DEPTH_MAX = 6


def entry_kinds() -> Iterator[str]:
    """Yield the kinds of a journal's entries."""
    yield from get_args(EntryKind)


def event_types() -> Iterator[str]:
    """Yield the events of a run with their fields."""
    for kind in get_args(events.RunEvent):
        yield f"{kind.__struct_config__.tag}: {' '.join(sorted(kind.__struct_encode_fields__))}"


def sqlite_columns() -> Iterator[str]:
    """Yield the tables, views and columns that the migrations of SQLite make."""
    connection = apsw.Connection(":memory:")
    migrate(connection, read_migrations(), 0.0)
    listed = "SELECT m.name || ' ' || c.name FROM sqlite_schema m, pragma_table_info(m.name) c"
    listed += " WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite_%'"
    yield from (str(line) for (line,) in connection.execute(listed))


def postgres_columns() -> Iterator[str]:
    """Yield the tables and columns that the migrations of PostgreSQL make, read from their text."""
    columns: dict[str, None] = {}
    for file in _migrations("postgres"):
        text = re.sub(r"--[^\n]*", "", file.read_text(encoding="utf-8"))
        for name, body in _TABLE.findall(text):
            found = (_COLUMN.match(line) for line in body.splitlines())
            columns |= {f"{name} {column[1]}": None for column in found if column}
        for name, changes in _ALTERED.findall(text):
            columns |= {f"{name} {column}": None for column in re.findall(r"ADD COLUMN (\w+)", changes)}
            for column in re.findall(r"DROP COLUMN (\w+)", changes):
                columns.pop(f"{name} {column}")
            assert "RENAME" not in changes, f"{file.name} renames, which is not understood here"
        assert "DROP TABLE" not in text, f"{file.name} drops a table, which is not understood here"
    yield from columns


def migrations() -> Iterator[str]:
    """Yield the migrations of both stores: a text that was ever applied may not change."""
    from hashlib import sha256

    for store in ("sqlite", "postgres"):
        for file in _migrations(store):
            yield f"{store} {file.name} {sha256(file.read_bytes()).hexdigest()}"


def _migrations(store: str) -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.sql") if store in path.relative_to(SOURCE).parts)


def config_keys(kind: Any = Settings, prefix: str = "") -> Iterator[str]:
    """Yield every key of treadle.toml; one in a list of tables has `[]` in its path."""
    for name, inner in field_types(kind).items():
        row = row_type(inner)
        if is_struct(inner):
            yield from config_keys(inner, f"{prefix}{name}.")
        elif row is not None:
            yield from config_keys(row, f"{prefix}{name}[].")
        else:
            words = [str(each) for each in get_args(bare_type(inner)) if isinstance(each, str)]
            yield f"{prefix}{name}{': ' + ' '.join(words) if words else ''}"


def variables() -> Iterator[str]:
    """Yield the names in the environment: one for each key, those of providers, and those that the code spells."""
    yield from (variable_of(path) for path in leaf_paths())
    yield ENABLE_TOOLS
    for each in PROVIDERS:
        yield from filter(None, (each.key_env, each.url_env, each.model_env, each.wire_env))
    yield from (text for text in _constants() if _VARIABLE.fullmatch(text))


def headers() -> Iterator[str]:
    """Yield the headers that are Treadle's own."""
    yield from (text for text in _constants() if _HEADER.fullmatch(text))


def metrics() -> Iterator[str]:
    """Yield every series with its type and labels."""
    yield from (f"{each.name} {each.kind} {' '.join(each.labels)}".rstrip() for each in all_series())


def error_codes() -> Iterator[str]:
    """Yield every code of an error with its status: of the classes of errors, and those given where one is raised."""
    statuses: dict[str, int] = {}
    for kind in _below(TreadleError):
        statuses[kind.__name__] = kind.status
        yield f"{kind.code} {kind.status}"
    yield from (f"{code} {StoreError.status}" for code in STORE_MESSAGES)
    for module, node in _calls():
        for keyword in node.keywords:
            if keyword.arg == "code" and (code := _text(module, keyword.value)):
                yield f"{code} {_status(node, statuses)}"
        if _called(node) == "HttpError" and len(node.args) >= 2 and (code := _text(module, node.args[1])):
            yield f"{code} {_status(node, statuses)}"


def _below(kind: type[TreadleError]) -> Iterator[type[TreadleError]]:
    for each in (kind, *kind.__subclasses__()):
        if each.__module__.split(".")[0] != treadle.__name__:
            continue
        yield from (each,) if each is kind else _below(each)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _status(node: ast.Call, statuses: dict[str, int]) -> str:
    """Return the status that a call gives, else that of the class it makes; of what has neither, nothing is said."""
    given = [each.value for each in node.keywords if each.arg == "status"] + node.args[:1]
    found = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, int)]
    return str(found[0] if found else statuses.get(_called(node), "-"))


def _text(module: ModuleType, node: ast.expr) -> str:
    """Return the code that is spelled at a place, or is a constant of the module."""
    value = node.value if isinstance(node, ast.Constant) else getattr(module, getattr(node, "id", ""), None)
    return value if isinstance(value, str) and _CODE.fullmatch(value) else ""


@cache
def _loaded() -> tuple[tuple[ModuleType, ast.Module], ...]:
    """Return every module of the package with its tree."""
    names = {path: ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in modules()}
    return tuple(
        (importlib.import_module(name.removesuffix(".__init__")), parsed(path)) for path, name in names.items()
    )


@cache
def _calls() -> tuple[tuple[ModuleType, ast.Call], ...]:
    return tuple((module, node) for module, tree in _loaded() for node in ast.walk(tree) if isinstance(node, ast.Call))


@cache
def _constants() -> frozenset[str]:
    nodes = (node for _, tree in _loaded() for node in ast.walk(tree) if isinstance(node, ast.Constant))
    values = {node.value for node in nodes if isinstance(node.value, str | bytes)}
    return frozenset(value if isinstance(value, str) else value.decode("latin-1") for value in values)


def operations() -> Iterator[str]:
    """Yield every method and path with its parameters, and the fields of what is sent and answered."""
    described = document(ROUTES)
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            head = f"{method.upper()} {path}"
            yield head
            if method == "head":
                continue  # as GET, without a body
            yield from (f"{head} {each['in']} {each['name']}" for each in operation["parameters"])
            yield from (f"{head} takes {name}" for name in _content(operation.get("requestBody", {}), described))
            for status, answer in operation["responses"].items():
                # Errors have one of few forms, which many operations share.
                start = status if status.endswith("XX") else f"{head} {status}"
                yield from (f"{start} {name}" for name in _content(answer, described))


def _content(body: dict[str, Any], described: dict[str, Any]) -> Iterator[str]:
    for content in body.get("content", {}).values():
        yield from _fields(content["schema"], described)


def _fields(schema: Any, described: dict[str, Any], prefix: str = "", seen: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the names in a schema, those of an inner object behind that of the outer one."""
    reference = schema.get("$ref", "")
    if reference in seen or len(seen) > _FIELD_DEPTH_MAX:
        return
    if reference:
        seen = (*seen, reference)
        schema = described["components"]["schemas"][reference.rpartition("/")[2]]
    yield from (f"{prefix[:-1]}={each}" for each in (*schema.get("enum", ()), schema.get("const")) if each is not None)
    for name, inner in schema.get("properties", {}).items():
        yield prefix + name
        yield from _fields(inner, described, f"{prefix}{name}.", seen)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _fields(schema[key], described, prefix, seen)
    for inner in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _fields(inner, described, prefix, seen)


def routes() -> Iterator[str]:
    """Yield what the server's own table of routes answers."""
    yield from (f"{each.methods} {each.pattern}" for each in ROUTES)


def flags() -> Iterator[str]:
    """Yield every command of the command line with its flags and arguments."""
    for entry in COMMANDS:
        parser = build_parser(entry.name)
        [commands] = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        yield from _flags(commands.choices[entry.name], f"treadle {entry.name}")


def _flags(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    yield name
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from _flags(inner, f"{name} {word}")
            continue
        words = f" {' '.join(map(str, action.choices))}" if action.choices else ""
        shown = action.option_strings or [str(action.metavar or action.dest).upper()]
        yield from (f"{name} {word}{words}" for word in shown)


def names() -> Iterator[str]:
    """Yield the public names of the library, and those that documents import from its modules."""
    for module, found in documented().items():
        yield from (name if module == "treadle" else f"(documented) {name}" for name in found)


def host_calls() -> Iterator[str]:
    """Yield the calls that a guest may make."""
    yield from (MODULE, MODULE_COMPATIBLE)
    for call in CALLS.values():
        errors = " ".join(sorted(error.name for error in call.errors))
        yield f"{call.name}({', '.join(call.parameters)}) -> {call.result}: {errors}".rstrip(": ")


def rows() -> Iterator[str]:
    """Yield the words of tables that a configuration or a person in the chat may name."""
    yield from (f"protocol {name}" for name in PROTOCOLS)
    yield from (f"dialect {each.id}" for each in DIALECTS)
    yield from (f"quirk {name}" for name in QUIRKS)
    yield from (f"preset {name}" for name in PRESETS)
    yield from (f"chat {name}" for name in SLASH)


def shapes() -> Iterator[str]:
    """Yield the fields of every struct that is read from bytes: the journal, files, tokens, requests, providers.

    Each is one line without a name, because its class may be renamed; its fields may not.
    """
    for kind in _read():
        config = kind.__struct_config__
        tag = f"{config.tag_field}={config.tag} " if config.tag is not None else ""
        yield f"{tag}{' '.join(sorted(kind.__struct_encode_fields__))}"


def _read() -> set[Any]:
    """Return every struct that a decoder of the package reads, and those inside it."""
    found: set[Any] = set()
    for module, _ in _loaded():
        for value in vars(module).values():
            if isinstance(value, msgspec.json.Decoder):
                _inside(cast("Any", value).type, found)
    for module, node in _calls():
        if _called(node) in ("decode", "convert", "Decoder"):
            for given in (*node.args, *(each.value for each in node.keywords)):
                _inside(_evaluated(given, module), found)
    return {kind for kind in found if kind.__module__.split(".")[0] == treadle.__name__}


def _evaluated(node: ast.expr, module: ModuleType) -> Any:
    """Return the type that an argument names, where a module knows it."""
    if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp):
        return None
    try:
        return eval(compile(ast.Expression(node), "<type>", "eval"), dict(vars(module)))  # noqa: S307 our own source
    except (NameError, AttributeError, TypeError, KeyError, IndexError):
        return None


def _inside(kind: Any, found: set[Any]) -> None:
    if kind in (None, Any) or kind.__hash__ is None:
        return
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind in found:
            return
        found.add(kind)
        for field in msgspec.structs.fields(kind):
            _inside(field.type, found)
    for inner in get_args(kind):
        _inside(inner, found)


SECTIONS: dict[str, Callable[[], Iterable[str]]] = {
    "entry kinds": entry_kinds,
    "events": event_types,
    "fields that are read": shapes,
    "migrations": migrations,
    "columns of SQLite": sqlite_columns,
    "columns of PostgreSQL": postgres_columns,
    "configuration": config_keys,
    "environment": variables,
    "headers": headers,
    "metrics": metrics,
    "error codes": error_codes,
    "routes": routes,
    "operations": operations,
    "command line": flags,
    "library": names,
    "host calls": host_calls,
    "tables": rows,
}
"""What is collected, by the name it has in the file."""


@cache
def collected() -> dict[str, set[str]]:
    """Return every word there is now."""
    return {name: set(section()) for name, section in SECTIONS.items()}


def write_words() -> str:
    """Write every word, sorted, under the name of its section."""
    return "\n".join(line for name, words in collected().items() for line in (f"[{name}]", *sorted(words), ""))


def frozen() -> dict[str, set[str]]:
    """Return the words of the file."""
    found: dict[str, set[str]] = {}
    section: set[str] = set()
    for line in FROZEN.read_text(encoding="utf-8").splitlines():
        if line.startswith("[") and line.endswith("]") and line[1:-1] in SECTIONS:
            section = found.setdefault(line[1:-1], set())
        elif line:
            section.add(line)
    return found


def main() -> None:
    """Freeze the words and the OpenAPI document as they are now."""
    FROZEN.write_text(write_words(), encoding="utf-8")
    OPENAPI.write_bytes(write_openapi() + b"\n")
    print(f"wrote {FROZEN.name} and {OPENAPI.name}")


if __name__ == "__main__":
    main()
