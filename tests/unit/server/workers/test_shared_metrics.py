"""What workers count together: sums that never go back, and what becomes of the numbers of the dead."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from treadle.server.workers.shared_metrics import SharedMetrics, keep_counts_of_dead
from treadle.telemetry import Metrics


class Worker:
    """One worker's metrics and its numbers."""

    def __init__(self, folder: Path, owner: str) -> None:
        self.metrics = Metrics()
        self.numbers = SharedMetrics(self.metrics.registry, folder, owner)

    def answer(self, times: int = 1) -> None:
        """Count requests."""
        for _ in range(times):
            self.metrics.requests.inc("/v1/models", "200")
            self.metrics.request_latency.observe(0.02)


def values(text: bytes) -> dict[str, float]:
    """Return samples by name and labels, those of zero left out."""
    families = text_string_to_metric_families(text.decode())
    found = {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}
    return {" ".join(key): value for key, value in found.items() if value}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Worker, Worker]:
    """Two workers of one crew."""
    return Worker(tmp_path, "host:worker1:aa"), Worker(tmp_path, "host:worker2:bb")


def test_counts_and_histograms_add_up_whoever_is_asked(pair: tuple[Worker, Worker]) -> None:
    """Each is fresh about itself and knows what the other wrote last."""
    left, right = pair
    left.answer(3)
    right.answer(4)
    right.numbers.write()
    told = values(left.numbers.text())
    assert told["treadle_http_requests_total /v1/models 200"] == 7
    assert told["treadle_http_request_duration_seconds_count"] == 7
    assert told["treadle_http_request_duration_seconds_bucket 0.025"] == 7
    assert values(right.numbers.text()) == told


def test_what_one_worker_told_no_other_takes_back(pair: tuple[Worker, Worker]) -> None:
    """Asking writes one's own file first: a count that was seen is seen by everybody from then on."""
    left, right = pair
    left.answer()
    assert values(left.numbers.text())["treadle_http_requests_total /v1/models 200"] == 1
    assert values(right.numbers.text())["treadle_http_requests_total /v1/models 200"] == 1


def test_what_goes_on_is_added_up_and_how_something_is_is_not(pair: tuple[Worker, Worker]) -> None:
    """Live runs are summed; of the states of a breaker the worst holds."""
    left, right = pair
    for worker, breaker in ((left, "closed"), (right, "open")):
        worker.metrics.show("treadle_live_runs", "Runs.", lambda: 1)
        health = SimpleNamespace(name="up", breaker=breaker, live=2, waiting=0)
        worker.metrics.show_upstreams(lambda health=health: [health])
        worker.numbers.write()
    told = values(left.numbers.text())
    assert (told["treadle_live_runs"], told["treadle_upstream_live_calls up"]) == (2, 4)
    assert told["treadle_upstream_breaker_state up"] == 2


def test_a_dead_worker_keeps_what_it_counted_and_does_nothing_any_more(
    pair: tuple[Worker, Worker], tmp_path: Path
) -> None:
    """No counter goes back by its death, however often that happens; what it was doing is over."""
    left, right = pair
    for owner in ("worker3", "worker4"):
        lost = Worker(tmp_path, owner)
        lost.answer(5)
        lost.metrics.show("treadle_live_runs", "Runs.", lambda: 1)
        lost.numbers.write()
        before = values(left.numbers.text())
        keep_counts_of_dead(tmp_path, owner)
        after = values(right.numbers.text())
        assert before["treadle_live_runs"] == 1
        assert "treadle_live_runs" not in after
        total = "treadle_http_requests_total /v1/models 200"
        assert after[total] == before[total]
    assert after[total] == 10


def test_a_worker_that_never_wrote_and_a_broken_file_harm_nothing(pair: tuple[Worker, Worker], tmp_path: Path) -> None:
    """They count as nothing; so does a folder that is gone."""
    left, _ = pair
    left.answer()
    keep_counts_of_dead(tmp_path, "never")
    (tmp_path / "half.numbers").write_bytes(b'{"series":[["x"')
    assert values(left.numbers.text())["treadle_http_requests_total /v1/models 200"] == 1
    gone = SharedMetrics(left.metrics.registry, tmp_path / "gone", "x")
    assert values(gone.text()) == {}
