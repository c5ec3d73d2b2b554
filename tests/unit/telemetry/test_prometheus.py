"""What is shown to Prometheus: as the official library writes it, and so that it reads it."""

from collections.abc import Iterable

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from treadle.telemetry.prometheus import MetricRegistry, MetricSample, Series, write_text

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.floats() | st.integers(-(2**60), 2**60)
words = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)


class Kept:
    """Shows what it was given."""

    def __init__(self, *series: Series) -> None:
        self.series = series

    def collect(self) -> Iterable[Series]:
        """Return it."""
        return self.series


@given(texts, st.dictionaries(words, texts, max_size=3), numbers)
def test_what_is_written_is_read_back(text, labels, value):
    """Whatever stands in a label, and whatever the number."""
    written = write_text([Series("seen", "gauge", text, (MetricSample("seen", labels, value),))]).decode()
    # Lines end in a newline alone: the other separators of Unicode belong to the text.
    [family] = text_string_to_metric_families(written)
    [sample] = family.samples
    assert (family.name, family.type, sample.name, sample.labels) == ("seen", "gauge", "seen", labels)
    assert sample.value == float(value) or (sample.value != sample.value and value != value)


@given(st.lists(st.tuples(texts, st.floats(0, 1e6)), max_size=4, unique_by=lambda each: each[0]), texts)
def test_counters_and_gauges_are_written_as_the_library_writes_its_own(counts, text):
    """Byte for byte, where the library writes the number in the same way."""
    theirs = prometheus_client.CollectorRegistry()
    counter = prometheus_client.Counter("seen", text, ("who",), registry=theirs)
    gauge = prometheus_client.Gauge("open", text, registry=theirs)
    gauge.set(1)
    for who, _ in counts:
        counter.labels(who).inc(2)
    samples = tuple([MetricSample("seen_total", {"who": who}, 2.0) for who, _ in counts])
    ours = [Series("seen", "counter", text, samples), Series("open", "gauge", text, (MetricSample("open", {}, 1.0),))]
    shown = prometheus_client.generate_latest(theirs).decode().split("\n")
    kept = [line for line in shown if "seen_created" not in line]
    assert write_text(ours).decode().split("\n") == kept


@pytest.mark.parametrize(
    ("value", "written"), [(1, "1.0"), (float("inf"), "+Inf"), (float("-inf"), "-Inf"), (float("nan"), "NaN")]
)
def test_numbers_that_are_none_have_names(value, written):
    """Those that Prometheus knows."""
    assert write_text([Series("a", "gauge", "b", (MetricSample("a", {}, value),))]) == (
        f"# HELP a b\n# TYPE a gauge\na {written}\n".encode()
    )


def test_half_a_character_does_not_keep_the_rest_from_being_shown():
    """It cannot be written in any text."""
    written = write_text([Series("a", "gauge", "b", (MetricSample("a", {"c": "\ud800x"}, 1.0),))])
    assert written.endswith(b'\na{c="?x"} 1.0\n')


def test_a_number_is_found_by_its_name_and_all_its_labels():
    """None where there is no such number."""
    registry = MetricRegistry()
    registry.register(Kept(Series("a", "gauge", "b", (MetricSample("a", {"c": "d"}, 1.0), MetricSample("a", {}, 2.0)))))
    registry.register(Kept(Series("e", "gauge", "f", (MetricSample("e", {}, 3.0),))))
    assert (registry.value("a"), registry.value("a", {"c": "d"}), registry.value("e")) == (2.0, 1.0, 3.0)
    assert (registry.value("a", {"c": "x"}), registry.value("x")) == (None, None)
