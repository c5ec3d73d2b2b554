"""Decides whether a run of scenarios passes: its exit code and the reasons. Does no I/O."""

from collections.abc import Sequence

import msgspec

from treadle.evals.results.compare import ArmComparison
from treadle.evals.results.sample_rows import SampleRow, by
from treadle.evals.results.terminal_table import ArmSummary, summarise, write_share

PASSED, FAILED, NOT_JUDGED, BUDGET_REACHED = 0, 1, 2, 3
"""Exit codes of `treadle eval`."""

FAILURES_MAX = 20
"""How many failed scenarios are listed."""
REASON_CHARS_MAX = 300


class EvalGate(msgspec.Struct, frozen=True, kw_only=True):
    """The exit code of a run, and why it is not zero."""

    exit_code: int
    reasons: tuple[str, ...] = ()


def judge_run(
    rows: Sequence[SampleRow],
    *,
    at_least: float | None = None,
    compared: Sequence[ArmComparison] = (),
    allow_drop: float = 0.0,
    unread: Sequence[str] = (),
) -> EvalGate:
    """Judge a run by the rules that were asked for; without any, every sample must pass.

    `at_least` is the lowest rate of a model that passes. `compared` is the run beside its baseline: a rate may not be
    lower than there by more than `allow_drop`. `unread` says which scenarios could not be read.
    """
    summaries = summarise(rows)
    not_judged = [*unread, *(_not_judged(each) for each in summaries if not each.is_valid)]
    if not_judged or not summaries:
        return EvalGate(exit_code=NOT_JUDGED, reasons=tuple(not_judged) or ("no scenario was played",))
    # Rounding of a mean of rates must not make an allowed drop a failure.
    worse = [each for each in compared if each.before - each.after > allow_drop + 1e-9]
    reasons = [f"{each.arm}: {each.before:.3f} in the baseline, {each.after:.3f} now" for each in worse]
    if at_least is not None:
        reasons += [
            f"{each.arm}: the rate {write_share(each.rate)} is below --at-least {at_least:g}"
            for each in summaries
            if each.rate is not None and each.rate < at_least
        ]
    elif not compared:
        reasons += [_failed(each) for each in summaries if each.passed < each.judged]
    return EvalGate(exit_code=FAILED if reasons else PASSED, reasons=tuple(reasons))


def write_failures(rows: Sequence[SampleRow]) -> str:
    """Write a line for each scenario that did not pass: how often, and why the first time."""
    lines: list[str] = []
    for group in by(rows, lambda row: f"{row.arm}\n{row.scenario}").values():
        bad = [row for row in group if row.outcome != "pass"]
        if not bad:
            continue
        outcome = "failed" if any(row.outcome == "fail" for row in bad) else "broken"
        reason = " ".join(bad[0].reason.split())[:REASON_CHARS_MAX] or "no reason was recorded"
        lines.append(f"{outcome}  {bad[0].arm}  {bad[0].scenario}  {len(bad)} of {len(group)}: {reason}\n")
    if len(lines) > FAILURES_MAX:
        lines[FAILURES_MAX:] = [f"and {len(lines) - FAILURES_MAX} more; report.html has all of them\n"]
    return "".join(lines)


def _not_judged(each: ArmSummary) -> str:
    return f"{each.arm}: {each.broken} of {each.samples} samples could not be judged"


def _failed(each: ArmSummary) -> str:
    return f"{each.arm}: {each.judged - each.passed} of {each.judged} samples failed"
