"""Put a fault into modules that are loaded already: the functions that differ get the code with the fault.

What runs once at import (tables, defaults, class bodies) cannot be changed so; `differences` says so.
"""

import functools
import gc
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Pairs = list[tuple[types.CodeType, types.CodeType]]
_OPTIMISED = 0x1
"""A code's flag that says that it has locals of its own: module and class bodies have not."""


class Loaded:
    """Every function in memory whose source is below a folder, by its code's place, and their caches of results."""

    def __init__(self, folder: Path) -> None:
        self._functions: dict[tuple[str, str, int], list[types.FunctionType]] = {}
        self._caches: list[Any] = []
        for thing in gc.get_objects():
            function = thing.__wrapped__ if isinstance(thing, functools._lru_cache_wrapper) else thing
            if isinstance(function, types.FunctionType) and function.__code__.co_filename.startswith(str(folder)):
                if function is thing:
                    self._functions.setdefault(_key(function.__code__), []).append(function)
                else:
                    self._caches.append(thing)

    def put(self, pairs: Pairs) -> bool:
        """Put a fault in; return whether all of it could be."""
        for cache in self._caches:
            cache.cache_clear()
        is_whole = True
        for before, after in pairs:
            found = self._functions.get(_key(before), [])
            is_whole = is_whole and bool(found or "<locals>" in before.co_qualname)
            for function in found:
                try:
                    function.__code__ = after
                except ValueError:  # the fault took away the last use of an outer name
                    is_whole = False
        return is_whole


def differences(path: Path, before: str, after: str) -> Pairs | None:
    """Return the functions that a fault changes, before and after, or None if it changes what runs at import."""
    old, new = (list(_codes(compile(text, str(path), "exec", dont_inherit=True))) for text in (before, after))
    if [code.co_qualname for code in old] != [code.co_qualname for code in new]:
        # The fault took away a function that stood in another: the outer ones still pair.
        old, new = ([code for code in codes if "<locals>" not in code.co_qualname] for codes in (old, new))
    pairs = list(zip(old, new, strict=True))
    if any(_parts(one, 0) != _parts(two, 0) for one, two in pairs if not one.co_flags & _OPTIMISED):
        return None
    return [(one, two) for one, two in pairs if one.co_flags & _OPTIMISED and _parts(one, 9) != _parts(two, 9)]


def replace_source(path: Path, text: str) -> None:
    """Let a module that is not loaded yet be loaded from this text, in this process; the file stays as it is."""
    sys.meta_path.insert(0, _Finder(str(path), text))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> types.CodeType:
        return compile(self._text, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._text = text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin != self._path:
            return None
        spec.loader = _Loader(fullname, self._path, self._text)
        return spec


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


def _key(code: types.CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _parts(code: types.CodeType, depth: int) -> tuple[Any, ...]:
    """Return what a code does, with that of the functions in it down to a depth; not in which lines."""
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, [_const(c, depth) for c in code.co_consts]


def _const(const: Any, depth: int) -> Any:
    if isinstance(const, types.CodeType):
        return _parts(const, depth - 1) if depth else None
    return type(const), sorted(map(repr, const)) if isinstance(const, frozenset) else repr(const)
