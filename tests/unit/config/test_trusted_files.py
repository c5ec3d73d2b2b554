"""What is remembered of files that were agreed to: path and content, in the user's data directory."""

import os
from pathlib import Path

import pytest

from treadle.config.trusted_files import Agreed, Trust, trust_message


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Find a file in a repository."""
    (tmp_path / "repository").mkdir()
    return tmp_path / "repository" / "treadle.toml"


def test_a_file_is_trusted_as_it_was(tmp_path: Path, file: Path) -> None:
    """Another content of it is a change, another file with its content is new; another process knows it too."""
    trust = Trust(tmp_path / "data")
    first = trust.judge(file, b"a")
    assert (first.path, first.state) == (str(file), "new")
    trust.add(first)
    again = Trust(tmp_path / "data")
    assert again.judge(file, b"a").state == "trusted"
    assert again.judge(file, b"b").state == "changed"
    assert again.judge(file.with_name("other.toml"), b"a").state == "new"


def test_trust_is_taken_back(tmp_path: Path, file: Path) -> None:
    """Once; the others stay."""
    trust = Trust(tmp_path / "data")
    other = trust.judge(file.with_name("other.toml"), b"b")
    trust.add(trust.judge(file, b"a"))
    trust.add(other)
    assert (trust.remove(file), trust.remove(file)) == (True, False)
    assert trust.judge(file, b"a").state == "new"
    assert trust.files() == {other.path: Agreed(digest=other.digest)}


def test_a_link_is_the_file_behind_it(tmp_path: Path, file: Path) -> None:
    """Whoever changes the link has changed the file."""
    trust = Trust(tmp_path / "data")
    file.symlink_to("real.toml")
    trust.add(trust.judge(file, b"a"))
    assert list(trust.files()) == [str(file.with_name("real.toml"))]
    file.unlink()
    file.symlink_to("another.toml")
    assert trust.judge(file, b"a").state == "new"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a":1}', b"\xff"])
def test_a_memory_that_cannot_be_read_trusts_nothing(tmp_path: Path, file: Path, content: bytes) -> None:
    """And is written anew by the next yes."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "trusted.json").write_bytes(content)
    trust = Trust(tmp_path / "data")
    doubt = trust.judge(file, b"a")
    assert doubt.state == "new"
    trust.add(doubt)
    assert trust.judge(file, b"a").state == "trusted"


def test_the_memory_is_only_for_its_owner(tmp_path: Path, file: Path) -> None:
    """Nobody else reads or writes it, and nothing half written is left."""
    trust = Trust(tmp_path / "data")
    trust.add(trust.judge(file, b"a"))
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
    assert (tmp_path / "data" / "trusted.json").stat().st_mode & 0o077 == 0
    assert os.listdir(tmp_path / "data") == ["trusted.json"]


def test_a_memory_that_cannot_be_written_is_an_error(tmp_path: Path, file: Path) -> None:
    """Nobody is told that something was remembered."""
    (tmp_path / "data").write_text("a file, not a folder")
    trust = Trust(tmp_path / "data")
    with pytest.raises(OSError, match="data"):
        trust.add(trust.judge(file, b"a"))


def test_the_files_it_loads_belong_to_it(tmp_path: Path, file: Path) -> None:
    """One that changed, came or went is named, and all of them once more when somebody agrees."""
    trust = Trust(tmp_path / "data")
    trust.add(trust.judge(file, b"a", {"/t.py": "1", "/g.wasm": "1"}))
    assert trust.judge(file, b"a", {"/g.wasm": "1", "/t.py": "1"}).state == "trusted"
    doubt = trust.judge(file, b"a", {"/t.py": "2", "/new.py": "1", "/g.wasm": "1"})
    assert (doubt.state, doubt.changed) == ("changed", ("/new.py", "/t.py"))
    assert trust_message(doubt) == f"/new.py, /t.py, which {file} loads or starts, have changed since it was trusted."
    trust.add(doubt)
    assert trust.judge(file, b"a", {"/t.py": "2", "/new.py": "1", "/g.wasm": "1"}).state == "trusted"
    assert trust.judge(file, b"a", {"/t.py": "2", "/g.wasm": "1"}).changed == ("/new.py",)


def test_an_agreement_of_an_earlier_release_covers_no_other_file(tmp_path: Path, file: Path) -> None:
    """The file alone stays trusted; what it loads is asked about."""
    trust = Trust(tmp_path / "data")
    doubt = trust.judge(file, b"a")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "trusted.json").write_text(f'{{"{doubt.path}": "{doubt.digest}"}}')
    assert trust.judge(file, b"a").state == "trusted"
    assert trust.judge(file, b"a", {"/t.py": "1"}).changed == ("/t.py",)
