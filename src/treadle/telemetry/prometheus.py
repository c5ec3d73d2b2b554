"""What a process shows to Prometheus: series of numbers, collected whenever somebody looks, and their text form.

The form is version 0.0.4 of the text exposition format. Tests hold it to what the official library writes and reads.
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
"""What becomes of half a character in a label: no text can hold it."""


class MetricSample(msgspec.Struct, frozen=True, array_like=True):
    """One number."""

    name: str
    labels: Mapping[str, str]
    value: float

    @property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Return what tells it from all others of its series."""
        return self.name, tuple(self.labels.items())


class Series(msgspec.Struct, frozen=True, array_like=True):
    """All numbers of one name, which are a `counter`, a `gauge` or a `histogram`, and the labels that they have."""

    name: str
    kind: str
    text: str
    samples: tuple[MetricSample, ...]
    labels: tuple[str, ...] = ()


class Collector(Protocol):
    """Whoever has numbers to show."""

    def collect(self) -> Iterable[Series]:
        """Return all numbers as they are now."""
        ...


class MetricRegistry:
    """Everything that one process shows."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Show what somebody has, too."""
        self._collectors.append(collector)

    def collect(self) -> list[Series]:
        """Return all numbers as they are now."""
        return [series for collector in self._collectors for series in collector.collect()]

    def value(self, name: str, labels: Mapping[str, str] = _NO_LABELS) -> float | None:
        """Return one number, None if there is none of that name with just these labels."""
        samples = [sample for series in self.collect() for sample in series.samples]
        return next((each.value for each in samples if each.name == name and each.labels == labels), None)


def write_text(found: Iterable[Series]) -> bytes:
    """Write series in Prometheus' text form."""
    lines: list[str] = []
    for series in found:
        name = f"{series.name}_total" if series.kind == "counter" else series.name
        lines += [f"# HELP {name} {series.text.translate(_IN_TEXT)}", f"# TYPE {name} {series.kind}"]
        lines += [f"{each.name}{_write_labels(each.labels)} {write_number(each.value)}" for each in series.samples]
    return "\n".join([*lines, ""]).encode("utf-8", _SURROGATES)


def write_number(value: float) -> str:
    """Write a number, as a sample has it or as the bound of a bucket."""
    written = repr(float(value))
    return _ODD.get(written, written)


def _write_labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{value.translate(_IN_LABEL)}"' for name, value in sorted(labels.items())]) + "}"
