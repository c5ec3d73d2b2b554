"""The READMEs of the source, made from docstrings: what a folder is for, and a line for each of its modules.

`PYTHONPATH=tests python -m rules.generated` writes them, so that they are true wherever a module has been moved to.
"""

import ast
import re
from pathlib import Path

from rules.tree import SOURCE, modules, parsed

CHILDREN_MIN = 2
"""A folder with fewer modules is explained by the docstring of the one it has."""
NAME = "README.md"
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'])")


def folders() -> list[Path]:
    """Return the folders of the package that need a map: those of several modules, the package itself left out."""
    found = sorted({path.parent for path in modules()} - {SOURCE})
    return [folder for folder in found if len(_children(folder)) >= CHILDREN_MIN]


def write_readme(folder: Path) -> str:
    """Write what the package says of itself, and the first sentence of every module and package in it."""
    rows = [f"| {_shown(path)} | {_cell(path)} |" for path in _children(folder)]
    head = [f"# {folder.relative_to(SOURCE).as_posix()}", "", _docstring(folder / "__init__.py"), ""]
    return "\n".join([*head, "| module | what it is for |", "|---|---|", *rows, ""])


def stale() -> list[Path]:
    """Return the READMEs that are missing, say something else, or are left in a folder without modules."""
    wanted = {folder / NAME for folder in folders()}
    return sorted(path for path in wanted if not path.exists() or path.read_text("utf-8") != _text(path)) + left_over()


def left_over() -> list[Path]:
    """Return the READMEs of folders that are no packages of several modules any more."""
    packages = {path.parent for path in modules()}
    below = {path for path in SOURCE.rglob(NAME) if path.parent in packages or not any(path.parent.glob("*"))}
    return sorted(below - {folder / NAME for folder in folders()})


def renew() -> list[Path]:
    """Write what is stale, take away what is left over, and return all of it."""
    found = stale()
    for path in found:
        if path.parent in folders():
            path.write_text(_text(path), encoding="utf-8")
        else:
            path.unlink()
    return found


def _text(readme: Path) -> str:
    return write_readme(readme.parent)


def _children(folder: Path) -> list[Path]:
    """Return the modules of a folder, and behind them the `__init__` of each package in it."""
    own = [path for path in modules() if path.parent == folder and path.stem != "__init__"]
    packages = [path for path in modules() if path.parent.parent == folder and path.stem == "__init__"]
    return [*own, *packages]


def _shown(path: Path) -> str:
    return f"[`{path.parent.name}/`]({path.parent.name})" if path.stem == "__init__" else f"`{path.name}`"


def _cell(path: Path) -> str:
    first = _SENTENCE.split(_docstring(path).split("\n\n")[0])[0]
    return " ".join(first.split()).replace("|", "\\|")


def _docstring(path: Path) -> str:
    return (ast.get_docstring(parsed(path)) or "").strip()
