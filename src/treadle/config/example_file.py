"""Generates the commented example of treadle.toml and the table of keys from the settings structs."""

from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin

import msgspec

from treadle.config.environment import variable_of
from treadle.config.error_messages import Path, bare_type, dotted, is_struct, row_type
from treadle.config.settings import Settings
from treadle.protocols.protocol_registry import RESPONSES

_HEAD = """\
# treadle.toml: every key with its default. Treadle reads --config FILE, else ~/.config/treadle/treadle.toml, else
# that of the working directory, once you agreed to it (`treadle trust`); beside another one it may only tighten.
# A key that is commented out has the value shown. Each can also be set by an environment variable:
# limits.max_iterations by TREADLE_LIMITS__MAX_ITERATIONS, lists as "a,b" or as JSON.
# Keys of providers are never written here: key_env names the variable that holds one.
"""


class ExampleKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key in the example file and the docs."""

    path: str
    default: str
    description: str
    choices: tuple[str, ...] = ()
    variable: str = ""


def write_example() -> str:
    """Return a full treadle.toml, each key explained and at its default."""
    lines = [_HEAD]
    for field in _leaf_fields(Settings):
        lines.extend(_key_lines(field))
    for name, kind in sorted(_tables(Settings), key=_place):
        header = f"[[{name}]]" if row_type(kind) is not None else f"[{name}]"
        section = row_type(kind) or bare_type(kind)
        summary = (section.__doc__ or "").split("\n")[0]
        is_list = row_type(kind) is not None
        lines += ["", f"# {summary}", f"# {header}" if is_list else header]
        for field in _leaf_fields(section):
            lines.extend(_key_lines(field, sample=_SAMPLES.get(name, {})))
    return "\n".join(lines) + "\n"


def list_keys(kind: Any = Settings, path: Path = ()) -> Iterable[ExampleKey]:
    """Yield every key with its default and description, for `config show` and the documents."""
    for field in msgspec.structs.fields(kind):
        here = (*path, field.name)
        row = row_type(field.type)
        if is_struct(field.type):
            yield from list_keys(bare_type(field.type), here)
        elif row is not None:
            for key in list_keys(row):
                yield msgspec.structs.replace(key, path=f"{dotted(here)}[].{key.path}", variable="")
        else:
            yield ExampleKey(
                path=dotted(here),
                default="" if field.required else _toml(default_of(field)),
                description=_description(field.type),
                choices=_choices(field.type),
                variable=variable_of(here),
            )


_SAMPLES: dict[str, dict[str, object]] = {
    "upstream": {
        "name": "openai",
        "base_url": "https://api.openai.com/v1",
        "key_env": "OPENAI_API_KEY",
        "models": ["gpt-*"],
        "repair": ["native", "marked"],
        "idle_s": 120.0,
    },
    "route": {
        "model": "gpt-*",
        "upstream": "openai",
        "rename": "gpt-5",
        "repair": ["native"],
        "on_disconnect": "cancel",
        "tools": ["*"],
    },
    "price": {"model": "gpt-*", "input": 2.5, "output": 10.0, "cached": 0.25, "cache_write": 2.5},
    "rate": {"api": RESPONSES, "requests_per_min": 60},
    "mcp": {
        "name": "files",
        "command": ["npx", "-y", "@modelcontextprotocol/server-filesystem", "."],
        "key_env": "FILES_TOKEN",
    },
    "tools.rule": {
        "match": ["get_*"],
        "enabled": True,
        "effect": "read",
        "approval": "never",
        "timeout_s": 5.0,
        "retries": 1,
        "output_bytes_max": 16_384,
        "rate_per_min": 60,
        "parallel": True,
        "resources": ["file:{path}"],
        "exec": False,
        "egress": False,
        "untrusted": False,
    },
    "tools.tighten": {
        "match": ["local"],
        "enabled": False,
        "effect": "destructive",
        "approval": "always",
        "timeout_s": 5.0,
        "retries": 0,
        "output_bytes_max": 16_384,
        "rate_per_min": 10,
        "parallel": False,
        "resources": ["*"],
        "exec": True,
        "egress": True,
        "untrusted": True,
    },
    "guest": {"name": "planner", "path": "planner.wasm", "isolation": "thread"},
}
"""What the rows of lists show, as a working example."""


def _place(table: tuple[str, Any]) -> tuple[bool, bool]:
    """Sort key: single tables first, then lists, then lists inside a table."""
    name, kind = table
    is_list = row_type(kind) is not None
    return is_list, is_list and "." in name


def _tables(kind: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    for field in msgspec.structs.fields(kind):
        if row_type(field.type) is not None:
            yield f"{prefix}{field.name}", field.type
        elif is_struct(field.type):
            yield f"{prefix}{field.name}", field.type
            yield from _tables(bare_type(field.type), f"{prefix}{field.name}.")


def _leaf_fields(kind: Any) -> list[msgspec.structs.FieldInfo]:
    fields = msgspec.structs.fields(kind)
    return [field for field in fields if not is_struct(field.type) and row_type(field.type) is None]


def _key_lines(field: msgspec.structs.FieldInfo, sample: dict[str, object] | None = None) -> list[str]:
    shown = _toml((sample or {}).get(field.name, default_of(field)))
    choices = _choices(field.type)
    among = f" ({' | '.join(choices)})" if choices else ""
    return [f"# {field.name} = {shown}  # {_description(field.type)}{among}"]


def _description(kind: Any) -> str:
    metas = (meta for meta in get_args(kind)[1:] if isinstance(meta, msgspec.Meta))
    return next((meta.description for meta in metas if meta.description), "")


def _choices(kind: Any) -> tuple[str, ...]:
    bare = bare_type(kind)
    return tuple(get_args(bare)) if get_origin(bare) is Literal else ()


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """Return the default of a key that has one."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _toml(value: Any) -> str:
    """Write a default. JSON and TOML spell booleans, numbers, strings, lists and the empty table alike."""
    if value is None:
        return ""
    return msgspec.json.encode(value).decode().replace('","', '", "')
