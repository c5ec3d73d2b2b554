"""The trend over runs: one line for each model from `history.jsonl`, drawn; incomparable runs are marked."""

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from treadle.core.errors import ConfigError
from treadle.evals.results.fingerprint import COMPARED
from treadle.evals.results.result_folder import EvalRunInfo
from treadle.evals.results.sample_rows import SampleRow
from treadle.evals.results.terminal_table import summarise

HISTORY = "history.jsonl"
_BARS = "▁▂▃▄▅▆▇█"


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What one run said of one model. `basis` is the same for runs that can be compared."""

    at: float
    run: str
    arm: str
    passed: int
    judged: int
    broken: int
    rate: float | None
    low: float
    high: float
    basis: str


def basis_of(info: EvalRunInfo) -> str:
    """Return what makes runs comparable: the graders, the toolkit, and what was played."""
    scenarios = ",".join(f"{name}={value}" for name, value in sorted(info.scenario_fingerprints.items()))
    named = "|".join([*(info.fingerprints.get(name, "") for name in COMPARED), scenarios])
    return hashlib.sha256(named.encode()).hexdigest()[:16]


def append_history(folder: Path, info: EvalRunInfo, rows: Sequence[SampleRow]) -> None:
    """Add a run to the history of a folder."""
    points = [
        Point(
            at=info.started_at,
            run=info.name,
            arm=each.arm,
            passed=each.passed,
            judged=each.judged,
            broken=each.broken,
            rate=each.rate,
            low=each.wilson[0],
            high=each.wilson[1],
            basis=basis_of(info),
        )
        for each in summarise(rows)
    ]
    descriptor = os.open(folder / HISTORY, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "ab") as out:
        out.write(b"".join(msgspec.json.encode(point) + b"\n" for point in points))


def read_history(folder: Path) -> list[Point]:
    """Read the history of a folder; of a run that was gone on with, only what it came to in the end.

    Raises: ConfigError.
    """
    file = folder / HISTORY
    try:
        points = [msgspec.json.decode(line, type=Point) for line in file.read_bytes().splitlines() if line]
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}", param="history") from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{file}: {error}", param="history") from None
    return list({(point.at, point.run, point.arm): point for point in points}.values())


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))


def _bar(point: Point) -> str:
    return "–" if not point.judged or point.rate is None else _BARS[min(7, int(point.rate * 8))]


def _rate(point: Point) -> str:
    """Write the rate with its interval; a dash where nothing was judged (older runs recorded a rate of 0 there)."""
    if not point.judged or point.rate is None:
        return "–"
    return f"{point.rate:.3f} [{point.low:.3f},{point.high:.3f}]"


def write_history(points: Sequence[Point]) -> str:
    """Write the trend of each model, oldest first; a `*` marks where runs stop being comparable."""
    lines: list[str] = []
    for arm in dict.fromkeys(point.arm for point in points):
        own = [point for point in points if point.arm == arm]
        lines.append(f"{arm}  {''.join(map(_bar, own))}")
        before: Point | None = None
        for point in own:
            mark = "*" if before is not None and before.basis != point.basis else " "
            lines.append(
                f"  {mark} {_day(point.at)}  {point.run}  {point.passed}/{point.judged}  {_rate(point)}"
                f"{f'  {point.broken} broken' if point.broken else ''}"
            )
            before = point
    if any(line.startswith("  *") for line in lines):
        lines.append("* not comparable with the run before: scenarios, graders or toolkit changed")
    return "\n".join([*lines, ""]) if lines else "there is no run yet\n"
