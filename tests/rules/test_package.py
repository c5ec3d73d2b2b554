"""What is released: its data, its licences, its bill of materials, and a reason for every dependency."""

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from scripts.sbom import VENDOR, bill, user_extras

from rules.tree import ROOT, SOURCE, files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEPENDENCIES = ROOT / "docs" / "dependencies.md"
PACKAGES_MAX = 15
NAMES = re.compile(r"`([a-z0-9-]+)`")


def declared() -> dict[str, set[str]]:
    """Return the packages that the project names, by section of the page."""
    extras = PROJECT["optional-dependencies"]
    users = [text for name, group in extras.items() if name != "dev" for text in group]
    groups = {"Always": PROJECT["dependencies"], "Extras": users, "For working on it": extras["dev"]}
    return {section: {Requirement(text).name for text in texts} for section, texts in groups.items()}


@pytest.mark.parametrize("section", declared())
def test_every_dependency_has_a_reason_and_nothing_else_has(section: str) -> None:
    """The page is read before a package is added, and cleaned when one goes."""
    text = DEPENDENCIES.read_text(encoding="utf-8").split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| `")]
    column = 1 if section == "Extras" else 0
    named = [name for row in rows for name in NAMES.findall(row[column])]
    assert {*named} == declared()[section]
    assert [row for row in rows if not row[column + 1].strip()] == []


def test_extras_on_the_page_are_those_of_the_project() -> None:
    """An extra that is only half described cannot be found."""
    text = DEPENDENCIES.read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([a-z]+)` \| `", text, re.MULTILINE))
    assert listed == set(PROJECT["optional-dependencies"]) - {"dev"}


def test_the_base_install_stays_small() -> None:
    """With all that its packages bring; an HTTP client and a renderer of others have left it for good."""
    closure: set[str] = set()
    pending = [Requirement(text) for text in PROJECT["dependencies"]]
    while pending:
        wanted = pending.pop()
        if wanted.name in closure or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        closure.add(wanted.name)
        pending += [Requirement(text) for text in metadata.requires(wanted.name) or []]
    assert len(closure) <= PACKAGES_MAX, sorted(closure)
    assert not closure & {"aiohttp", "httpx", "requests", "rich"}


def test_the_package_says_that_it_is_typed() -> None:
    """Without the marker no checker of a user's looks at the types."""
    assert (SOURCE / "py.typed").read_bytes() == b""


def test_no_file_of_the_package_is_left_out_of_a_release() -> None:
    """What git ignores is not packed: a page, a migration or a scenario among it would be missing after an install."""
    there = {path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert sorted(there - set(files())) == []


def test_the_notice_names_everything_of_others() -> None:
    """Each package of the manifest with its version and its licence, whose text is there."""
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    manifest = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))["files"]
    missing = [file["package"] for file in manifest if f"\n{file['package']} {file['version']}\n" not in notice]
    unlicensed = [file["file"] for file in manifest if f"vendor/{file['licence_file']})" not in notice]
    absent = [file["file"] for file in manifest if not (VENDOR / file["licence_file"]).exists()]
    assert (missing, unlicensed, absent) == ([], [], [])
    assert PROJECT["license-files"] == ["LICENSE", "NOTICE"]


def test_the_bill_of_materials_is_whole() -> None:
    """Every dependency is a component with a version, every reference leads to one, and vendored files have hashes."""
    made = bill(user_extras(), 0)
    refs = {part["bom-ref"] for part in made["components"]} | {made["metadata"]["component"]["bom-ref"]}
    assert {each["ref"] for each in made["dependencies"]} <= refs
    assert {ref for each in made["dependencies"] for ref in each["dependsOn"]} <= refs
    names = {part["name"].lower().replace("_", "-") for part in made["components"]}
    assert declared()["Always"] <= names
    assert {"preact", "htm", "marked"} <= names
    [preact] = [part for part in made["components"] if part["name"] == "preact"]
    assert all(file["hashes"][0]["content"] for file in preact["components"])
    assert [part["name"] for part in made["components"] if not part["version"] or not part["purl"]] == []


def test_the_bill_is_the_same_each_time(tmp_path: Path) -> None:
    """Two runs write the same bytes, at the time they are given."""
    texts: list[bytes] = []
    for name in ("one.json", "two.json"):
        command = [sys.executable, "-m", "scripts.sbom", "--extra", "wasm", "-o", str(tmp_path / "sub" / name)]
        subprocess.run(command, cwd=ROOT, env={"SOURCE_DATE_EPOCH": "1793750400"}, timeout=60, check=True)
        texts.append((tmp_path / "sub" / name).read_bytes())
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["metadata"]["timestamp"] == "2026-11-04T00:00:00Z"
