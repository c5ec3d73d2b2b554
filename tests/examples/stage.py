"""Where an example is played: a copy of its folder, an empty home, and its commands on free ports."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treadle.server.auth.installation_secret import VARIABLE

EXAMPLES = Path(__file__).parents[2] / "examples"
BOUND_S = 120
SERVE = ("-m", "treadle.cli.main", "serve", "--port", "0")


class Stage:
    """One example, in a folder where it may leave things."""

    def __init__(self, name: str, home: Path) -> None:
        self.folder = home / name
        self.home = home
        shutil.copytree(EXAMPLES / name, self.folder)

    def env(self, **variables: str) -> dict[str, str]:
        """Return an environment without keys, in which `python` is the one of the tests."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        fixed = {"HOME": str(self.home), "PYTHONUTF8": "1", "PYTHONWARNINGS": "error", VARIABLE: os.environ[VARIABLE]}
        return {"PATH": path, **fixed, **variables}

    @contextmanager
    def beside(self, *arguments: str, **variables: str) -> Iterator["subprocess.Popen[str]"]:
        """Run a program of Python in the example's folder, at most until the end of the block."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.env(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def run(self, *arguments: str, **variables: str) -> str:
        """Run a program of Python to its end and return what it prints."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.env(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def treadle(self, *arguments: str) -> str:
        """Run a command of Treadle's."""
        return self.run("-m", "treadle.cli.main", *arguments)

    @contextmanager
    def serving(self, *arguments: str, **variables: str) -> Iterator[str]:
        """Start something that says its address at the end of its first line, and stop it in the end."""
        with self.beside(*arguments, **variables) as process:
            assert process.stdout is not None
            address = process.stdout.readline().split()
            assert address, "it did not start"
            yield address[-1].rstrip("/")
