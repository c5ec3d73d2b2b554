"""The compilers of guests, installed once outside the source tree: from PyPI into a folder, from npm by pip's Node."""

import os
import sys
from pathlib import Path

from clients import node
from clients.cache import cached, run_installer

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
SHEBANG = b"#!/usr/bin/env python3"
MANIFEST = (HERE / "package.json").read_bytes()


def install_python() -> Path:
    """Return a folder with ziglang and componentize-py.

    Raises: NotInstalled.
    """

    def fill(folder: Path) -> None:
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder / "packages")
        run_installer(*pip, "--requirement", REQUIREMENTS, folder=folder)
        for command in (folder / "packages" / "bin").iterdir():
            unbind(command)

    return cached("toolchains", REQUIREMENTS.read_bytes() + sys.version.encode() + SHEBANG, fill) / "packages"


def unbind(command: Path) -> None:
    """Let a command run by whichever Python is on the path: the one that installed it may be gone with its checkout."""
    first, _, rest = command.read_bytes().partition(b"\n")
    if first.startswith(b"#!"):
        command.write_bytes(SHEBANG + b"\n" + rest)


def install_node() -> Path:
    """Return the folder of the commands of npm.

    Raises: NotInstalled.
    """
    return node.install(MANIFEST) / "node_modules" / ".bin"


def environment(home: Path, *folders: Path) -> dict[str, str]:
    """Return an environment in which these commands are found, with nothing of the user's in it."""
    path = [str(folder) for folder in (*folders, node.BIN, Path(sys.executable).parent)]
    kept = {name: os.environ[name] for name in ("XDG_CACHE_HOME", "LANG") if name in os.environ}
    return {
        **kept,
        "PATH": os.pathsep.join([*path, os.environ.get("PATH", "")]),
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "data"),
        "ZIG_GLOBAL_CACHE_DIR": str(
            Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treadle" / "zig"
        ),
        "NO_COLOR": "1",
    }
