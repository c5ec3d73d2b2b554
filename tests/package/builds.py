"""Building the package as a release does: by a pinned backend, from a copy of the tree, at a fixed time."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from clients.cache import cached, run_installer
from rules.tree import files, shown

BACKEND = ("hatchling==1.33.0", "uv==0.13.7")
EPOCH = "1793750400"
BUILD_S = 120


def backend() -> Path:
    """Return a Python that has the pinned backend, and uv beside it, installing them once.

    Raises: NotInstalled.
    """

    def fill(folder: Path) -> None:
        run_installer(sys.executable, "-m", "venv", folder / "env", folder=folder)
        run_installer(folder / "env" / "bin" / "python", "-m", "pip", "install", "--quiet", *BACKEND, folder=folder)

    return cached("backend", repr((BACKEND, sys.version)).encode(), fill) / "env" / "bin" / "python"


def copy_tree(to: Path) -> Path:
    """Copy what git tracks, or would, into a folder: nothing else may come into a release."""
    for path in files():
        target = to / shown(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)
    return to


def build(tree: Path, out: Path, *kinds: str, epoch: str = EPOCH) -> list[Path]:
    """Build these kinds of package (wheel, sdist) from a tree and return the files."""
    targets = [part for kind in kinds for part in ("-t", kind)]
    done = subprocess.run(
        [backend(), "-m", "hatchling", "build", "-d", out, *targets],
        cwd=tree,
        env={"PATH": os.environ["PATH"], "HOME": str(out), "SOURCE_DATE_EPOCH": epoch},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(out.glob("treadle-*"))
