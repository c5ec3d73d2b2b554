"""Checks the types of the pages' scripts: `python -m browser.scripts`, with the compiler that npm has.

The scripts are copied beside declarations of what others wrote, since those carry no types themselves.
"""

import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from clients.cache import NotInstalled
from clients.node import NODE, install_command

TYPESCRIPT = "7.0.2"
TIMEOUT_S = 300
TYPES = Path(__file__).parent / "types"


def check(folder: Path, compiler: Path) -> subprocess.CompletedProcess[str]:
    """Lay the scripts out in a folder and run the compiler over them."""
    web = Path(str(files("treadle.server") / "web"))
    shutil.copytree(web, folder / "web", ignore=shutil.ignore_patterns("vendor", "*.css", "*.html"))
    shutil.copytree(TYPES, folder / "web" / "vendor", ignore=shutil.ignore_patterns("tsconfig.json"))
    shutil.copy(TYPES / "tsconfig.json", folder)
    command = (str(NODE), str(compiler.resolve()), "-p", str(folder), "--pretty", "false")
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def main() -> int:
    """Print what is wrong and return the exit code."""
    try:
        compiler = install_command("typescript", TYPESCRIPT) / "tsc"
    except NotInstalled as error:
        print(f"the compiler is not to be had: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        done = check(Path(name), compiler)
    print(done.stdout.strip() or "scripts: the types hold")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
