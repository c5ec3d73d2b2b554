"""What all workers count together: each keeps its numbers in a file, once a second and whenever somebody asks.

Whoever is asked writes its own file first and then adds up all of them, so that no count ever seems to go back. What a
worker that died had counted is kept by the master; how much it was doing at that moment is not.
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
"""Gauges that say how something is and not how much: of several workers the worst holds."""
_MOMENTARY = "gauge"


class StoredMetrics(msgspec.Struct, frozen=True):
    """What a file holds; `owners` are the workers whose own files it stands for."""

    series: tuple[Series, ...] = ()
    owners: tuple[str, ...] = ()


class SharedMetrics:
    """The numbers of one worker, and of all together."""

    def __init__(self, registry: MetricRegistry, folder: Path, owner: str) -> None:
        self._registry = registry
        self._folder = folder
        self._owner = owner

    async def write_periodically(self) -> None:
        """Write this worker's numbers down, for ever."""
        while True:
            self.write()
            await asyncio.sleep(WRITE_S)

    def write(self) -> None:
        """Write this worker's numbers down; a folder that is gone has nobody who reads it."""
        _write(self._folder / f"{_file(self._owner)}{_SUFFIX}", StoredMetrics(series=tuple(self._registry.collect())))

    def text(self) -> bytes:
        """Return the numbers of all workers in Prometheus' text form."""
        self.write()
        return write_text(_merge(_all(self._folder)))


def keep_counts_of_dead(folder: Path, owner: str) -> None:
    """Keep what a dead worker had counted, under no worker's name."""
    file = folder / f"{_file(owner)}{_SUFFIX}"
    lost = _read(file)
    dead = folder / f"{_DEAD}{_SUFFIX}"
    before = _read(dead)
    counted = tuple(series for series in lost.series if series.kind != _MOMENTARY)
    merged = tuple(_merge([*before.series, *counted]))
    # Until its file is gone it must not be counted twice; those of earlier dead are gone already.
    _write(dead, StoredMetrics(series=merged, owners=(_file(owner),)))
    file.unlink(missing_ok=True)


def _all(folder: Path) -> list[Series]:
    """Return the series of every file; a dead worker's own is not read beside what is kept of it."""
    kept = {file.name.removesuffix(_SUFFIX): _read(file) for file in sorted(folder.glob(f"*{_SUFFIX}"))}
    gone = frozenset(kept[_DEAD].owners) if _DEAD in kept else frozenset[str]()
    return [series for name, each in kept.items() if name not in gone for series in each.series]


def _merge(found: Iterable[Series]) -> list[Series]:
    """Add up what stands for the same thing."""
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


def _write(file: Path, kept: StoredMetrics) -> None:
    beside = file.with_suffix(f".{os.getpid()}")
    try:
        beside.write_bytes(msgspec.json.encode(kept))
        beside.replace(file)
    except OSError:
        beside.unlink(missing_ok=True)


def _file(owner: str) -> str:
    return owner.replace(":", "-").replace("/", "-")
