"""Statistics: the numbers that the design measured, and the edges where formulas break."""

import random

import pytest

from treadle.evals.results.statistics import (
    cluster_bootstrap,
    detectable_drop,
    holm,
    mcnemar,
    mean_pass_hat,
    pass_hat,
    percentile,
    runs_needed,
    scenario_mean,
    sign_flip,
    wilson,
    zero_failures_bound,
)


@pytest.mark.parametrize(
    ("passed", "runs", "low", "high"),
    [(5, 5, 0.566, 1), (10, 10, 0.722, 1), (20, 20, 0.839, 1), (100, 100, 0.963, 1), (0, 5, 0, 0.434), (0, 0, 0, 1)],
)
def test_wilson_is_never_sure_of_a_few(passed: int, runs: int, low: float, high: float) -> None:
    """Twenty of twenty is not one: the interval says from where."""
    assert wilson(passed, runs) == pytest.approx((low, high), abs=0.001)


def test_wilson_ends_exactly_where_nothing_lies_beyond() -> None:
    """All passed reaches one, none passed reaches zero, whatever rounding makes of the formula."""
    assert all(wilson(runs, runs)[1] == 1.0 and wilson(0, runs)[0] == 0.0 for runs in range(1, 300))


def test_wilson_covers_the_true_rate_as_often_as_it_says() -> None:
    """Of a thousand draws the true rate lies outside about fifty times."""
    draw = random.Random(7)
    hits = 0
    for _ in range(1000):
        passed = sum(draw.random() < 0.8 for _ in range(50))
        low, high = wilson(passed, 50)
        hits += low <= 0.8 <= high
    assert 920 <= hits <= 980


def test_pass_hat_is_the_chance_that_all_of_k_pass() -> None:
    """Nine of ten gives 0.2 for eight; fewer runs than k say nothing."""
    assert pass_hat(9, 10, 8) == pytest.approx(0.2)
    assert (pass_hat(10, 10, 4), pass_hat(3, 10, 4), pass_hat(3, 3, 4)) == (1.0, 0.0, None)
    assert mean_pass_hat([(10, 10), (0, 10), (1, 2)], 4) == 0.5
    assert mean_pass_hat([(1, 2)], 4) is None


@pytest.mark.parametrize(("before", "after", "runs"), [(0.9, 0.95, 435), (0.8, 0.9, 199), (0.95, 0.99, 285)])
def test_how_many_runs_a_difference_needs(before: float, after: float, runs: int) -> None:
    """At five percent, two-sided, with a power of eighty."""
    assert runs_needed(before, after) == runs


def test_a_run_says_which_drop_it_could_see() -> None:
    """More runs see smaller drops; a handful sees none that is possible."""
    assert detectable_drop(0.95, 180) == pytest.approx(0.085, abs=0.002)
    few, many = detectable_drop(0.9, 50), detectable_drop(0.9, 1000)
    assert few is not None
    assert many is not None
    assert many < few
    assert detectable_drop(0.9, 2) is None


def test_no_failure_at_all_still_has_a_bound() -> None:
    """None in 300 means below one percent."""
    assert zero_failures_bound(300) == pytest.approx(0.00994, abs=1e-4)
    assert zero_failures_bound(0) == 1.0


def test_scenarios_count_the_same_however_often_they_were_run() -> None:
    """The mean is over scenarios; its interval draws scenarios, and is the same each time."""
    counts = [(10, 10), (0, 1), (5, 10)]
    assert scenario_mean(counts) == 0.5
    assert cluster_bootstrap(counts) == cluster_bootstrap(counts)
    low, high = cluster_bootstrap(counts)
    assert low <= 0.5 <= high
    assert (cluster_bootstrap([]), scenario_mean([(0, 0)])) == ((0.0, 1.0), 0.0)


def test_paired_differences_are_judged_by_flipping_their_signs() -> None:
    """Eight that all got better are not chance; as many that got better as worse are."""
    assert sign_flip([0.1] * 8) == pytest.approx(2 / 256)
    assert sign_flip([0.1, -0.1, 0.2, -0.2]) == 1.0
    assert sign_flip([0.0, 0.0]) == 1.0
    assert sign_flip([0.1] * 30) < 0.01
    assert sign_flip([0.1, -0.1] * 15) > 0.5


def test_single_runs_are_judged_by_what_changed() -> None:
    """McNemar's exact test."""
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(1, 8) == pytest.approx(0.0391, abs=1e-3)
    assert mcnemar(8, 1) == mcnemar(1, 8)


def test_many_comparisons_are_corrected() -> None:
    """Holm: the smallest is multiplied by all, and none becomes smaller than the one before."""
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert holm({}) == {}


def test_percentiles_are_values_that_were_seen() -> None:
    """By the nearest rank."""
    assert [percentile([3, 1, 2, 4], share) for share in (0.5, 0.95, 0.0)] == [2, 4, 1]
    assert percentile([], 0.5) == 0.0


def test_scenarios_that_all_went_alike_make_no_mean_certain() -> None:
    """Each draw would be the same; the interval is then that of so many single runs."""
    assert cluster_bootstrap([(10, 10)] * 18) == pytest.approx(wilson(18, 18))
    assert cluster_bootstrap([(0, 10)] * 5) == pytest.approx(wilson(0, 5))
    low, high = cluster_bootstrap([(9, 10)])
    assert low < 0.3
    assert high > 0.95
