"""Counters and histograms: what is collected of them is what the library's own would show."""

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.telemetry.counters import Counter, CounterValue, Histogram
from treadle.telemetry.prometheus import MetricRegistry, write_text

BOUNDS = (0.005, 0.1, 1, 2.5)


def test_a_counter_without_labels_is_there_before_it_counts():
    """So that a rate can be taken of its first count."""
    registry = MetricRegistry()
    counter = Counter("seen", "What was seen.", (), registry)
    assert registry.value("seen_total") == 0
    counter.inc()
    counter.inc(by=2.5)
    assert registry.value("seen_total") == 3.5


def test_a_counter_with_labels_counts_each_value_by_itself():
    """And one that was never counted is not shown."""
    registry = MetricRegistry()
    counter = Counter("asked", "What was asked.", ("who", "how"), registry)
    assert b"asked_total{" not in write_text(registry.collect())
    counter.inc("a", "x")
    counter.inc("a", "x")
    counter.inc("b", "x")
    assert registry.value("asked_total", {"who": "a", "how": "x"}) == 2
    assert registry.value("asked_total", {"who": "b", "how": "x"}) == 1


def test_labels_must_be_those_of_the_series():
    """A number that nobody could read is a mistake of whoever counts."""
    counter = Counter("asked", "What was asked.", ("who",), MetricRegistry())
    with pytest.raises(AssertionError, match="asked has the labels"):
        counter.inc("a", "b")


@given(st.lists(st.one_of(st.sampled_from(BOUNDS), st.floats(0, 10, allow_nan=False)), max_size=30))
def test_a_histogram_is_shown_as_the_library_shows_its_own(times: list[float]):
    """Times on a bound are within it; those beyond the last are counted too."""
    ours, theirs = MetricRegistry(), prometheus_client.CollectorRegistry()
    own = Histogram("took_seconds", "What it took.", ("what",), BOUNDS, ours)
    library = prometheus_client.Histogram("took_seconds", "What it took.", ("what",), buckets=BOUNDS, registry=theirs)
    for seconds in times:
        own.observe(seconds, "x")
        library.labels("x").observe(seconds)
    shown = [line for line in prometheus_client.generate_latest(theirs).splitlines() if b"_created" not in line]
    assert write_text(ours.collect()).splitlines() == shown


def test_a_histogram_without_labels_is_there_before_anything_took_time():
    """Like a counter."""
    registry = MetricRegistry()
    histogram = Histogram("took_seconds", "What it took.", (), BOUNDS, registry)
    assert registry.value("took_seconds_count") == 0
    histogram.observe(0.05)
    assert registry.value("took_seconds_bucket", {"le": "0.1"}) == 1


def test_a_number_is_asked_for_when_somebody_looks():
    """Of whoever showed it last."""
    registry, numbers = MetricRegistry(), [3]
    shown = CounterValue("open_things", "What is open.", numbers.pop, registry)
    assert registry.value("open_things") == 3.0
    shown.value = lambda: 4
    assert registry.value("open_things") == 4.0
