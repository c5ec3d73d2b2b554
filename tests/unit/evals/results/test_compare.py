"""Comparing runs: gained and lost first, paired by scenario, and never between different yardsticks."""

import pytest

from treadle.core.errors import Conflict
from treadle.evals.results.compare import check_comparable, compare, write_comparison
from treadle.evals.results.sample_rows import SampleRow
from unit.evals.results.samples import SCENARIO, info, row


def many(scenarios: int, rate: float, trials: int = 10, **values: str) -> list[SampleRow]:
    """Return samples of scenarios, of which this share passes."""
    return [
        row(f"s.n{number}", "pass" if trial < rate * trials else "fail", trial + 1, **values)
        for number in range(scenarios)
        for trial in range(trials)
    ]


def test_what_got_worse_everywhere_is_a_regression() -> None:
    """Ten scenarios that all lost two of ten are no chance."""
    (each,) = compare(many(10, 0.9), many(10, 0.7))
    assert (each.scenarios, len(each.lost), len(each.gained), each.test) == (10, 10, 0, "sign flips")
    assert each.is_regression
    text = write_comparison([each])
    assert text.splitlines()[1].startswith("  lost    s.n0  0.90 → 0.70")
    assert text.splitlines()[-1].endswith("worse")


def test_a_little_worse_in_one_is_no_difference_that_shows() -> None:
    """And what got better is no regression, however sure."""
    little = [*many(9, 0.9), *(row("s.n9", "fail", trial) for trial in range(1, 11))]
    (each,) = compare(many(10, 0.9), little)
    assert not each.is_regression
    assert "no difference that this many runs could show" in write_comparison([each])
    (better,) = compare(many(10, 0.5), many(10, 0.9))
    assert not better.is_regression
    assert write_comparison([better]).splitlines()[-1].endswith("better")


def test_single_runs_are_compared_by_what_changed() -> None:
    """McNemar's test; several models are corrected for being several."""
    before = [*many(8, 1.0, 1), *many(8, 1.0, 1, model="n")]
    after = [*many(8, 0.0, 1), *many(8, 1.0, 1, model="n")]
    first, second = compare(before, after)
    assert (first.test, first.is_regression, second.is_regression) == ("McNemar, exact", True, False)
    assert first.p == pytest.approx(2 * 2 / 256)


def test_two_runs_of_one_model_each_are_compared_whatever_their_names() -> None:
    """That is how models are compared; without anything in common there is nothing to say."""
    (each,) = compare(many(3, 1.0), many(3, 1.0, model="other"))
    assert each.arm == "m → other"
    with pytest.raises(Conflict, match="no model in common: none and m"):
        compare([], many(3, 1.0))
    with pytest.raises(Conflict, match="no judged scenario of m in common"):
        compare([row("a.one")], [row("a.two")])
    with pytest.raises(Conflict, match="no judged scenario of m in common"):
        compare([row("a.one")], [row("a.one", "broken")])


def test_offline_anything_lost_is_a_regression() -> None:
    """There is no chance in it."""
    before, after = many(2, 1.0, 1, strategy="offline"), [*many(1, 1.0, 1, strategy="offline")]
    after.append(row("s.n1", "fail", 1, strategy="offline"))
    (each,) = compare(before, after)
    assert (each.test, each.is_regression) == ("offline", True)


def test_runs_by_different_yardsticks_are_refused() -> None:
    """Other graders, another toolkit or a changed scenario; the way out is named."""
    check_comparable(info(SCENARIO), info(SCENARIO))
    changed = [
        ({"fingerprints": {"graders": "x", "toolkit": "t"}}, "graders"),
        ({"fingerprints": {"graders": "g", "toolkit": "x"}}, "toolkit"),
        ({"scenario_fingerprints": {"a.add": "x"}}, "the scenario a.add"),
    ]
    for values, named in changed:
        with pytest.raises(Conflict, match=named) as caught:
            check_comparable(info(SCENARIO), info(SCENARIO, **values))
        assert "--regrade" in (caught.value.info.hint or "")
