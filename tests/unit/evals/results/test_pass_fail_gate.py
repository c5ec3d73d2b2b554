"""The gate of a run: what passes, what does not, and why."""

import pytest

from treadle.evals.results.compare import compare
from treadle.evals.results.pass_fail_gate import FAILURES_MAX, EvalGate, judge_run, write_failures
from treadle.evals.results.sample_rows import SampleRow
from treadle.evals.results.terminal_table import summarise, write_summary
from unit.evals.results.samples import row


def _rows(passed: int, failed: int, model: str = "m") -> list[SampleRow]:
    outcomes = ["pass"] * passed + ["fail"] * failed
    return [row("a.add", outcome, trial, model=model) for trial, outcome in enumerate(outcomes, 1)]


def test_without_a_rule_one_failed_sample_fails_the_run() -> None:
    """A run that fails nothing by default could not gate a pipeline."""
    assert judge_run(_rows(5, 0)) == EvalGate(exit_code=0)
    assert judge_run(_rows(4, 1)) == EvalGate(exit_code=1, reasons=("m: 1 of 5 samples failed",))


@pytest.mark.parametrize(("at_least", "code"), [(0.8, 0), (0.81, 1), (0.0, 0), (1.0, 1)])
def test_at_least_is_the_lowest_rate_that_passes(at_least: float, code: int) -> None:
    """It replaces the rule that all samples pass."""
    gate = judge_run(_rows(4, 1), at_least=at_least)
    assert gate.exit_code == code
    assert gate.reasons == ((f"m: the rate .800 is below --at-least {at_least:g}",) if code else ())


@pytest.mark.parametrize(
    ("was", "now", "allow_drop", "code"),
    [((4, 0), (0, 4), 0.0, 1), ((4, 0), (3, 1), 0.0, 1), ((4, 0), (3, 1), 0.25, 0), ((3, 1), (3, 1), 0.0, 0)],
)
def test_a_lower_rate_than_the_baseline_fails(
    was: tuple[int, int], now: tuple[int, int], allow_drop: float, code: int
) -> None:
    """By any amount that is not allowed, however few samples there are; failures of the baseline are allowed."""
    compared = compare(_rows(*was), _rows(*now))
    assert judge_run(_rows(*now), compared=compared, allow_drop=allow_drop).exit_code == code


def test_each_model_is_judged_by_itself() -> None:
    """A good one does not hide a bad one."""
    gate = judge_run([*_rows(5, 0), *_rows(1, 1, "n")])
    assert gate == EvalGate(exit_code=1, reasons=("n: 1 of 2 samples failed",))


def test_what_could_not_be_judged_or_read_is_neither_passed_nor_failed() -> None:
    """Exit code 2, with the reason."""
    broken = [row("a.add", "broken", 1)]
    assert judge_run(broken) == EvalGate(exit_code=2, reasons=("m: 1 of 1 samples could not be judged",))
    assert judge_run([]) == EvalGate(exit_code=2, reasons=("no scenario was played",))
    assert judge_run(_rows(1, 0), unread=["x.toml: it is not TOML"]) == EvalGate(
        exit_code=2, reasons=("x.toml: it is not TOML",)
    )


def test_nothing_judged_is_no_rate_of_zero() -> None:
    """A dash in the table, null for programs."""
    rows = [row("a.add", "broken", 1)]
    [summary] = summarise(rows)
    assert (summary.rate, summary.mean) == (None, None)
    text = write_summary(rows)
    assert ".000" not in text
    assert "m: nothing could be judged; INVALID: 1 of 1 samples are broken, more than 2%" in text


def test_each_failed_scenario_has_a_line_with_its_first_reason() -> None:
    """And there is an end to the lines."""
    rows = [*_rows(3, 2), row("b.sub", "broken", 1, reason="upstream_timeout:\n it took too long")]
    assert write_failures(rows) == (
        "failed  m  a.add  2 of 5: text: says nothing\nbroken  m  b.sub  1 of 1: upstream_timeout: it took too long\n"
    )
    many = [row(f"a.s{number}", "fail") for number in range(FAILURES_MAX + 3)]
    assert write_failures(many).splitlines()[FAILURES_MAX:] == ["and 3 more; report.html has all of them"]
    assert write_failures(_rows(1, 0)) == ""
