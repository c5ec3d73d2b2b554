"""Wheel and sdist: the same bytes whenever and wherever they are built, with everything in them that is needed."""

import hashlib
import os
import shutil
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from package import builds
from rules.tree import SOURCE, files, shown


def digests(built: list[Path]) -> dict[str, str]:
    """Return the sha256 of each file by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built}


@pytest.mark.usefixtures("wheel")
def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    """From two copies in other folders, with other times and rights of the files."""
    one, other = builds.copy_tree(tmp_path / "one"), tmp_path / "a" / "longer" / "name" / "of" / "another"
    shutil.copytree(one, other, symlinks=True)
    for path in other.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.touch()
            path.chmod(0o700 if os.access(path, os.X_OK) else 0o600)
    first, second = (
        builds.build(tree, tmp_path / f"out{number}", "wheel", "sdist") for number, tree in enumerate((one, other))
    )
    assert digests(first) == digests(second)
    assert [path.suffix for path in first] == [".whl", ".gz"]


@pytest.mark.usefixtures("wheel")
def test_the_sdist_makes_the_same_wheel(tmp_path: Path) -> None:
    """Who builds from the sdist gets what was released."""
    wheel, sdist = builds.build(builds.copy_tree(tmp_path / "tree"), tmp_path / "out", "wheel", "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [unpacked] = tmp_path.glob("treadle-*")
    [built] = builds.build(unpacked, tmp_path / "again", "wheel")
    assert digests([built]) == digests([wheel])


def test_the_wheel_has_every_file_of_the_package_and_none_beside(wheel: Path) -> None:
    """Pages, migrations, scenarios, the kit of the guests and `py.typed` among them; no test, no cache."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    tracked = {f"treadle/{path.relative_to(SOURCE).as_posix()}" for path in files() if SOURCE in path.parents}
    assert packed == tracked
    assert "treadle/py.typed" in packed


def test_the_metadata_says_what_a_reader_of_an_index_wants(wheel: Path) -> None:
    """Licence files, README, addresses of the extras, the supported Pythons."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = Parser().parsestr(archive.read(next(n for n in names if n.endswith("METADATA"))).decode())
    assert (metadata["Name"], metadata["License-Expression"]) == ("treadle", "Apache-2.0")
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("License-File", [])) >= {"LICENSE", "NOTICE"}
    assert {"postgres", "wasm", "mcp"} <= set(metadata.get_all("Provides-Extra", []))
    assert metadata.get_payload().startswith("# Treadle\n")  # type: ignore[union-attr]


def test_the_sdist_is_enough_to_work_on(tmp_path: Path, wheel: Path) -> None:
    """Sources, tests, documents and examples are in it; what only this project's machines need is not."""
    assert wheel
    [sdist] = builds.build(builds.copy_tree(tmp_path / "tree"), tmp_path / "out", "sdist")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {shown(path) for path in files() if not shown(path).startswith(".ci/")}
    assert wanted - names == set()
    assert [name for name in names if name.startswith(".ci")] == []
