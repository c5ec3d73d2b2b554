"""A broad `except` hides bugs, so there are three places for it and no more."""

import ast
from collections.abc import Iterator

import pytest

from rules.tree import modules, parsed, shown

BROAD = {"Exception", "BaseException"}
PLACES = {
    "src/treadle/server/app.py": "the ASGI edge: a bug answers one request badly and no other",
    "src/treadle/tools/tool_runner.py": "the tool runner: whatever foreign code raises is its result",
    "src/treadle/tools/thread_pool.py": "the tool runner, where it calls foreign code in a thread",
    "src/treadle/runs/run_supervisor.py": "the supervisor of runs: a bug ends one run, not the process",
    "src/treadle/runs/event_feed.py": "what a reader of a run does wrong is told to that reader, not to the run",
    "src/treadle/runs/run_service.py": "the supervisor of runs, where it keeps their leases",
    "src/treadle/runtime/replica_comparison.py": "a look at the others that breaks is logged, and the next is made",
    "src/treadle/runtime/store_health_check.py": "a look at the store that breaks is a failure, and the next is made",
}


def broad_handlers(tree: ast.Module) -> Iterator[int]:
    """Yield the line of each handler that catches everything and keeps it; one that raises again catches nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises_again(node):
            yield node.lineno
        if isinstance(node, ast.Call) and _name(node.func) == "suppress" and any(map(_is_broad, node.args)):
            yield node.lineno


def _is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(map(_is_broad, caught.elts))
    return caught is None or _name(caught) in BROAD


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_everything_is_caught_in_three_places_only() -> None:
    """The ASGI edge, the tool runner and the supervisor of runs."""
    caught = {shown(path): list(broad_handlers(parsed(path))) for path in modules() if shown(path) not in PLACES}
    assert {name: lines for name, lines in caught.items() if lines} == {}


@pytest.mark.parametrize("place", PLACES)
def test_each_of_the_places_is_really_one(place: str) -> None:
    """A place that catches nothing any more is taken off the list."""
    path = next((path for path in modules() if shown(path) == place), None)
    assert path is not None
    assert list(broad_handlers(parsed(path))) != []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("try: x\nexcept: pass", [2]),
        ("try: x\nexcept Exception: pass", [2]),
        ("try: x\nexcept (ValueError, BaseException) as e: log(e)", [2]),
        ("try: x\nexcept builtins.Exception: pass", [2]),
        ("with contextlib.suppress(Exception): pass", [1]),
        ("try: x\nexcept BaseException:\n  undo()\n  raise", []),
        ("try: x\nexcept ValueError: pass", []),
        ("with suppress(OSError): pass", []),
    ],
)
def test_the_rule_knows_a_broad_except_when_it_sees_one(code: str, found: list[int]) -> None:
    """Bare, named, in a tuple, by attribute and as suppress; not when it raises again."""
    assert list(broad_handlers(ast.parse(code))) == found
