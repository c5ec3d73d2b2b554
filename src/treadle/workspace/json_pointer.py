"""JSON Pointers (RFC 6901): read, set, remove, append and insert in immutable JSON documents.

A write copies the containers on its path and shares the rest, so earlier versions of a document stay unchanged.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, UnsetType

from treadle.core.errors import ProtocolError
from treadle.core.json import DEPTH_MAX

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
else:
    Json = Any  # msgspec decodes structs that hold JSON, and knows no recursive alias

Edit: TypeAlias = "Callable[[Json, str], Json]"
"""Returns the changed container, given a container and the last token of a pointer."""

POINTER_CHARS_MAX = 1_024
_BAD_ESCAPE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def read_pointer(pointer: str) -> tuple[str, ...]:
    """Split a pointer into its unescaped tokens; the empty pointer has none.

    Raises: ProtocolError.
    """
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise _wrong(pointer, "a JSON Pointer is empty or starts with `/`")
    if len(pointer) > POINTER_CHARS_MAX or pointer.count("/") > DEPTH_MAX:
        raise _wrong(pointer, f"it is longer than {POINTER_CHARS_MAX} characters or {DEPTH_MAX} steps")
    if _BAD_ESCAPE.search(pointer):
        raise _wrong(pointer, "`~` must be written `~0`, and `/` inside a name `~1`")
    # RFC 6901 §4: `~1` first, else `~01` would become `/`.
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))


def write_pointer(tokens: Sequence[str]) -> str:
    """Return the tokens as a pointer."""
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)


def find_at(document: Json, pointer: str) -> Json | UnsetType:
    """Return the value there, or UNSET where there is none.

    Raises: ProtocolError, for a malformed pointer only.
    """
    value: Json | UnsetType = document
    for token in read_pointer(pointer):
        value = _child(value, token)
    return value


def get_at(document: Json, pointer: str) -> Json:
    """Return the value there.

    Raises: ProtocolError, which names the first step that leads nowhere.
    """
    value = document
    tokens = read_pointer(pointer)
    for depth, token in enumerate(tokens, start=1):
        child = _child(value, token)
        if child is UNSET:
            raise _wrong(pointer, f"there is nothing at `{write_pointer(tokens[:depth])}`")
        value = child
    return value


def set_at(document: Json, pointer: str, value: Json) -> Json:
    """Return the document with the value put there: a member added or replaced, an element replaced.

    Raises: ProtocolError, when the container is missing or has no such element.
    """

    def put(container: Json, token: str) -> Json:
        if not isinstance(container, dict | list):
            raise _wrong(pointer, f"its container is {_kind(container)}, not an object or array")
        if isinstance(container, list) and _child(container, token) is UNSET:
            raise _wrong(pointer, f"`{token}` is no element of an array of {len(container)}; append adds one")
        return _replaced(container, token, value)

    return _edited(document, pointer, put) if pointer else value


def remove_at(document: Json, pointer: str) -> Json:
    """Return the document without the value there; the elements after a removed one move up.

    Raises: ProtocolError, when there is nothing, or for the whole document.
    """

    def drop(container: Json, token: str) -> Json:
        if _child(container, token) is UNSET:
            raise _wrong(pointer, "there is nothing to remove")
        if isinstance(container, dict):
            return {key: value for key, value in container.items() if key != token}
        assert isinstance(container, list)
        index = int(token)
        return [*container[:index], *container[index + 1 :]]

    if not pointer:
        raise _wrong(pointer, "the whole document cannot be removed")
    return _edited(document, pointer, drop)


def append_at(document: Json, pointer: str, value: Json) -> Json:
    """Return the document with the value added to the end of the array there.

    Raises: ProtocolError, when there is no array.
    """
    target = get_at(document, pointer)
    if not isinstance(target, list):
        raise _wrong(pointer, f"append needs an array, this is {_kind(target)}")
    return set_at(document, pointer, [*target, value])


def insert_at(document: Json, pointer: str, value: Json) -> Json:
    """Return the document with the value put before the element there; `-` or the array's length is its end.

    Raises: ProtocolError, when there is no array, or no such place in it.
    """

    def put(container: Json, token: str) -> Json:
        if not isinstance(container, list):
            raise _wrong(pointer, f"insert needs an array, this is {_kind(container)}")
        index = len(container) if token == "-" else int(token) if _INDEX.fullmatch(token) else -1
        if not 0 <= index <= len(container):
            raise _wrong(pointer, f"`{token}` is no place in an array of {len(container)}")
        return [*container[:index], value, *container[index:]]

    if not pointer:
        raise _wrong(pointer, "insert needs a place in an array")
    return _edited(document, pointer, put)


def _edited(document: Json, pointer: str, edit: Edit) -> Json:
    """Edit the innermost container and rebuild the ones around it."""
    *path, last = read_pointer(pointer)
    containers = [document]
    for depth, token in enumerate(path, start=1):
        child = _child(containers[-1], token)
        if child is UNSET:
            raise _wrong(pointer, f"there is nothing at `{write_pointer(path[:depth])}`")
        containers.append(child)
    successor = edit(containers[-1], last)
    for container, token in zip(reversed(containers[:-1]), reversed(path), strict=True):
        successor = _replaced(container, token, successor)
    return successor


def _replaced(container: Json, token: str, value: Json) -> Json:
    if isinstance(container, dict):
        return {**container, token: value}
    assert isinstance(container, list)
    index = int(token)
    return [*container[:index], value, *container[index + 1 :]]


def _child(value: Json | UnsetType, token: str) -> Json | UnsetType:
    if isinstance(value, dict):
        return value.get(token, UNSET)
    if isinstance(value, list) and _INDEX.fullmatch(token) and int(token) < len(value):
        return value[int(token)]
    return UNSET


def _kind(value: Json) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "an array"
        case str():
            return "a string"
        case bool():
            return "a boolean"
        case None:
            return "null"
        case _:
            return "a number"


def _wrong(pointer: str, reason: str) -> ProtocolError:
    shown = pointer if len(pointer) <= 80 else pointer[:79] + "…"
    return ProtocolError(f"cannot follow `{shown}`: {reason}", code="invalid_pointer", param=shown)
