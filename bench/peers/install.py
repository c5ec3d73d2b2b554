"""Installs peers from PyPI and npm, each into a folder of its own outside the tree, once."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from clients.cache import INSTALL_S, NotInstalled, cached, run_installer

WITHOUT = {"pip", "setuptools", "wheel"}


def python_env(*requirements: str) -> Path:
    """Return the folder of an environment that has these packages.

    Raises: NotInstalled.
    """

    def fill(folder: Path) -> None:
        run_installer(sys.executable, "-m", "venv", folder / "env", folder=folder)
        python = folder / "env" / "bin" / "python"
        run_installer(python, "-m", "pip", "install", "--quiet", *requirements, folder=folder)
        # Without this the first start compiles, and no start-up time is fair; templates that are no Python may fail.
        words = [python, "-m", "compileall", "-q", folder / "env" / "lib"]
        subprocess.run(words, check=False, capture_output=True, timeout=INSTALL_S)

    return cached("peer", " ".join([*requirements, sys.version]).encode(), fill) / "env"


def node_packages(packages: dict[str, str]) -> tuple[Path, Path]:
    """Return a Node and the folder that holds these packages.

    Raises: NotInstalled.
    """
    node, npm = _node()
    manifest = json.dumps({"name": "treadle-bench-peer", "private": True, "type": "module", "dependencies": packages})

    def fill(folder: Path) -> None:
        (folder / "package.json").write_text(manifest)
        flags = ("--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts")
        run_installer(*npm, "install", *flags, folder=folder)

    return node, cached("peer", manifest.encode(), fill)


def _node() -> tuple[Path, list[str | Path]]:
    try:
        from clients.node import NODE, NPM
    except ImportError:
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            raise NotInstalled("there is no Node here") from None
        return Path(node), [npm]
    return NODE, [NODE, NPM]


def size_of(folder: Path) -> tuple[int, int]:
    """Return how many bytes and packages an environment holds; bytecode and the installer itself do not count."""
    if (folder / "node_modules").exists():
        packages = [*folder.glob("node_modules/*/package.json"), *folder.glob("node_modules/@*/*/package.json")]
        return _bytes(folder / "node_modules", set()), len(packages)
    [site] = folder.glob("lib/python*/site-packages")
    skipped = {path for path in site.iterdir() if path.name.split("-")[0].lower() in WITHOUT}
    packages = [path for path in site.glob("*.dist-info") if path not in skipped]
    return _bytes(site, skipped), len(packages)


def _bytes(folder: Path, skipped: set[Path]) -> int:
    total = 0
    for path in folder.iterdir():
        if path in skipped or path.name == "__pycache__" or path.is_symlink():
            continue
        total += _bytes(path, set()) if path.is_dir() else path.stat().st_size
    return total
