"""The tree under test, read once: where the sources are, and what Python says of them without importing anything."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "treadle"
TESTS = ROOT / "tests"


@cache
def modules() -> tuple[Path, ...]:
    """Return every Python file of the package."""
    return tuple(sorted(SOURCE.rglob("*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def files() -> tuple[Path, ...]:
    """Return the files of the project: what git tracks or would, else everything outside hidden folders."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    names = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    found = names or [path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in _below(path).parts)]
    return tuple(sorted(path for path in found if path.is_file()))


def shown(path: Path) -> str:
    """Return the path as a person would write it."""
    return _below(path).as_posix()


def _below(path: Path) -> Path:
    return path.relative_to(ROOT)
