"""CONTRIBUTING.md names true places, and its first steps exist."""

import re
from pathlib import Path

from docs.blocks import blocks
from rules.tree import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`\n]+)`")
PLACE = re.compile(r"(?:src|tests|docs|examples|scripts)/[\w./-]*")
MODULE = re.compile(r"python -m ((?:rules|scripts|treadle)[\w.]*)")


def named() -> dict[Path, set[str]]:
    """Return the paths of the tree that each document of its root and its decisions names in code."""
    documents = [path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]
    return {
        path: {
            place.rstrip("/.")
            for code in CODE.findall(path.read_text(encoding="utf-8"))
            for place in PLACE.findall(code)
            if code.startswith(place)
        }
        for path in documents
    }


def test_every_path_that_is_named_is_there() -> None:
    """Whoever follows the worked examples finds the files."""
    missing = {f"{path.name}: {place}" for path, places in named().items() for place in places}
    assert sorted(each for each in missing if not (ROOT / each.partition(": ")[2]).exists()) == []
    assert len(named()[ROOT / "CONTRIBUTING.md"]) > 30


def test_every_name_beside_a_path_is_in_that_file() -> None:
    """`DIALECTS` in `table.py`: what is said to be there is there."""
    pairs = re.findall(r"`(\w+)` (?:in|of) `((?:src|tests)/[\w./]+\.py)`", TEXT)
    assert len(pairs) >= 4
    lost = [(name, place) for name, place in pairs if name not in (ROOT / place).read_text(encoding="utf-8")]
    assert lost == []


def test_every_module_that_is_to_be_run_can_be() -> None:
    """`python -m …` names a module of the tests, the scripts or the package."""
    names = set(MODULE.findall(TEXT))
    assert {"rules.generated", "rules.api"} <= names
    homes = (ROOT / "tests", ROOT, ROOT / "src")
    found = {name for name in names for home in homes if (home / f"{name.replace('.', '/')}.py").exists()}
    assert names - found == set()


def test_each_kind_of_addition_has_a_worked_example() -> None:
    """A protocol, a dialect, a tool kind, a store, a scenario."""
    assert re.findall(r"^### … an? (.+)$", TEXT, re.MULTILINE) == [
        "dialect",
        "scenario",
        "tool kind",
        "protocol",
        "store",
    ]
    shown = [block.language for block in blocks() if block.document.name == "CONTRIBUTING.md"]
    assert shown.count("python") >= 2
