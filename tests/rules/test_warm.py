"""Programs that are forked instead of started: all that tests see of them is as if Python had been started for each."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from warm.start import Popen, run

PYTHON = sys.executable
SEES = "import os, sys; print(sys.argv, os.getcwd(), sorted(os.environ), sys.stdin.read(), __name__, flush=True)"


def both(command: list[str], **more: object) -> list[tuple[int, str]]:
    """Run a program in both ways, and return how each ended and what it printed."""
    started = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)  # type: ignore[call-overload]
    forked = run(command, **more)  # type: ignore[arg-type]
    return [(done.returncode, done.stdout) for done in (started, forked)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", SEES, "a", "b c"),
        ("-c", "raise SystemExit(7)"),
        ("-c", "raise SystemExit('a reason')"),
        ("-c", "raise ValueError('no')"),
        ("-c", "raise KeyboardInterrupt"),
        ("-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"),
        ("-c", "import atexit, sys; atexit.register(print, 'last'); sys.exit(3)"),
        ("-c", "import warnings; warnings.warn('an error here')"),
        ("-m", "treadle.cli.main", "--version"),
        ("-m", "treadle.cli.main", "nonsense"),
        ("program.py", "a"),
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
def test_a_forked_program_ends_and_prints_as_a_started_one(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Arguments, folder, environment, input, exit code, signals and what is done at the end."""
    (tmp_path / "program.py").write_text("import sys\nprint(__name__, sys.argv, sys.path[0])\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_CTYPE": "C.UTF-8", "PYTHONWARNINGS": "error"}
    started, forked = both([PYTHON, *arguments], cwd=tmp_path, env=env, input="given")
    assert forked == started


def test_what_goes_wrong_is_told_on_stderr() -> None:
    """With the traceback of the program."""
    done = run([PYTHON, "-c", "def deep():\n    raise ValueError('no')\ndeep()"])
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("ValueError: no\n")
    assert "in deep" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_forked_program(number: signal.Signals) -> None:
    """At once, and `wait` says by which."""
    program = "import time; print('up', flush=True); time.sleep(60)"
    with Popen([PYTHON, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(30) == -number


def test_programs_do_not_see_each_other() -> None:
    """What one has imported, set or left is not there for the next."""
    done = run([PYTHON, "-c", "import os, sys; sys.left = os.environ['LEFT'] = 'x'; import tabnanny"])
    assert (done.returncode, done.stderr) == (0, "")
    seen = run(
        [PYTHON, "-c", "import os, sys; print(hasattr(sys, 'left'), 'LEFT' in os.environ, 'tabnanny' in sys.modules)"]
    )
    assert seen.stdout == "False False False\n"


def test_a_command_of_another_program_is_refused() -> None:
    """Only what Python runs can be forked."""
    with pytest.raises(AssertionError, match="not a program of this Python"):
        run(["true"])
