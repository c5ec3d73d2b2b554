"""Where execution passes: a mark at every place in a function from which the next lines all run, or none does.

A module that is loaded with marks sets a byte for each place it passes, so that a test can be asked which faults it
could notice at all. Module and class bodies have no marks: they run once, when they are imported.
"""

import ast
import builtins
import importlib.abc
import importlib.machinery
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_HITS = "__treadle_hits__"
Span = tuple[int, int, int]
_COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.Match)
_LISTS = ("body", "orelse", "finalbody")


class Atlas:
    """The marks of all modules below a folder: their numbers, and which of them were passed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hits = bytearray()
        self.spans: dict[str, list[Span]] = {}
        """By module: the first and the last line that each mark speaks for, and its number."""
        setattr(builtins, _HITS, self.hits)

    def install(self) -> None:
        """Load the package's modules with marks from now on."""
        sys.meta_path.insert(0, _Finder(self))

    def compile(self, source: bytes, path: str) -> CodeType:
        """Return a module's code with its marks."""
        tree = ast.parse(source)
        name = str(Path(path).relative_to(self.folder))
        spans = self.spans[name] = []
        for node in ast.walk(tree):
            for field in _LISTS:
                statements = getattr(node, field, None)
                if isinstance(statements, list) and not isinstance(node, (ast.Module, ast.ClassDef)):
                    setattr(node, field, self._mark(statements, spans))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def take(self) -> frozenset[int]:
        """Return which marks were passed since the last time."""
        passed = frozenset(found.start() for found in re.finditer(b"\x01", self.hits))
        self.hits[:] = bytes(len(self.hits))
        return passed

    def _mark(self, statements: list[ast.stmt], spans: list[Span]) -> list[ast.stmt]:
        marked: list[ast.stmt] = []
        is_due = True
        for statement in statements:
            is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if is_due and not is_docstring:
                spans.append((statement.lineno, statement.end_lineno or 0, len(self.hits)))
                marked += ast.parse(f"{_HITS}[{len(self.hits)}] = 1").body
                self.hits.append(0)
                is_due = False
            if spans and not is_due:
                first, _, number = spans[-1]
                spans[-1] = (first, statement.end_lineno or 0, number)
            marked.append(statement)
            is_due = is_due or isinstance(statement, _COMPOUND)
        return marked


def mark_of(spans: list[Span], line: int) -> int | None:
    """Return the number of the mark that is passed before a line runs: the nearest around it."""
    around = [(end - start, number) for start, end, number in spans if start <= line <= end]
    return min(around)[1] if around else None


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, atlas: Atlas) -> None:
        super().__init__(name, path)
        self._atlas = atlas

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:
        return self._atlas.compile(data, path)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, atlas: Atlas) -> None:
        self._atlas = atlas

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith("treadle."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            spec.loader = _Loader(fullname, spec.origin, self._atlas)
        return spec
