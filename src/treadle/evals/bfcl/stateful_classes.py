"""The state behind multi-turn questions: runs the archive's own classes, and compares their state after each turn.

The classes are Python code of the wheel and run in this process: use only a wheel that you would also install.
"""

import copy
import importlib
import importlib.util
import sys
import types
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from treadle.core.errors import ConfigError
from treadle.core.json import write_json
from treadle.evals.bfcl.dataset import DOCUMENTS, BfclQuestion, TruthCall

_PACKAGE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_STATELESS = frozenset({"MathAPI"})
_MAYBE_MISSING = ("mpmath",)
"""Packages that a few functions need; where they are missing, those functions fail, for truth and model alike."""


class Worlds:
    """Makes worlds from the classes of a wheel."""

    def __init__(self, wheel: Path) -> None:
        self._wheel = wheel
        self._classes: dict[str, type[Any]] = {}

    def make(self, question: BfclQuestion) -> "BfclWorld":
        """Return the world of a question at its start.

        Raises: ConfigError, when a class of it cannot be loaded.
        """
        is_long = "long_context" in question.set
        instances: dict[str, Any] = {}
        for name in question.classes:
            instance = self._class(name)()
            if name not in _STATELESS:
                config = copy.deepcopy(question.config.get(name, {}))
                getattr(instance, "_load_scenario")(config, long_context=is_long)  # noqa: B009 - it is theirs
            instances[name] = instance
        return BfclWorld(instances)

    def _class(self, name: str) -> type[Any]:
        if name not in self._classes:
            with _importing(self._wheel):
                try:
                    module = importlib.import_module(f"{_PACKAGE}.{DOCUMENTS[name]}")
                except ImportError as error:
                    raise ConfigError(f"{name} cannot be loaded from {self._wheel}: {error}", param="wheel") from None
            self._classes[name] = getattr(module, name)
        return self._classes[name]


class BfclWorld:
    """The instances of one question, and what calls do to them."""

    def __init__(self, instances: Mapping[str, Any]) -> None:
        self._instances = dict(instances)

    def run(self, call: TruthCall) -> str:
        """Run a call and return what it gave, as text; a failure is text too."""
        owner = next((each for each in self._instances.values() if _has(each, call.name)), None)
        if owner is None:
            return f"Error during execution: there is no function {call.name}"
        try:
            given = getattr(owner, call.name)(**copy.deepcopy(call.arguments))
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError, OSError) as error:
            return f"Error during execution: {error}"
        return given if isinstance(given, str) else write_json(_plain(given)).decode()

    def state(self) -> dict[str, str]:
        """Return the public attributes of every instance, each as text that tells equal ones apart from others."""
        return {
            f"{name}.{key}": repr(_plain(value))
            for name, each in self._instances.items()
            for key, value in sorted(cast("dict[str, Any]", vars(each)).items())
            if not key.startswith("_")
        }


def differences(wanted: BfclWorld, got: BfclWorld) -> list[str]:
    """Return the attributes in which two worlds differ."""
    left, right = wanted.state(), got.state()
    return [name for name in left if left[name] != right.get(name)]


def missing(wanted: Sequence[str], got: Sequence[str]) -> list[str]:
    """Return the results that should have been seen so far and were not; order does not matter."""
    left = list(got)
    absent: list[str] = []
    for each in wanted:
        if each in left:
            left.remove(each)
        else:
            absent.append(each)
    return absent


def _has(instance: Any, name: str) -> bool:
    return not name.startswith("_") and callable(getattr(instance, name, None))


def _plain(value: Any) -> Any:
    """Return a value without objects: those of a class are their public attributes; when they changed is private."""
    match value:
        case None | str() | int() | float():
            return value
        case dict():
            return {str(name): _plain(each) for name, each in cast("dict[Any, Any]", value).items()}
        case list() | tuple():
            return [_plain(each) for each in cast("list[Any]", value)]
        case set() | frozenset():
            return sorted((_plain(each) for each in cast("set[Any]", value)), key=repr)
        case _ if hasattr(value, "__dict__"):
            pairs = cast("dict[str, Any]", vars(value)).items()
            return {name: _plain(each) for name, each in pairs if name != "parent" and not name.startswith("_")}
        case _:
            return str(value)


@contextmanager
def _importing(wheel: Path) -> Generator[None]:
    """Let modules be imported from the wheel, for a moment; packages that are not there are empty."""
    absent = [name for name in _MAYBE_MISSING if importlib.util.find_spec(name) is None]
    for name in absent:
        sys.modules[name] = types.ModuleType(name)
    sys.path.insert(0, str(wheel))
    try:
        yield
    finally:
        sys.path.remove(str(wheel))
        for name in absent:
            sys.modules.pop(name, None)
