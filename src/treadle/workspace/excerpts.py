"""Cuts a part of a workspace to what a model can read: bounded depth and size, with paging.

Pure. What is left out is replaced by its size and path, so that the model knows that there is more.
"""

from collections.abc import Iterator

import msgspec

from treadle.core.json import cut_text, write_json
from treadle.workspace.json_pointer import Json, read_pointer, write_pointer

DEPTH_DEFAULT = 4
PAGE_DEFAULT = 100


class ExcerptPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value, or one page of it. `total` counts members, elements or characters; `next_offset` reads on."""

    value: Json
    total: int | None = None
    next_offset: int | None = None


class ExcerptRange(msgspec.Struct, frozen=True, kw_only=True):
    """The depth, page and size of an excerpt."""

    depth: int = DEPTH_DEFAULT
    offset: int = 0
    limit: int = PAGE_DEFAULT
    bytes_max: int = 16_384


def excerpt(value: Json, path: str, bounds: ExcerptRange) -> ExcerptPage:
    """Return the excerpt of the value at a path."""
    match value:
        case str():
            return _text(value, bounds)
        case dict() | list():
            return _container(value, path, bounds)
        case _:
            return ExcerptPage(value=value)


def _text(text: str, bounds: ExcerptRange) -> ExcerptPage:
    shown = cut_text(text[bounds.offset :], bounds.bytes_max)
    end = bounds.offset + len(shown)
    if bounds.offset == 0 and end == len(text):
        return ExcerptPage(value=text)
    return ExcerptPage(value=shown, total=len(text), next_offset=end if end < len(text) else None)


def _container(value: dict[str, Json] | list[Json], path: str, bounds: ExcerptRange) -> ExcerptPage:
    """Fill a page member by member; one that is too large is replaced by its size and path."""
    tokens = read_pointer(path)
    named: dict[str, Json] = {}
    listed: list[Json] = []
    size, position = 2, bounds.offset
    for name, member in _members(value, bounds):
        shown = _shrunk(member, (*tokens, name), bounds)
        added = len(write_json(shown)) + (len(write_json(name)) + 1 if isinstance(value, dict) else 0) + 1
        if size + added > bounds.bytes_max and position > bounds.offset:
            break
        size += added
        position += 1
        if isinstance(value, dict):
            named[name] = shown
        else:
            listed.append(shown)
    page: Json = named if isinstance(value, dict) else listed
    if bounds.offset == 0 and position == len(value):
        return ExcerptPage(value=page)
    return ExcerptPage(value=page, total=len(value), next_offset=position if position < len(value) else None)


def _members(value: dict[str, Json] | list[Json], bounds: ExcerptRange) -> Iterator[tuple[str, Json]]:
    end = bounds.offset + bounds.limit
    if isinstance(value, dict):
        yield from list(value.items())[bounds.offset : end]
    else:
        for index, element in enumerate(value[bounds.offset : end], bounds.offset):
            yield str(index), element


def _shrunk(value: Json, tokens: tuple[str, ...], bounds: ExcerptRange) -> Json:
    """Return the value at the given depth, or less deep if it takes more than half of a page."""
    for depth in range(max(0, bounds.depth - 1), -1, -1):
        shown = _cut(value, tokens, depth)
        if len(write_json(shown)) <= bounds.bytes_max // 2:
            return shown
    return _named(value, tokens)


def _cut(value: Json, tokens: tuple[str, ...], depth: int) -> Json:
    if not isinstance(value, dict | list) or not value:
        return value
    if depth <= 0:
        return _named(value, tokens)
    if isinstance(value, dict):
        return {name: _cut(member, (*tokens, name), depth - 1) for name, member in value.items()}
    return [_cut(element, (*tokens, str(index)), depth - 1) for index, element in enumerate(value)]


def _named(value: Json, tokens: tuple[str, ...]) -> Json:
    count = len(value) if isinstance(value, dict | list | str) else 0
    kind = "object" if isinstance(value, dict) else "array" if isinstance(value, list) else "text"
    return f"({kind} of {count}: read {write_pointer(tokens)})"
