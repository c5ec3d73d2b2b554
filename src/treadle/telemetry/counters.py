"""Counters and histograms that are cheap to update: a request updates about fifteen.

They are collected when metrics are read. Only the event loop updates them, so they need no lock.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate

from treadle.telemetry.prometheus import MetricRegistry, MetricSample, Series, write_number


class Counter:
    """A number for each combination of label values, which only grows; without labels it is shown from the start.

    Hot paths add to `counts` directly, which saves a call.
    """

    def __init__(self, name: str, text: str, labels: Sequence[str], registry: MetricRegistry) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self.counts: defaultdict[tuple[str, ...], float] = defaultdict(float, {} if labels else {(): 0.0})
        registry.register(self)

    def inc(self, *values: str, by: float = 1) -> None:
        """Add to the number of these label values. Raises: ValueError for a negative amount."""
        if by < 0:
            raise ValueError("a counter only grows")
        assert len(values) == len(self._labels), f"{self._name} has the labels {self._labels}"
        self.counts[values] += by

    def collect(self) -> Iterable[Series]:
        """Return the current numbers."""
        name = f"{self._name}_total"
        samples = [
            MetricSample(name, dict(zip(self._labels, values, strict=True)), count)
            for values, count in self.counts.items()
        ]
        yield Series(self._name, "counter", self._text, tuple(samples), self._labels)


class DurationBuckets:
    """Durations counted by the smallest bound they are within, and their sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds


class Histogram:
    """Duration buckets for each combination of label values.

    Hot paths add to `times` directly, which saves a call.
    """

    def __init__(
        self, name: str, text: str, labels: Sequence[str], bounds: tuple[float, ...], registry: MetricRegistry
    ) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._bucket_labels = (*map(write_number, bounds), "+Inf")
        make = partial(DurationBuckets, bounds)
        self.times: defaultdict[tuple[str, ...], DurationBuckets] = defaultdict(make, {} if labels else {(): make()})
        registry.register(self)

    def observe(self, seconds: float, *values: str) -> None:
        """Count a duration for these label values."""
        assert len(values) == len(self._labels), f"{self._name} has the labels {self._labels}"
        self.times[values].add(seconds)

    def collect(self) -> Iterable[Series]:
        """Return the current numbers."""
        samples: list[MetricSample] = []
        for values, times in self.times.items():
            labels = dict(zip(self._labels, values, strict=True))
            within = list(accumulate(times.counts))
            bounded = zip(self._bucket_labels, within, strict=True)
            samples += [
                MetricSample(f"{self._name}_bucket", {**labels, "le": bound}, count) for bound, count in bounded
            ]
            samples += [
                MetricSample(f"{self._name}_count", labels, within[-1]),
                MetricSample(f"{self._name}_sum", labels, times.sum),
            ]
        yield Series(self._name, "histogram", self._text, tuple(samples), self._labels)


class CounterValue:
    """A gauge whose value is read when metrics are read; `value` may be replaced."""

    def __init__(self, name: str, text: str, value: Callable[[], float], registry: MetricRegistry) -> None:
        self._name, self._text = name, text
        self.value = value
        registry.register(self)

    def collect(self) -> Iterable[Series]:
        """Return the current value."""
        yield Series(self._name, "gauge", self._text, (MetricSample(self._name, {}, float(self.value())),))
