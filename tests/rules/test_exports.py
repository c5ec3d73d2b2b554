"""The public names: few, sorted, all there, and nothing public beside them."""

import subprocess
import sys
from types import ModuleType

import pytest

import treadle

EXPORTS_MAX = 20


def test_there_are_few_public_names_and_they_are_sorted() -> None:
    """At most twenty, each once."""
    assert len(treadle.__all__) <= EXPORTS_MAX
    assert list(treadle.__all__) == sorted(set(treadle.__all__))


def test_every_public_name_can_be_imported() -> None:
    """In a fresh interpreter, by a star import."""
    code = f"from treadle import *; assert {{{', '.join(map(repr, treadle.__all__))}}} <= set(globals())"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_nothing_else_is_public() -> None:
    """What the package shows is its public names, and the rooms that were imported so far."""
    shown = {name: getattr(treadle, name) for name in dir(treadle) if not name.startswith("_")}
    assert {name for name, value in shown.items() if not isinstance(value, ModuleType)} == set(treadle.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    """Names are found lazily, and a wrong one must not look like a broken import."""
    with pytest.raises(AttributeError, match="no attribute 'Tredle'"):
        treadle.Tredle  # noqa: B018
