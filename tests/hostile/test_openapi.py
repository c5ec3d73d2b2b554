"""schemathesis against a running server, by the document that it gives out: briefly here, long in `make fuzz`."""

from pathlib import Path

import pytest

from hostile.fuzz import unleash
from hostile.house import house
from hostile.upstream import hostile_upstream

BOUND_S = 150.0


@pytest.mark.slow
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    """No 5xx, and no status, type or form that the document does not tell, whatever is sent to any operation."""
    with hostile_upstream({}) as (url, _), house(tmp_path, url) as running:
        flags = ("--phases", "fuzzing", "--max-examples", "1", "--exclude-method", "HEAD", "--seed", "1", "--no-shrink")
        done = unleash(running, *flags, timeout_s=BOUND_S)
        assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
        assert "No issues found" in done.stdout or "passed" in done.stdout, done.stdout[-2_000:]
        running.keep()
        assert running.is_well() == ""
