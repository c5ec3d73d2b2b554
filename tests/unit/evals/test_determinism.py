"""The offline suite writes the same bytes wherever it runs: hash seed, time zone, locale and folder do not matter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLACES = (
    {"PYTHONHASHSEED": "0", "TZ": "UTC", "LANG": "C.UTF-8", "LC_ALL": "C"},
    {"PYTHONHASHSEED": "4242", "TZ": "Pacific/Kiritimati", "LANG": "tr_TR.UTF-8", "LC_ALL": "C.UTF-8"},
)
"""Two clean places that differ in everything that could leak into a result."""


def run(folder: Path, place: dict[str, str], jobs: int, scenarios: str) -> Path:
    """Play scenarios in a process of its own and return the folder of the run."""
    home, temporary = folder / "home", folder / "temporary"
    for each in (home, temporary):
        each.mkdir(parents=True)
    out = folder / "run"
    command = [sys.executable, "-m", "treadle.cli.main", "eval", "--protocols", "chat,gemini", "-o", str(out)]
    done = subprocess.run(
        [*command, "--scenarios", scenarios, "--jobs", str(jobs)],
        cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(temporary), "PYTHONUTF8": "1", **place},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenarios", "files_min"),
    [
        pytest.param("recover.*,parallel.*", 12, id="some"),
        pytest.param("*", 100, id="all", marks=pytest.mark.exhaustive),
    ],
)
def test_two_clean_places_give_the_same_bytes(tmp_path: Path, scenarios: str, files_min: int) -> None:
    """Every file of the run: what was played, the verdicts, every transcript, and the report."""
    places = enumerate(PLACES, 1)
    first, second = (run(tmp_path / str(number), place, number, scenarios) for number, place in places)
    names = sorted(path.relative_to(first).as_posix() for path in first.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(second).as_posix() for path in second.rglob("*") if path.is_file())
    assert len(names) > files_min
    assert [name for name in names if (first / name).read_bytes() != (second / name).read_bytes()] == []
