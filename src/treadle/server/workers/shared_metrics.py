"""The metrics of all workers together: each writes its own to a file, once a second and before each scrape.

The worker that is scraped writes its own file first and then adds up all files, so that no counter goes back. The
supervisor preserves the counters of a worker that died, but not its gauges.
"""

import asyncio
import operator
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from treadle.telemetry.prometheus import MetricRegistry, MetricSample, Series, write_text

WRITE_S = 1.0
_SUFFIX = ".numbers"
_DEAD = "dead"
_STATES: dict[str, Callable[[float, float], float]] = {
    "treadle_upstream_breaker_state": max,
    "treadle_replicas": max,
    "treadle_replica_differences": max,
    "treadle_runs_without_tool": max,
    "treadle_store_up": min,
}
"""Gauges of a state, not of an amount: of several workers' values the worst is reported."""
_MOMENTARY = "gauge"


class StoredMetrics(msgspec.Struct, frozen=True):
    """The content of a file; `owners` are the workers whose own files it replaces."""

    series: tuple[Series, ...] = ()
    owners: tuple[str, ...] = ()


class SharedMetrics:
    """The metrics of one worker, and of all workers together."""

    def __init__(self, registry: MetricRegistry, folder: Path, owner: str) -> None:
        self._registry = registry
        self._folder = folder
        self._owner = owner

    async def write_periodically(self) -> None:
        """Write this worker's metrics once a second, until cancelled."""
        while True:
            self.write()
            await asyncio.sleep(WRITE_S)

    def write(self) -> None:
        """Write this worker's metrics; a missing folder is ignored, because then no worker reads it."""
        _write(self._folder / f"{_file(self._owner)}{_SUFFIX}", StoredMetrics(series=tuple(self._registry.collect())))

    def text(self) -> bytes:
        """Return the metrics of all workers in Prometheus' text form."""
        self.write()
        return write_text(_merge(_all(self._folder)))


def keep_counts_of_dead(folder: Path, owner: str) -> None:
    """Add a dead worker's counters to the file for all dead workers."""
    file = folder / f"{_file(owner)}{_SUFFIX}"
    lost = _read(file)
    dead = folder / f"{_DEAD}{_SUFFIX}"
    before = _read(dead)
    counted = tuple(series for series in lost.series if series.kind != _MOMENTARY)
    merged = tuple(_merge([*before.series, *counted]))
    # `owners` keeps its file from being counted twice until that is deleted; files of earlier dead are gone already.
    _write(dead, StoredMetrics(series=merged, owners=(_file(owner),)))
    file.unlink(missing_ok=True)


def _all(folder: Path) -> list[Series]:
    """Return the series of every file, except files of dead workers whose counters were merged."""
    stored = {file.name.removesuffix(_SUFFIX): _read(file) for file in sorted(folder.glob(f"*{_SUFFIX}"))}
    gone = frozenset(stored[_DEAD].owners) if _DEAD in stored else frozenset[str]()
    return [series for name, each in stored.items() if name not in gone for series in each.series]


def _merge(found: Iterable[Series]) -> list[Series]:
    """Add up samples of the same series and labels."""
    merged: dict[str, Series] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], MetricSample]] = {}
    for series in found:
        merged.setdefault(series.name, series)
        here = values.setdefault(series.name, {})
        for sample in series.samples:
            other = here.get(sample.key)
            if other is not None:
                together = _STATES.get(series.name, operator.add)
                sample = MetricSample(sample.name, sample.labels, together(other.value, sample.value))
            here[sample.key] = sample
    return [msgspec.structs.replace(series, samples=tuple(values[name].values())) for name, series in merged.items()]


def _read(file: Path) -> StoredMetrics:
    try:
        return msgspec.json.decode(file.read_bytes(), type=StoredMetrics)
    except (OSError, msgspec.MsgspecError):
        return StoredMetrics()


def _write(file: Path, metrics: StoredMetrics) -> None:
    beside = file.with_suffix(f".{os.getpid()}")
    try:
        beside.write_bytes(msgspec.json.encode(metrics))
        beside.replace(file)
    except OSError:
        beside.unlink(missing_ok=True)


def _file(owner: str) -> str:
    return owner.replace(":", "-").replace("/", "-")
