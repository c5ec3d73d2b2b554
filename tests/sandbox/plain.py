"""`python -m sandbox.plain`: the hostile commands once more as a plain user, where these tests run as root.

What root may do and what the kernel counts for root differ, so both are tried. It needs `setpriv` and a Python that a
plain user can start; what is missing is said, and is no failure.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from rules.tree import ROOT

NOBODY = 65_534
BOUND_S = 1_800
PLACES = "/usr/local/bin:/usr/bin:/bin"


def main() -> int:
    """Run the tests as nobody, or say why not."""
    setpriv = shutil.which("setpriv")
    if os.getuid() != 0 or setpriv is None:
        print("not as a plain user: " + ("this is one already" if os.getuid() else "there is no setpriv"))
        return 0
    head = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    with tempfile.TemporaryDirectory(prefix="treadle-plain-") as folder:
        os.chmod(folder, 0o755)
        home = Path(folder) / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        env = {
            "PATH": PLACES,
            "HOME": str(home),
            "TMPDIR": str(home),
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": f"{ROOT / 'src'}:{sysconfig.get_path('purelib')}",
        }
        python = next((each for each in candidates() if works([*head, each], env)), None)
        if python is None:
            print(f"not as a plain user: none of {', '.join(candidates())} can be started by one, with what it imports")
            return 0
        tests = ["-m", "pytest", "-p", "no:cacheprovider", "-n0", "tests/sandbox", f"--basetemp={home / 'tests'}"]
        done = subprocess.run([*head, python, *tests, *sys.argv[1:]], env=env, cwd=ROOT, timeout=BOUND_S, check=False)
        return done.returncode


def candidates() -> list[str]:
    """Return the Pythons that fit what is installed here: this one, and the system's of the same version."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [os.path.realpath(sys.executable), shutil.which(name, path=PLACES)]
    return [each for each in found if each]


def works(command: list[str], env: dict[str, str]) -> bool:
    """Tell whether a plain user can start it and import what the tests need."""
    # setpriv may lead where the user itself may not go, so the Python must be able to start itself again.
    code = "import sys, subprocess, msgspec, pytest, treadle; subprocess.run([sys.executable, '-c', ''], check=True)"
    try:
        program = [*command, "-c", code]
        return subprocess.run(program, env=env, cwd="/", capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


if __name__ == "__main__":
    sys.exit(main())
