"""A disk that is full."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from places import on_small_disk

TESTS = Path(__file__).parents[1]
RESUME_S = 2.0
"""Writing goes on within a second; the request itself takes a while too."""


def test_a_full_disk_is_an_error_before_anything_is_done(tmp_path: Path):
    """On a full disk a request fails and no tool runs; the process lives, and goes on when there is room again."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [*on_small_disk("sqlite"), sys.executable, "-m", "chaos.full", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    seen = msgspec.json.decode(done.stdout.splitlines()[-1])
    assert seen["before"] == 200
    assert seen["full"] in (503, 507)
    assert (seen["effects while full"], seen["alive"]) == (0, True)
    assert seen["after"] == 200
    assert seen["resumed_s"] < RESUME_S
    assert seen["violations"] == []
