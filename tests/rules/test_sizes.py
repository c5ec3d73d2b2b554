"""Nothing grows past the size at which it can be read. Outliers over the aims are printed (`pytest -rP` shows them)."""

import ast
from collections.abc import Iterator
from pathlib import Path

from rules.tree import SOURCE, modules, parsed, shown

FUNCTION_LINES_AIM, FUNCTION_LINES_MAX = 20, 70
MODULE_LINES_AIM, MODULE_LINES_MAX = 250, 600
FOLDER_MODULES_MAX = 25
FOLDER_DEPTH_MAX = 2
TABLES: frozenset[str] = frozenset()
"""Modules that are one table each, and may be longer than code."""


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each function of a module with its number of lines, decorators left out."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{shown(path)}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


def lines_of(path: Path) -> int:
    """Return how many lines a module has."""
    return len(path.read_text(encoding="utf-8").splitlines())


def report(what: str, sizes: dict[str, int], aim: int) -> None:
    """Print what is over the aim, largest first."""
    over = sorted(((size, name) for name, size in sizes.items() if size > aim), reverse=True)
    print(f"{len(over)} of {len(sizes)} {what} over the aim of {aim} lines:")
    for size, name in over:
        print(f"  {size:>4}  {name}")


def test_no_function_is_too_long() -> None:
    """Aim at 20 lines, never more than 70."""
    sizes = dict(each for path in modules() for each in functions(path))
    report("functions", sizes, FUNCTION_LINES_AIM)
    assert {name: size for name, size in sizes.items() if size > FUNCTION_LINES_MAX} == {}


def test_no_module_is_too_long() -> None:
    """Aim at 250 lines, never more than 600; a table may be longer."""
    sizes = {shown(path): lines_of(path) for path in modules()}
    report("modules", sizes, MODULE_LINES_AIM)
    over = {name: size for name, size in sizes.items() if size > MODULE_LINES_MAX}
    assert {name: size for name, size in over.items() if name not in TABLES} == {}
    assert set(over) >= TABLES, "a table that is not too long needs no exemption"


def test_no_folder_holds_too_many_modules() -> None:
    """At most 25 modules, the package's own `__init__` not counted."""
    folders = {path.parent for path in modules()}
    counts = {
        shown(folder): len([each for each in folder.glob("*.py") if each.stem != "__init__"]) for folder in folders
    }
    assert {name: count for name, count in counts.items() if count > FOLDER_MODULES_MAX} == {}


def test_no_module_lies_too_deep() -> None:
    """A room, and at most one folder in it."""
    deep = [shown(path) for path in modules() if len(path.relative_to(SOURCE).parts) - 1 > FOLDER_DEPTH_MAX]
    assert deep == []
