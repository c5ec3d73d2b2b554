"""How tests are spread: files stay whole, and what cannot share a worker is apart."""

import pytest

from rules.tree import ROOT, TESTS
from spread import LAST, LONG, long_first, unit_of


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        ("tests/unit/protocols/test_sse.py::test_a[x::y]", "tests/unit/protocols/test_sse.py"),
        ("tests/browser/test_chat_page.py::test_a", "the chat page"),
        ("tests/browser/test_chat_live.py::test_b", "the chat page"),
        ("tests/browser/test_console.py::test_c", "the other pages"),
        ("tests/browser/test_login.py::test_d", "the other pages"),
        ("tests/rules/test_names.py::test_e", "rules"),
        ("tests/rules/test_snippets.py::test_f", "snippets"),
    ],
)
def test_a_test_belongs_to_its_file_or_its_unit(nodeid: str, unit: str) -> None:
    """The browser's files are two units, so that two browsers are enough."""
    assert unit_of(nodeid) == unit


def test_every_folder_of_the_suite_comes_in_its_turn(pytestconfig: pytest.Config) -> None:
    """A folder with tests is in `testpaths`, or has a target of its own."""
    apart = {"chaos", "clients", "cost", "fuzz", "mutants", "package", "sandbox", "toolchains"}
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    named = [path.removeprefix("tests/") for path in pytestconfig.getini("testpaths")]
    assert len(set(named)) == len(named)
    assert set(named) | (folders & apart) == folders


def test_what_takes_long_is_handed_out_before_what_comes_last() -> None:
    """Else a worker begins it when the others have nothing left; all else stays in the order of the folders."""
    found = [
        "tests/gateway/a.py::t",
        "tests/unit/canon/b.py::t",
        f"{LONG[0]}c.py::t",
        f"{LONG[0]}c.py::u",
        "tests/unit/d.py::t",
    ]
    assert long_first(found, str) == [found[0], found[2], found[3], found[1], found[4]]
    assert all(each.startswith(LAST) for each in LONG)
    assert all((ROOT / each).is_dir() for each in LONG)
