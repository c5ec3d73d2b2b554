"""Installed clients, kept outside the source tree: each set is installed once, by one process at a time."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

INSTALL_S = 600


class NotInstalled(Exception):
    """The registry is not there, does not have it, or refuses it."""


def cached(kind: str, key: bytes, fill: Callable[[Path], None]) -> Path:
    """Return the folder that belongs to the key, filling it if nobody did.

    Raises: NotInstalled.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treadle"
    folder = cache / f"{kind}-{hashlib.sha256(key).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            fill(folder)
            (folder / ".complete").touch()
    return folder


def run_installer(*command: str | Path, folder: Path) -> None:
    """Run one step of an installation.

    Raises: NotInstalled, with what the installer said last.
    """
    try:
        subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_S, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise NotInstalled(error.stderr.strip()[-500:]) from None
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"not done after {INSTALL_S} s") from None
