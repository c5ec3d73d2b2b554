"""tests/requirements.toml and the tests are tied to each other, both ways."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from rules.tree import ROOT, TESTS, parsed, shown

MANIFEST = TESTS / "requirements.toml"
TEST = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)
UNTIED = ("tests/rules/", "tests/unit/protocols/test_protocol_registry.py")
"""Tests of the tree itself: they come from the habits in CONTRIBUTING.md as a whole, and need no line each."""


@cache
def requirements() -> list[dict[str, Any]]:
    """Return the lines of the manifest."""
    return tomllib.loads(MANIFEST.read_text(encoding="utf-8"))["requirement"]


@cache
def existing() -> frozenset[str]:
    """Return the name of every test in the tree, found without running anything."""
    return frozenset(name for path in TESTS.rglob("test_*.py") for name in _tests_in(path))


def _tests_in(path: Path) -> list[str]:
    return [f"{shown(path)}::{name}" for name in TEST.findall(path.read_text(encoding="utf-8"))]


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the tests of a file: they stand at its top."""
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def test_every_requirement_is_complete_and_its_id_unique() -> None:
    """An id, what must hold, where that comes from, and what proves it; nothing else."""
    fields = {"id", "text", "source", "tests"}
    assert [each for each in requirements() if set(each) != fields or not all(each.values())] == []
    ids = [each["id"] for each in requirements()]
    assert sorted({name for name in ids if ids.count(name) > 1}) == []
    assert [name for name in ids if not re.fullmatch(r"[A-Za-z0-9]+(\.[a-z0-9_]+)+", name)] == []


def test_every_requirement_has_tests_that_exist() -> None:
    """A test that was renamed or removed is missed here."""
    named = {test.split("[")[0] for each in requirements() for test in each["tests"]}
    assert sorted(named - existing()) == []


def test_every_file_of_tests_proves_a_requirement() -> None:
    """A file that no requirement names tests nothing that anybody asked for, or its line is missing."""
    named = {test.split("::")[0] for each in requirements() for test in each["tests"]}
    files = {name.split("::")[0] for name in existing()}
    assert sorted(file for file in files - named if not file.startswith(UNTIED)) == []


def test_every_test_says_what_it_proves() -> None:
    """One sentence each, as the manifest's reader wants it."""
    bare = [
        f"{shown(path)}::{node.name}"
        for path in TESTS.rglob("test_*.py")
        for node in _functions(path)
        if not ast.get_docstring(node)
    ]
    assert bare == []


def test_the_manifest_lies_where_documents_say() -> None:
    """ARCHITECTURE.md names the path."""
    assert MANIFEST.relative_to(ROOT).as_posix() == "tests/requirements.toml"
