"""Rooms import only the rooms below them, and the pure ones stay pure."""

import subprocess
import sys
import tomllib
from typing import Any

from rules.tree import ROOT, SOURCE

LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"


def contracts() -> list[dict[str, Any]]:
    """Return the contracts of import-linter."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def test_every_import_contract_is_kept() -> None:
    """The contracts of pyproject.toml, run as `make check` runs them."""
    run = subprocess.run([sys.executable, "-c", LINT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_room_is_in_the_layers() -> None:
    """A room that the contract does not name would be free to import anything."""
    listed = {name.strip() for layer in contracts()[0]["layers"] for name in layer.split("|")}
    rooms = {
        f"treadle.{path.stem}"
        for path in SOURCE.iterdir()
        if (path.is_dir() and (path / "__init__.py").exists()) or (path.suffix == ".py" and path.stem != "__init__")
    }
    assert rooms == listed


def test_the_pure_rooms_are_all_under_contract() -> None:
    """What ARCHITECTURE.md calls pure is what the contract keeps pure."""
    pure = {
        "treadle.core",
        "treadle.protocols",
        "treadle.engine.run_state",
        "treadle.engine.run_decisions",
        "treadle.engine.limits",
        "treadle.engine.call_schedule",
    }
    assert set(contracts()[1]["source_modules"]) == pure
