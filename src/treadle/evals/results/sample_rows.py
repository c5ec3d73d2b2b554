"""The rows of a run of scenarios: one for each sample, offline or live, and counts over them. Does no I/O."""

from collections.abc import Callable, Sequence

import msgspec

from treadle.evals.graders import NEVER_HEADLINE, GraderVerdict
from treadle.evals.suite_report import Outcome, SuiteSample

OFFLINE_MODEL = "script"
OFFLINE_STRATEGY = "offline"


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt at a live sample: how it ended, and what it cost. Only failures of the transport are tried again."""

    ended: str
    error: str = ""
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    duration_s: float = 0.0


class SampleRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sample. `key` names it in the run; its transcript has the same name. `quirks` are counted symptoms."""

    key: str
    scenario: str
    outcome: Outcome
    model: str = OFFLINE_MODEL
    strategy: str = OFFLINE_STRATEGY
    trial: int = 1
    title: str = ""
    protocol: str = ""
    chunk_bytes: int | None = None
    reason: str = ""
    verdicts: tuple[GraderVerdict, ...] = ()
    calls: int = 0
    rounds: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    duration_s: float = 0.0
    quirks: dict[str, int] = {}
    attempts: tuple[Attempt, ...] = ()

    @property
    def arm(self) -> str:
        """Return what is compared: the model, with the strategy where that is not the usual one."""
        usual = (OFFLINE_STRATEGY, "full")
        return self.model if self.strategy in usual else f"{self.model} ({self.strategy})"


def row_of(sample: SuiteSample) -> SampleRow:
    """Return an offline sample as a row; without the time it took, which is never the same."""
    cut = "whole" if sample.chunk_bytes is None else str(sample.chunk_bytes)
    return SampleRow(
        key=f"{sample.scenario}.{sample.protocol}.{cut}",
        scenario=sample.scenario,
        outcome=sample.outcome,
        title=sample.title,
        protocol=sample.protocol,
        chunk_bytes=sample.chunk_bytes,
        reason=sample.reason,
        verdicts=sample.verdicts,
        calls=sample.calls,
        rounds=sample.rounds,
    )


def regraded(row: SampleRow, verdicts: Sequence[GraderVerdict]) -> SampleRow:
    """Return a row with other verdicts, and the outcome they make."""
    counted = [each for each in verdicts if each.grader not in NEVER_HEADLINE]
    bad = [each for each in counted if not each.passed]
    return msgspec.structs.replace(
        row,
        verdicts=tuple(verdicts),
        outcome="broken" if not counted else "fail" if bad else "pass",
        reason="; ".join(f"{each.grader}: {each.reason}" for each in bad),
    )


def by(rows: Sequence[SampleRow], name: Callable[[SampleRow], str]) -> dict[str, list[SampleRow]]:
    """Group rows, in the order of their first appearance."""
    grouped: dict[str, list[SampleRow]] = {}
    for row in rows:
        grouped.setdefault(name(row), []).append(row)
    return grouped


def counts(rows: Sequence[SampleRow]) -> dict[str, tuple[int, int]]:
    """Return for each scenario how many of its samples passed, and how many could be judged."""
    return {
        scenario: (
            sum(row.outcome == "pass" for row in group),
            sum(row.outcome != "broken" for row in group),
        )
        for scenario, group in by(rows, lambda row: row.scenario).items()
    }
