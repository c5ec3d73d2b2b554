"""Modules are named after what is in them, and say what their job is."""

import ast

import pytest

from rules.tree import SOURCE, modules, parsed, shown

VAGUE = {"util", "utils", "helper", "helpers", "common", "base", "manager", "managers", "shared", "misc"}


def test_no_module_has_a_name_that_says_nothing() -> None:
    """Nouns, one word each; never a drawer for everything."""
    words = {shown(path): {path.stem, path.parent.name} & VAGUE for path in modules()}
    assert {name: found for name, found in words.items() if found} == {}


def test_every_module_says_its_job() -> None:
    """The first thing in a module is what it does."""
    assert [shown(path) for path in modules() if not (ast.get_docstring(parsed(path)) or "").strip()] == []


def rooms() -> list[str]:
    """Return the folders directly under the package that hold modules."""
    return sorted(path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.rglob("*.py")))


@pytest.mark.parametrize("room", rooms())
def test_every_room_is_a_package(room: str) -> None:
    """A folder without `__init__.py` would be missed by the import contracts."""
    assert (SOURCE / room / "__init__.py").exists()
