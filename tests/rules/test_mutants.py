"""The faults of `make mutants`: each is a module that Python takes, and differs from the original in one place."""

import ast
import functools
import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest

from mutants.__main__ import KNOWN, ROOT, faults_of
from mutants.blocks import Atlas, mark_of
from mutants.operators import mutants
from mutants.swap import Loaded, differences, replace_source

SOURCE = '''"""Words, not code: 1 == 1."""

GREETING = "grüß"


def pick(values: list[int], *, is_last: bool = False) -> int:
    """Return one."""
    if not values:
        raise ValueError("none of 3")
    größe = len(values) - 1
    for value in values:
        if value > 3 and not is_last:
            continue
        print(value)
    if (größe := größe + 1) > 1 and (yield größe) == 2:
        return (yield from values)
    return max(values) if is_last else größe
'''


def test_every_fault_is_a_program_that_differs() -> None:
    """The parser takes each, and no two are the same."""
    found = mutants(SOURCE)
    assert len({mutant.text for mutant in found}) == len(found) > 10
    for mutant in found:
        assert ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(SOURCE))


def test_words_annotations_and_complaints_stay() -> None:
    """A fault in a docstring, a type or a message would be noticed by nobody, and needs not be."""
    for mutant in mutants(SOURCE):
        assert "1 == 1" in mutant.text
        assert 'ValueError("none of 3")' in mutant.text
        assert "values: list[int]" in mutant.text


def test_places_behind_wide_letters_are_found() -> None:
    """The parser counts bytes; the text is cut by characters."""
    faults = [mutant.what for mutant in mutants(SOURCE)]
    assert "max  ->  min" in faults
    assert "len(values) - 1  ->  (len(values) + 1)" in faults
    assert "continue  ->  break" in faults


STEPS = """BOUND = 3


def step(number, is_far=False):
    if number > BOUND:
        return "over"
    number += 1
    return (lambda: number)()
"""


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Write a small module."""
    path = tmp_path / "steps.py"
    path.write_text(STEPS)
    return path


def test_a_fault_is_put_into_a_function_that_is_loaded(steps: Path) -> None:
    """Who holds the function gets the fault, and no result of an earlier time."""
    spec = importlib.util.spec_from_file_location("steps", steps)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    held = functools.cache(module.step)
    assert (held(3), held(4)) == (4, "over")
    pairs = differences(steps, STEPS, STEPS.replace("number > BOUND", "number >= BOUND"))
    assert pairs is not None
    assert Loaded(steps.parent).put(pairs)
    assert (held(2), held(3), held(4)) == (3, "over", "over")


def test_a_fault_in_what_runs_at_import_is_told_apart(steps: Path) -> None:
    """A constant and a default are not in any function's code; a function inside another is in the outer one's too."""
    assert differences(steps, STEPS, STEPS.replace("BOUND = 3", "BOUND = 4")) is None
    assert differences(steps, STEPS, STEPS.replace("is_far=False", "is_far=True")) is None
    inner = differences(steps, STEPS, STEPS.replace("lambda: number", "lambda: None"))
    assert inner is not None
    assert [before.co_name for before, _ in inner] == ["step", "<lambda>"]
    assert differences(steps, STEPS, STEPS.replace("(lambda: number)()", "None")) is not None


def test_a_module_is_loaded_with_a_fault_and_its_file_stays(steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For this process alone."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(steps.parent)
    path = steps.rename(steps.with_name("steps_of_a_fault.py"))
    replace_source(path, STEPS.replace("BOUND = 3", "BOUND = 4"))
    assert importlib.import_module("steps_of_a_fault").BOUND == 4
    assert path.read_text() == STEPS


def test_marks_say_which_lines_ran(steps: Path) -> None:
    """A line behind an early return is not passed by who returned early."""
    atlas = Atlas(steps.parent)
    space: dict[str, object] = {}
    exec(atlas.compile(STEPS.encode(), str(steps)), space)
    step, spans = space["step"], atlas.spans["steps.py"]
    assert callable(step)
    marks = {line: mark_of(spans, line) for line in (1, 5, 6, 7, 8)}
    assert marks[1] is None
    assert marks[7] == marks[8]
    assert len({marks[5], marks[6], marks[7]}) == 3
    assert step(4) == "over"
    assert atlas.take() == {marks[5], marks[6]}
    assert step(1) == 2
    assert atlas.take() == {marks[5], marks[7]}
    assert atlas.take() == frozenset()


def test_a_condition_is_passed_by_who_comes_to_it(tmp_path: Path) -> None:
    """The line of a guard belongs to what is around the match, not to the case before it."""
    cases = "        case 1:\n            return 1\n        case _ if x > 3:\n            return 2\n"
    source = f"def pick(x):\n    match x:\n{cases}"
    atlas = Atlas(tmp_path)
    atlas.compile(source.encode(), str(tmp_path / "picks.py"))
    marks = [mark_of(atlas.spans["picks.py"], line) for line in range(1, 7)]
    assert marks[0] is None
    assert marks[1] == marks[2] == marks[4]
    assert len({marks[1], marks[3], marks[5]}) == 3


def test_every_fault_that_is_let_pass_has_a_reason() -> None:
    """The list of faults that change nothing says why nobody can notice each, and names a module that exists."""
    known = tomllib.loads(KNOWN.read_text())["known"]
    assert len({entry["fault"] for entry in known}) == len(known)
    assert [entry["fault"] for entry in known if len(entry["why"]) < 20] == []
    modules = {entry["fault"].split("  ")[0] for entry in known}
    assert [module for module in modules if not (ROOT / "src" / "treadle" / module).is_file()] == []


def test_a_fault_has_a_name_of_its_own_that_does_not_depend_on_lines() -> None:
    """The same change twice in one function is told apart; text above moves nothing."""
    source = "class A:\n    def f(self):\n        return g(1, 1)\n\n    def h(self):\n        return g(1)\n"
    names = [fault.key for fault in faults_of("a.py", source)]
    assert len(set(names)) == len(names)
    assert {"a.py  A.f  1  ->  2", "a.py  A.f  1  ->  2  #2", "a.py  A.h  1  ->  2"} <= set(names)
    assert [fault.key for fault in faults_of("a.py", f"import os\n\n{source}")] == names
