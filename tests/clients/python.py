"""The environment of the Python frameworks: their requirements would weigh on, and bend, that of the other tests."""

import sys
from pathlib import Path

from clients.cache import cached, run_installer

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def install() -> Path:
    """Return a Python that has the pinned frameworks; installing takes a while the first time.

    Raises: NotInstalled.
    """

    def fill(folder: Path) -> None:
        run_installer(sys.executable, "-m", "venv", folder / "env", folder=folder)
        python = folder / "env" / "bin" / "python"
        run_installer(python, "-m", "pip", "install", "--quiet", "--requirement", REQUIREMENTS, folder=folder)

    return cached("python", REQUIREMENTS.read_bytes() + sys.version.encode(), fill) / "env" / "bin" / "python"
