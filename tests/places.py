"""Folders that a test needs something special of: a path short enough for a Unix socket, or programs that can be run.

TMPDIR may give neither: its path may be long, and its file system mounted noexec.
"""

import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SHARED = ("/tmp", "/var/tmp")
MEMORY = "/dev/shm"
SOCKET_PATH_BYTES_MAX = 107
"""What the kernel takes for the path of a Unix socket."""
NAME_BYTES_MAX = 24
"""Of a socket in such a folder."""


def parents(*, first: str = "", last: str = "") -> Iterator[str]:
    """Yield the folders in which a new one can be made, each once."""
    for parent in dict.fromkeys((first, tempfile.gettempdir(), *SHARED, last)):
        if parent and os.access(parent, os.W_OK | os.X_OK):
            yield parent


def fits_sockets(folder: Path) -> bool:
    """Tell whether a socket in a folder has a path that is short enough."""
    return len(os.fsencode(folder)) + 1 + NAME_BYTES_MAX <= SOCKET_PATH_BYTES_MAX


def socket_folder(folder: Path) -> Path:
    """Return a folder for sockets: this one, or a new one elsewhere where its path is too long."""
    if fits_sockets(folder):
        return folder
    for parent in parents():
        elsewhere = Path(tempfile.mkdtemp(prefix="sock", dir=parent))
        if fits_sockets(elsewhere):
            return elsewhere
        elsewhere.rmdir()
    pytest.skip("no folder for temporary files has a path that is short enough for a socket")


def on_small_disk(engine: str) -> list[str]:
    """Return what to begin a command with that mounts a small disk; skip the test where none can be mounted.

    PostgreSQL does not run as root, so its disk is mounted by the real one and not by that of a user namespace.
    """
    command = ["unshare", "-Urm" if engine == "sqlite" else "-m"]
    try:
        is_allowed = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        is_allowed = False
    if not is_allowed:
        pytest.skip(f"{' '.join(command)} is not allowed here, so that no small disk can be mounted")
    return command


@functools.cache
def runs_programs() -> bool:
    """Tell whether a program in the folder for temporary files can be run."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o700)
        try:
            return subprocess.run([program], check=False).returncode == 0
        except OSError:
            return False


needs_programs = pytest.mark.skipif(not runs_programs(), reason="programs in TMPDIR cannot be run (mounted noexec)")
