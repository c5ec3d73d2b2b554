"""Finds all mistakes in a configuration, with the place of each and the probably intended name.

Works on plain values and the structs' own types, so a new key needs nothing here. Never repeats a value that
looks like a provider's key.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, cast, get_args, get_origin

import msgspec

from treadle.core.errors import ConfigError

Path = tuple[str | int, ...]
Tree = dict[str, Any]

_SECRET = re.compile(
    r"^(Bearer\s+\S{8,}|AIza[-_A-Za-z0-9]{16,}|(sk|pk|rk|gsk|xai|ghp|tr|hf|pplx)[-_][-_A-Za-z0-9]{16,})$"
)
_HEADER = re.compile(r"^\s*\[(\[?)\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"""^\s*["']?([A-Za-z0-9_.-]+)["']?\s*=""")
_KEY_WORDS = frozenset({"api_key", "apikey", "key", "token", "secret", "password"})
KEY_HINT = 'put the key into an environment variable and name that variable: key_env = "OPENAI_API_KEY"'
ANY_HINT = "`treadle config example` prints every key with what it takes; `treadle config check` tries a file"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake: which key, what is wrong, what to do, and where it was written."""

    path: str
    message: str
    hint: str | None = None
    origin: str = ""

    def __str__(self) -> str:
        place = f"{self.origin}: " if self.origin else ""
        return f"{place}{self.path}: {self.message}"


def raise_problems(problems: list[Problem]) -> None:
    """Raise one ConfigError that names every problem, if there is any; of several, each has its hint below it.

    Raises: ConfigError.
    """
    match problems:
        case []:
            return
        case [problem]:
            raise ConfigError(str(problem), param=problem.path, hint=problem.hint or ANY_HINT)
        case _:
            lines = [line for problem in problems for line in _problem_lines(problem)]
            hint = None if all(problem.hint for problem in problems) else ANY_HINT
            raise ConfigError("\n".join(lines), param=problems[0].path, hint=hint)


def _problem_lines(problem: Problem) -> list[str]:
    return [str(problem), f"  hint: {problem.hint}"] if problem.hint else [str(problem)]


def find_problems(kind: Any, tree: Tree, origins: Mapping[str, str]) -> list[Problem]:
    """Check a tree of plain values against a struct and return every mistake."""
    problems: list[Problem] = []
    for path, value, field in walk(kind, tree):
        problem = _unknown(path, kind) if field is None else _wrong(path, value, field)
        if problem is not None:
            problems.append(msgspec.structs.replace(problem, origin=origin_of(path, origins)))
    return problems


def valid_part(kind: Any, tree: Tree) -> Tree:
    """Return what is right in a tree; a list of tables with a mistake anywhere in it is left out whole."""
    types = field_types(kind)
    sound: Tree = {}
    for key, value in tree.items():
        inner = types.get(key)
        if is_struct(inner) and isinstance(value, dict):
            sound[key] = valid_part(inner, cast("Tree", value))
        elif inner is not None and not find_problems(kind, {key: value}, {}):
            sound[key] = value
    return sound


def walk(kind: Any, tree: Any, path: Path = ()) -> Iterable[tuple[Path, Any, Any]]:
    """Yield each leaf with its type; None as the type of a key that does not exist; and what is missing."""
    if not isinstance(tree, dict):
        yield path, tree, kind
        return
    types = field_types(kind)
    values = cast("Tree", tree)
    for key, value in values.items():
        inner = types.get(key)
        here = (*path, key)
        row = row_type(inner)
        if inner is None:
            yield here, value, None
        elif is_struct(inner):
            yield from walk(inner, value, here)
        elif row is not None and isinstance(value, list | tuple):
            for index, item in enumerate(cast("list[Any]", value)):
                yield from walk(row, item, (*here, index))
        else:
            yield here, value, inner
    for key in required_keys(kind):
        if key not in values:
            yield (*path, key), msgspec.UNSET, types[key]


def _unknown(path: Path, kind: Any) -> Problem:
    name = str(path[-1])
    if name.lower() in _KEY_WORDS:
        return Problem(path=dotted(path), message="keys of providers are never written here", hint=KEY_HINT)
    known = list(field_types(type_at(kind, path[:-1])))
    near = nearest(name, known)
    message = f"unknown key; did you mean {near}?" if near else f"unknown key; known here: {', '.join(known)}"
    return Problem(path=dotted(path), message=message)


def _wrong(path: Path, value: Any, kind: Any) -> Problem | None:
    if value is msgspec.UNSET:
        return Problem(path=dotted(path), message="is missing")
    if looks_secret(value):
        return Problem(path=dotted(path), message="looks like a key written out", hint=KEY_HINT)
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return Problem(path=dotted(path), message=_reason(kind, value, str(error)))
    return None


def _reason(kind: Any, value: Any, message: str) -> str:
    choices = [str(choice) for choice in get_args(bare_type(kind))] if _is_literal(kind) else []
    if choices and isinstance(value, str):
        near = nearest(value, choices)
        meant = f"; did you mean {near}?" if near else ""
        return f"{value!r} is not one of {', '.join(choices)}{meant}"
    if is_struct(kind):
        return f"is a section with keys of its own, not a value of type {type(value).__name__}"
    if row_type(kind) is not None:
        return "is a list of tables: write its name in double brackets, [[ ]]"
    reason = message.split(" - at ")[0]
    return reason[:1].lower() + reason[1:]


def looks_secret(value: Any) -> bool:
    """Return whether a value, or one inside it, has the shape of a provider's key."""
    if isinstance(value, str):
        return _SECRET.match(value) is not None
    if isinstance(value, dict):
        return any(map(looks_secret, cast("Tree", value).values()))
    return isinstance(value, list | tuple) and any(map(looks_secret, cast("list[Any]", value)))


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like this one, if one is like it at all."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def dotted(path: Path) -> str:
    """Write a path for people: `upstream[0].base_url`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def origin_of(path: Path, origins: Mapping[str, str]) -> str:
    """Return where this path, or the nearest thing around or inside it, was written."""
    for length in range(len(path), 0, -1):
        name = dotted(path[:length])
        if name in origins:
            return origins[name]
        inside = next((where for key, where in origins.items() if key.startswith((f"{name}.", f"{name}["))), None)
        if inside is not None:
            return inside
    return ""


def line_of(text: str, path: Path) -> int | None:
    """Return the line of a TOML text that sets this path, or opens its table; None when it cannot be found."""
    table: Path = ()
    counts: dict[str, int] = {}
    opened: int | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            name = header[2].replace('"', "")
            table = tuple(name.split("."))
            if header[1]:
                counts[name] = counts.get(name, -1) + 1
                table = (*table, counts[name])
            opened = number if table == path[: len(table)] else opened
        elif key := _KEY.match(line):
            here = (*table, *key[1].split("."))
            if here == path[: len(here)]:
                return number
    return opened


def bare_type(kind: Any) -> Any:
    """Return a type without its Annotated wrapper."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def is_struct(kind: Any) -> bool:
    """Return whether a type is a section."""
    bare = bare_type(kind)
    return isinstance(bare, type) and issubclass(bare, msgspec.Struct)


def row_type(kind: Any) -> Any:
    """Return the section that a list of sections is made of; None for everything else."""
    bare = bare_type(kind)
    inner = get_args(bare)[:1] if get_origin(bare) is tuple else ()
    return inner[0] if inner and is_struct(inner[0]) else None


def field_types(kind: Any) -> dict[str, Any]:
    """Return the keys of a section with their types."""
    return {field.name: field.type for field in msgspec.structs.fields(bare_type(kind))}


def required_keys(kind: Any) -> list[str]:
    """Return the keys of a section that have no default."""
    return [field.name for field in msgspec.structs.fields(bare_type(kind)) if field.required]


def type_at(kind: Any, path: Path) -> Any:
    """Return the type at a path; None when there is no such place."""
    for step in path:
        if kind is None:
            return None
        kind = row_type(kind) if isinstance(step, int) else field_types(kind).get(step) if is_struct(kind) else None
    return kind


def _is_literal(kind: Any) -> bool:
    return get_origin(bare_type(kind)) is Literal
