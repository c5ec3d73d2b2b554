"""Counters and histograms that cost next to nothing to count with: a request counts some fifteen times.

They are collected like the library's own, whenever somebody looks. They are counted with on the event loop alone, so
they need no lock.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Counter(Collector):
    """A number for each value of its labels, which only grows; one without labels is there from the beginning.

    Who counts most adds to `counts` itself.
    """

    def __init__(self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self.counts: defaultdict[tuple[str, ...], float] = defaultdict(float, {} if labels else {(): 0.0})
        registry.register(self)

    def inc(self, *values: str, by: float = 1) -> None:
        """Count for these values of the labels. Raises: ValueError for what would take something back."""
        if by < 0:
            raise ValueError("a counter only grows")
        assert len(values) == len(self._labels), f"{self._name} has the labels {self._labels}"
        self.counts[values] += by

    def collect(self) -> Iterable[Metric]:
        """Return all numbers as they are now."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, count in list(self.counts.items()):
            family.add_metric(values, count)
        yield family


class Times:
    """How often something took how long: within which bound, and altogether."""

    __slots__ = ("counts", "sum")

    def __init__(self, bounds: int) -> None:
        self.counts = [0] * (bounds + 1)
        self.sum = 0.0


class Histogram(Collector):
    """Times for each value of its labels, counted by how many were within which bound."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], bounds: tuple[float, ...], registry: CollectorRegistry
    ) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._bounds = bounds
        self._shown = (*(_shown(bound) for bound in bounds), "+Inf")
        self._times: dict[tuple[str, ...], Times] = {} if labels else {(): Times(len(bounds))}
        registry.register(self)

    def observe(self, seconds: float, *values: str) -> None:
        """Count one that took so long, for these values of the labels."""
        times = self._times.get(values)
        if times is None:
            assert len(values) == len(self._labels), f"{self._name} has the labels {self._labels}"
            times = self._times[values] = Times(len(self._bounds))
        times.counts[bisect_left(self._bounds, seconds)] += 1
        times.sum += seconds

    def collect(self) -> Iterable[Metric]:
        """Return all numbers as they are now."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, times in list(self._times.items()):
            family.add_metric(values, list(zip(self._shown, accumulate(times.counts), strict=True)), times.sum)
        yield family


def _shown(bound: float) -> str:
    return str(float(bound))
