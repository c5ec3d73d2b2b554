"""Writes plain values as TOML: one document of tables and arrays of tables, with deeper values inline.

The standard library only reads TOML. Keys are quoted if needed; strings are escaped as in JSON, which TOML reads the
same way; values that TOML cannot express (null) are an error.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def write_toml(document: Mapping[str, Any]) -> str:
    """Write a document: values first, then tables, then arrays of tables, each in the order given.

    Raises: ValueError for what TOML cannot say.
    """
    lines = [f"{_key(name)} = {write_value(value)}" for name, value in document.items() if _is_value(value)]
    for name, value in document.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{_key(name)}]", *_pairs(cast("Mapping[str, Any]", value))]
    for name, value in document.items():
        if not _is_value(value) and not isinstance(value, Mapping):
            for row in cast("list[Mapping[str, Any]]", value):
                lines += ["", f"[[{_key(name)}]]", *_pairs(row)]
    return "\n".join(lines) + "\n"


def write_value(value: Any) -> str:
    """Write one value on one line.

    Raises: ValueError for what TOML cannot say.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(write_value(each) for each in cast('list[Any]', value))}]"
        case dict():
            pairs = cast("dict[str, Any]", value).items()
            return (
                f"{{ {', '.join(f'{_key(name)} = {write_value(each)}' for name, each in pairs)} }}" if pairs else "{}"
            )
        case _:
            raise ValueError(f"TOML has no word for {value!r}")


def _is_value(value: Any) -> bool:
    """Return whether something stands behind a key, and not as a table or an array of tables."""
    if isinstance(value, list | tuple):
        rows = cast("list[Any]", value)
        return not rows or not all(isinstance(row, Mapping) for row in rows)
    return not isinstance(value, Mapping)


def _pairs(table: Mapping[str, Any]) -> Iterable[str]:
    return [f"{_key(name)} = {write_value(value)}" for name, value in table.items()]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    """Write a string; one that is full of quotes, such as JSON, literally where that is possible."""
    whole = text.encode("utf-8", "replace").decode()
    if '"' in whole and "'" not in whole and whole.isprintable():
        return f"'{whole}'"
    return msgspec.json.encode(whole).decode().replace("\x7f", "\\u007f")
