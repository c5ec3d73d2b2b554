"""The Pythons of this machine that Treadle supports, and clean environments made of them."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from clients.cache import run_installer
from package.builds import backend
from rules.tree import ROOT

OLDEST = (3, 11)
NEWEST_TRIED = 19
COMMAND_S = 120


class Env(msgspec.Struct, frozen=True):
    """An environment that has Treadle and what it asks for, and nothing else."""

    folder: Path

    @property
    def bin(self) -> Path:
        """Return where its commands are."""
        return self.folder / "env" / "bin"

    def variables(self, **more: str) -> dict[str, str]:
        """Return what its commands see: their own path and an empty home."""
        return {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder), "PYTHONUTF8": "1", **more}

    def run(self, command: str, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
        """Run one of its commands in an empty folder."""
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        return subprocess.run(
            [self.bin / command, *arguments],
            cwd=work,
            env=self.variables(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )


@functools.cache
def pythons() -> dict[str, Path]:
    """Return the supported Pythons by version, those that really start."""
    named = [Path(each) for each in os.environ.get("TREADLE_PYTHONS", "").split(os.pathsep) if each]
    on_path = [shutil.which(f"python3.{minor}") for minor in range(OLDEST[1], NEWEST_TRIED + 1)]
    pyenv = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin/python"))
    found: dict[str, Path] = {}
    here = Path(getattr(sys, "_base_executable", sys.executable))
    for python in [*named, here, *(Path(each) for each in on_path if each), *pyenv]:
        version = _version(python)
        if version and tuple(map(int, version.split("."))) >= OLDEST:
            found.setdefault(version, python)
    return dict(sorted(found.items(), key=lambda each: int(each[0].partition(".")[2])))


def _version(python: Path) -> str:
    """Return major and minor of a Python; nothing of one that does not start or makes no environments."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def install(python: Path, folder: Path, wheel: Path) -> Env:
    """Make a clean environment with the wheel as a user does: venv and pip, the versions that are pinned.

    Raises: NotInstalled.
    """
    env = Env(folder)
    run_installer(python, "-m", "venv", env.folder / "env", folder=folder)
    pip = [env.bin / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run_installer(*pip, "-c", ROOT / "constraints.txt", wheel, folder=folder)
    return env


def install_quickly(python: Path, folder: Path, wheel: Path, extra: str = "") -> Env:
    """Make a clean environment with the wheel, perhaps with an extra, by uv: the newest versions that fit.

    Raises: NotInstalled.
    """
    env, uv = Env(folder), backend().with_name("uv")
    run_installer(uv, "venv", "--quiet", "--python", python, env.folder / "env", folder=folder)
    wanted = f"treadle[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    install = [uv, "pip", "install", "--quiet", "--python", env.bin / "python"]
    run_installer(*install, "--only-binary", ":all:", wanted, folder=folder)
    run_installer(uv, "pip", "check", "--quiet", "--python", env.bin / "python", folder=folder)
    return env
