"""The card editor of the examples, started as its README says."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EDITOR = Path(__file__).parents[2] / "examples" / "card_editor" / "editor.py"


@contextmanager
def started() -> Iterator[str]:
    """Start it on a free port and give its address, without the link by which a person logs in."""
    with subprocess.Popen([sys.executable, str(EDITOR), "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().partition("/login#")[0]
        finally:
            process.terminate()
