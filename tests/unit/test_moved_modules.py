"""Documented modules under their old names."""

import importlib
import sys

import pytest

from treadle.moved_modules import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_still_imports_and_names_the_new_one(old: str) -> None:
    """What it holds is the same, and the warning says where to look."""
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=MOVED[old].replace(".", r"\.")):
        module = importlib.import_module(old)
    new = importlib.import_module(MOVED[old])
    assert {name for name in vars(new) if not name.startswith("__")} <= set(vars(module))
    assert all(getattr(module, name) is getattr(new, name) for name in vars(new) if not name.startswith("__"))


def test_a_name_that_was_never_documented_is_not_found() -> None:
    """Only what the documents named has an alias."""
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("treadle.canon.folds")
