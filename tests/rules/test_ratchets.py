"""Counts of the tree that may only fall: fewer folders, fewer fragments, one name for one class, less source.

Each is compared with a bound that is recorded here. Above it the test fails; well below it too, and says to lower the
bound, so that what was won is kept.
"""

import ast
from collections import Counter
from pathlib import Path

import pytest

from rules.tree import SOURCE, modules, parsed, shown

FOLDER_MODULES_MIN = 3
MODULE_LINES_MIN = 60
SLACK = 0.03
"""By how much a count may be below its bound before the bound has to follow."""

BOUNDS = {
    "folders of packages": 60,
    "folders with fewer than three modules": 0,
    "modules under 60 lines": 74,
    "repeated names of public classes": 15,
    "lines of source": 113_090,
}


def packages() -> list[Path]:
    """Return the folders of the package that hold modules, itself included."""
    return sorted({path.parent for path in modules()})


def children(folder: Path) -> set[str]:
    """Return the modules of a folder; a package in it counts as one."""
    below = [path.relative_to(folder).parts for path in modules() if path.is_relative_to(folder)]
    return {Path(parts[0]).stem for parts in below} - {"__init__"}


def small_folders() -> list[str]:
    """Return the folders that could be a module."""
    return [shown(folder) for folder in packages() if len(children(folder)) < FOLDER_MODULES_MIN]


def lines_of(path: Path) -> int:
    """Return how many lines a module has."""
    return len(path.read_text(encoding="utf-8").splitlines())


def small_modules() -> list[str]:
    """Return the modules that could be part of a neighbour; a package's own `__init__` is none."""
    return [shown(path) for path in modules() if path.stem != "__init__" and lines_of(path) < MODULE_LINES_MIN]


def repeated_classes() -> list[str]:
    """Return the names of public classes that stand at the top of more than one module."""
    names = Counter(
        node.name
        for path in modules()
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in names.items() if count > 1)


def counted() -> dict[str, int]:
    """Return every count as it is now."""
    return {
        "folders of packages": len(packages()),
        "folders with fewer than three modules": len(small_folders()),
        "modules under 60 lines": len(small_modules()),
        "repeated names of public classes": len(repeated_classes()),
        "lines of source": sum(map(lines_of, modules())),
    }


@pytest.mark.parametrize("name", BOUNDS)
def test_a_count_of_the_tree_only_falls(name: str) -> None:
    """What grows past its bound has to be made smaller again, here or elsewhere."""
    count, bound = counted()[name], BOUNDS[name]
    which = {
        "folders with fewer than three modules": small_folders,
        "modules under 60 lines": small_modules,
        "repeated names of public classes": repeated_classes,
    }.get(name)
    print(f"{name}: {count} of {bound}", *(which() if which else ()), sep="\n  ")
    assert count <= bound, f"{name}: {count}, and at most {bound} are allowed; merge some, or take others away"
    least = bound - max(1, round(bound * SLACK))
    assert count >= least, f"{name}: {count} is well below {bound}: lower the bound in {Path(__file__).name} to {count}"


def test_a_count_finds_what_it_counts() -> None:
    """The package itself is a folder, its rooms are its children, and there is some source."""
    assert SOURCE in packages()
    assert {"runtime", "config"} <= children(SOURCE)
    assert counted()["lines of source"] > 10_000
