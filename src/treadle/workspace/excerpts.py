"""A part of a workspace as a model can read it: no deeper than asked, no larger than allowed, the rest by the page.

Pure. What is left out is named with its size and where to read it, so that nothing seems to be missing.
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


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a value is wanted."""

    depth: int = DEPTH_DEFAULT
    offset: int = 0
    limit: int = PAGE_DEFAULT
    bytes_max: int = 16_384


def look(value: Json, path: str, glance: Glance) -> ExcerptPage:
    """Return what fits of the value at a path."""
    match value:
        case str():
            return _text(value, glance)
        case dict() | list():
            return _container(value, path, glance)
        case _:
            return ExcerptPage(value=value)


def _text(text: str, glance: Glance) -> ExcerptPage:
    shown = cut_text(text[glance.offset :], glance.bytes_max)
    end = glance.offset + len(shown)
    if glance.offset == 0 and end == len(text):
        return ExcerptPage(value=text)
    return ExcerptPage(value=shown, total=len(text), next_offset=end if end < len(text) else None)


def _container(value: dict[str, Json] | list[Json], path: str, glance: Glance) -> ExcerptPage:
    """Fill a page member by member; one that is too large for it is named instead."""
    tokens = read_pointer(path)
    named: dict[str, Json] = {}
    listed: list[Json] = []
    size, position = 2, glance.offset
    for name, member in _members(value, glance):
        shown = _shrunk(member, (*tokens, name), glance)
        added = len(write_json(shown)) + (len(write_json(name)) + 1 if isinstance(value, dict) else 0) + 1
        if size + added > glance.bytes_max and position > glance.offset:
            break
        size += added
        position += 1
        if isinstance(value, dict):
            named[name] = shown
        else:
            listed.append(shown)
    page: Json = named if isinstance(value, dict) else listed
    if glance.offset == 0 and position == len(value):
        return ExcerptPage(value=page)
    return ExcerptPage(value=page, total=len(value), next_offset=position if position < len(value) else None)


def _members(value: dict[str, Json] | list[Json], glance: Glance) -> Iterator[tuple[str, Json]]:
    end = glance.offset + glance.limit
    if isinstance(value, dict):
        yield from list(value.items())[glance.offset : end]
    else:
        for index, element in enumerate(value[glance.offset : end], glance.offset):
            yield str(index), element


def _shrunk(value: Json, tokens: tuple[str, ...], glance: Glance) -> Json:
    """Return the value as deep as asked, and less deep as long as it takes more than half of a page."""
    for depth in range(max(0, glance.depth - 1), -1, -1):
        shown = _cut(value, tokens, depth)
        if len(write_json(shown)) <= glance.bytes_max // 2:
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
