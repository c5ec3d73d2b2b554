"""A process whose store is on a full disk is not ready, says why, and is ready again when there is room."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from places import on_small_disk

TESTS = Path(__file__).parents[1]
UNREADY_S = 10.0
READY_S = 10.0


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_full_disk_is_not_ready_until_there_is_room(kind: str, tmp_path: Path) -> None:
    """Within seconds either way; the process lives all the time and takes runs again."""
    small = on_small_disk(kind)
    # PostgreSQL's user has to reach the disk.
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [*small, sys.executable, "-m", "chaos.unready", kind, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    seen = msgspec.json.decode(done.stdout.splitlines()[-1])
    assert (seen["before"], seen["alive"], seen["after"]) == ([200, 200], 200, 200)
    assert msgspec.json.decode(seen["said"]) == {
        "status": "unavailable",
        "reason": "store: The disk of the journal is full.",
    }
    assert seen["unready_s"] < UNREADY_S
    assert seen["ready_s"] < READY_S
