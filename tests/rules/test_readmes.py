"""The READMEs of the source: short, one for every folder that needs a map, and they name only what is there."""

import ast
import re
from pathlib import Path

from rules.tree import SOURCE, modules, parsed, shown

LINES_MAX = 5
MODULES_MIN = 2
"""A folder with fewer modules is explained by the first line of the one it has."""

_WORD = re.compile(r"`([a-z][a-z0-9_]*)(?:/|\.py)?`")


def folders() -> list[Path]:
    """Return the folders of the package that hold modules."""
    return sorted({path.parent for path in modules()} - {SOURCE})


def named(folder: Path) -> set[str]:
    """Return the words in a folder's README that read like a module, a folder or a function."""
    readme = folder / "README.md"
    return set(_WORD.findall(readme.read_text(encoding="utf-8"))) if readme.exists() else set()


def held(folder: Path) -> set[str]:
    """Return what a folder holds by name."""
    return {path.stem for path in folder.iterdir() if path.is_dir() or path.suffix == ".py"}


def functions(folder: Path) -> set[str]:
    """Return the functions of a folder and of those below it."""
    trees = [parsed(path) for path in modules() if path.is_relative_to(folder)]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, kinds)}


def unknown(folder: Path) -> set[str]:
    """Return what a folder's README names and nobody can find there."""
    around = [place for place in (folder, *folder.parents) if place.is_relative_to(SOURCE)]
    words = named(folder) - set().union(*(held(place) for place in around))
    return words - functions(folder) if words else words


def test_a_folder_of_several_modules_has_a_readme() -> None:
    """What lives here and what may not."""
    wanted = [folder for folder in folders() if len(held(folder) - {"__init__", "__pycache__"}) >= MODULES_MIN]
    assert [shown(folder) for folder in wanted if not (folder / "README.md").exists()] == []


def test_every_readme_is_short() -> None:
    """At most five lines: who wants more reads the modules."""
    found = [folder / "README.md" for folder in folders() if (folder / "README.md").exists()]
    lines = {shown(readme): len(readme.read_text(encoding="utf-8").splitlines()) for readme in found}
    assert {name: count for name, count in lines.items() if not 1 <= count <= LINES_MAX} == {}


def test_a_readme_names_only_what_is_there() -> None:
    """Modules and folders of its own, of the folders around it, or functions of its own."""
    assert {shown(folder): words for folder in folders() if (words := unknown(folder))} == {}
