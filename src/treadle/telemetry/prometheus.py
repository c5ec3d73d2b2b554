"""The metrics registry of a process, and the Prometheus text format (version 0.0.4).

Tests compare the text with what the official library writes and parses.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_NO_LABELS: Mapping[str, str] = {}
_IN_LABEL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_IN_TEXT = str.maketrans({"\\": r"\\", "\n": r"\n"})
_ODD = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
_SURROGATES = "replace"
"""How a lone surrogate in a label is encoded: UTF-8 cannot represent it."""


class MetricSample(msgspec.Struct, frozen=True, array_like=True):
    """One sample."""

    name: str
    labels: Mapping[str, str]
    value: float

    @property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The identity of the sample within its series."""
        return self.name, tuple(self.labels.items())


class Series(msgspec.Struct, frozen=True, array_like=True):
    """All samples of one `counter`, `gauge` or `histogram`, and the names of its labels."""

    name: str
    kind: str
    text: str
    samples: tuple[MetricSample, ...]
    labels: tuple[str, ...] = ()


class Collector(Protocol):
    """A source of series."""

    def collect(self) -> Iterable[Series]:
        """Return the current series."""
        ...


class MetricRegistry:
    """All metrics of one process."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Add a collector."""
        self._collectors.append(collector)

    def collect(self) -> list[Series]:
        """Return the current series of all collectors."""
        return [series for collector in self._collectors for series in collector.collect()]

    def value(self, name: str, labels: Mapping[str, str] = _NO_LABELS) -> float | None:
        """Return the value of one sample; None if none has this name and exactly these labels."""
        samples = [sample for series in self.collect() for sample in series.samples]
        return next((each.value for each in samples if each.name == name and each.labels == labels), None)


def write_text(found: Iterable[Series]) -> bytes:
    """Encode series in the Prometheus text format."""
    lines: list[str] = []
    for series in found:
        name = f"{series.name}_total" if series.kind == "counter" else series.name
        lines += [f"# HELP {name} {series.text.translate(_IN_TEXT)}", f"# TYPE {name} {series.kind}"]
        lines += [f"{each.name}{_write_labels(each.labels)} {write_number(each.value)}" for each in series.samples]
    return "\n".join([*lines, ""]).encode("utf-8", _SURROGATES)


def write_number(value: float) -> str:
    """Format the value of a sample or the bound of a bucket."""
    written = repr(float(value))
    return _ODD.get(written, written)


def _write_labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{value.translate(_IN_LABEL)}"' for name, value in sorted(labels.items())]) + "}"
