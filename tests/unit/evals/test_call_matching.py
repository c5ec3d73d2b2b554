"""Calls compared with expected ones: four modes, six comparators, and nothing normalised away."""

from typing import Any

import pytest

from treadle.evals.call_matching import COMPARATORS, arguments_of, compare_calls
from treadle.evals.scenario_file import Comparator, ExpectedCall, Mode
from treadle.evals.transcript import MadeCall


def made(name: str, arguments: str = "{}") -> MadeCall:
    """Return a call that was made."""
    return MadeCall(name=name, arguments=arguments, call_id="c", side="server")


def want(name: str, **values: Any) -> ExpectedCall:
    """Return a call that is expected."""
    return ExpectedCall(name=name, **values)


A, B, READ = made("a"), made("b"), made("get")
MODES: list[tuple[Mode, list[MadeCall], str | None]] = [
    ("exact", [A, B], None),
    ("exact", [A, READ, B, READ], None),
    ("exact", [B, A], "expected a({}), got b({})"),
    ("exact", [A], "missing b({})"),
    ("exact", [A, B, B], "expected no more calls, got b({})"),
    ("any_order", [B, A], None),
    ("any_order", [B, READ, A], None),
    ("any_order", [A, A], "missing b({}); unexpected a({})"),
    ("superset", [B, A, A], None),
    ("superset", [B, B], "missing a({})"),
    ("subset", [], None),
    ("subset", [B], None),
    ("subset", [READ, B], None),
    ("subset", [B, B], "unexpected b({})"),
]


@pytest.mark.parametrize(("mode", "calls", "problem"), MODES)
def test_each_mode_says_what_is_missing_and_what_is_too_much(
    mode: Mode, calls: list[MadeCall], problem: str | None
) -> None:
    """Expected are `a` and `b`; `get` only reads, so an extra one of it is free."""
    assert compare_calls(mode, [want("a"), want("b")], calls, {"get"}) == problem


def test_a_loose_expectation_does_not_take_the_only_call_of_a_strict_one() -> None:
    """Pairs are found even when the first guess is in the way."""
    loose, strict = want("a", one_of={"n": (1, 2)}), want("a", args={"n": 1})
    calls = [made("a", '{"n":1}'), made("a", '{"n":2}')]
    assert compare_calls("any_order", [loose, strict], calls, ()) is None
    assert compare_calls("any_order", [loose, strict], [calls[1], calls[1]], ()) == (
        'missing a({"n":1}); unexpected a({"n":2})'
    )


COMPARISONS: list[tuple[Comparator, Any, Any, bool]] = [
    ("exact", 25, 25, True),
    ("exact", 25, 25.0, False),
    ("exact", 1, True, False),
    ("exact", "Paris", "paris", False),
    ("exact", "/draft/foo", "draftfoo", False),
    ("exact", {"a": [1, None]}, {"a": [1, None]}, True),
    ("number", 25, 25.0, True),
    ("number", 15, 1.5, False),
    ("number", 1, True, False),
    ("number", 5, "5", False),
    ("casefold", "Straße", "STRASSE", True),
    ("casefold", "a", "b", False),
    ("casefold", 1, 1, False),
    ("regex", "[0-9]{4}-.*", "2026-11", True),
    ("regex", "[0-9]{4}", "2026-11", False),
    ("regex", ".*", 5, False),
    ("path", "src/a.py", "./src//a.py", True),
    ("path", "src/a.py", "src/b/../a.py", True),
    ("path", "src/a.py", "/src/a.py", False),
    ("path", "a", 1, False),
    ("datetime", "2026-11-02", "2026-11-02T00:00:00", True),
    ("datetime", "2026-11-02T10:00:00+01:00", "2026-11-02T09:00:00Z", True),
    ("datetime", "2024-11-02", "2024-01-12", False),
    ("datetime", "2026-11-02T10:00:00", "2026-11-02T10:00:00Z", False),
    ("datetime", "soon", "soon", False),
]


@pytest.mark.parametrize(("comparator", "expected", "actual", "answer"), COMPARISONS)
def test_a_comparator_accepts_what_it_says_and_no_more(
    comparator: Comparator, expected: Any, actual: Any, answer: bool
) -> None:
    """Exact is JSON's own equality; the others are asked for by name."""
    assert COMPARATORS[comparator](expected, actual) is answer


ARGUMENTS: list[tuple[ExpectedCall, str, bool]] = [
    (want("a", args={"x": 1}), '{"x":1}', True),
    (want("a", args={"x": 1}), '{"x":1,"y":2}', False),
    (want("a", args={"x": 1}), "{}", False),
    (want("a", args={"x": 1}, optional=("y",)), '{"x":1,"y":"any"}', True),
    (want("a", args={"x": 1}, optional=("x",)), "{}", True),
    (want("a", args={"x": 1}, optional=("x",)), '{"x":2}', False),
    (want("a", one_of={"x": (1, 2)}), '{"x":2}', True),
    (want("a", one_of={"x": (1, 2)}), '{"x":3}', False),
    (want("a", args={"x": "PARIS"}, compare={"x": "casefold"}), '{"x":"Paris"}', True),
    (want("a"), "", True),
    (want("a"), "[]", False),
    (want("a"), "{", False),
]


@pytest.mark.parametrize(("expected", "arguments", "answer"), ARGUMENTS)
def test_every_argument_counts(expected: ExpectedCall, arguments: str, answer: bool) -> None:
    """Missing, wrong and extra arguments fail; optional ones may be missing; what is not an object never fits."""
    assert (compare_calls("exact", [expected], [made("a", arguments)], ()) is None) is answer


def test_arguments_that_are_no_object_are_none() -> None:
    """Broken JSON and arrays have no arguments; no text at all has none either, but well-formed."""
    texts = {"": {}, '{"a":1}': {"a": 1}, "[1]": None, "{": None, "1": None}
    assert {text: arguments_of(made("a", text)) for text in texts} == texts
