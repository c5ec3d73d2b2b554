"""The table of a run for a terminal: one line for each model, with its interval and what the runs can detect."""

from collections.abc import Sequence

import msgspec

from treadle.evals.results.sample_rows import OFFLINE_STRATEGY, SampleRow, by, counts
from treadle.evals.results.statistics import (
    cluster_bootstrap,
    detectable_drop,
    mean_pass_hat,
    percentile,
    scenario_mean,
    wilson,
    zero_failures_bound,
)

PASS_K = 4
BROKEN_SHARE_MAX = 0.02
"""Above this share of broken samples the run says nothing."""
_QUIRKS_SHOWN = 3
_HELP = ("offline", "bare", "repair", "full")


class ArmSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the samples of one model (and strategy) come to. Rates count what could be judged."""

    arm: str
    model: str
    strategy: str
    scenarios: int
    samples: int
    broken: int
    passed: int
    rate: float | None
    wilson: tuple[float, float]
    mean: float | None
    mean_interval: tuple[float, float]
    pass_hat: float | None
    pass_k: int
    calls_mean: float
    tokens_per_pass: float | None
    usd_per_pass: float | None
    usd_total: float | None
    seconds_p50: float
    seconds_p95: float
    detectable: float | None
    quirks: dict[str, int] = {}

    @property
    def judged(self) -> int:
        """Return how many samples could be judged."""
        return self.samples - self.broken

    @property
    def is_valid(self) -> bool:
        """Return whether few enough samples were broken for the rest to say something.

        Offline nothing may break: there is no network and no provider to blame.
        """
        share = 0.0 if self.strategy == OFFLINE_STRATEGY else BROKEN_SHARE_MAX
        return self.samples > 0 and self.broken <= share * self.samples


def summarise(rows: Sequence[SampleRow]) -> list[ArmSummary]:
    """Return the summary of each model and strategy, strategies from the least help to the most."""
    found = [_summary(arm, group) for arm, group in by(rows, lambda row: row.arm).items()]
    return sorted(found, key=lambda each: (each.model, _HELP.index(each.strategy) if each.strategy in _HELP else 0))


def _summary(arm: str, rows: Sequence[SampleRow]) -> ArmSummary:
    tally = list(counts(rows).values())
    judged = [row for row in rows if row.outcome != "broken"]
    passed = [row for row in judged if row.outcome == "pass"]
    costs = [row.cost_usd for row in rows if row.cost_usd is not None]
    tokens = sum(row.input_tokens + row.output_tokens for row in judged)
    pass_k = min([PASS_K, *(runs for _, runs in tally if runs)])
    rate = len(passed) / len(judged) if judged else None
    quirks: dict[str, int] = {}
    for row in rows:
        for name, count in row.quirks.items():
            quirks[name] = quirks.get(name, 0) + count
    return ArmSummary(
        arm=arm,
        model=rows[0].model,
        strategy=rows[0].strategy,
        scenarios=len(tally),
        samples=len(rows),
        broken=len(rows) - len(judged),
        passed=len(passed),
        rate=rate,
        wilson=wilson(len(passed), len(judged)),
        mean=scenario_mean(tally) if judged else None,
        mean_interval=cluster_bootstrap(tally),
        pass_hat=mean_pass_hat(tally, pass_k),
        pass_k=pass_k,
        calls_mean=sum(row.calls for row in judged) / len(judged) if judged else 0.0,
        tokens_per_pass=tokens / len(passed) if passed and tokens else None,
        usd_per_pass=sum(costs) / len(passed) if passed and costs else None,
        usd_total=sum(costs) if costs else None,
        seconds_p50=percentile([row.duration_s for row in judged], 0.5),
        seconds_p95=percentile([row.duration_s for row in judged], 0.95),
        detectable=None if rate is None else detectable_drop(rate, len(judged)),
        quirks=dict(sorted(quirks.items(), key=lambda pair: (-pair[1], pair[0]))),
    )


def write_summary(rows: Sequence[SampleRow]) -> str:
    """Write the table: never a rate without its interval and the number of runs."""
    summaries = summarise(rows)
    if not summaries:
        return "nothing was run\n"
    head = ["model", "scen", "trials", "pass", "rate [95% Wilson]", "pass^k", "calls", "tok/ok", "$/ok", "p50/p95 s"]
    lines = [[*head, "broken", "quirks"], *(_cells(each) for each in summaries)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*table, "", *(_interpretation(each) for each in summaries), ""])


def _cells(each: ArmSummary) -> list[str]:
    quirks = ", ".join(f"{name} {count}" for name, count in list(each.quirks.items())[:_QUIRKS_SHOWN])
    return [
        each.arm,
        str(each.scenarios),
        str(each.judged),
        str(each.passed),
        _interval(each.rate, each.wilson),
        "–" if each.pass_hat is None else f"{write_share(each.pass_hat)} k={each.pass_k}",
        f"{each.calls_mean:.1f}" if each.judged else "–",
        "–" if each.tokens_per_pass is None else _thousands(each.tokens_per_pass),
        "–" if each.usd_per_pass is None else f"{each.usd_per_pass:.4f}",
        f"{each.seconds_p50:.1f}/{each.seconds_p95:.1f}" if each.judged else "–",
        str(each.broken),
        quirks or "–",
    ]


def _interpretation(each: ArmSummary) -> str:
    """Return what one model's numbers show and do not show."""
    parts = [f"{each.arm}: mean over scenarios {_interval(each.mean, each.mean_interval)}"]
    if each.mean is None:
        parts = [f"{each.arm}: nothing could be judged"]
    elif each.detectable is None:
        parts.append(f"{each.judged} runs cannot detect any drop (80% power)")
    else:
        parts.append(f"{each.judged} runs can detect a drop of {each.detectable * 100:.1f} points or more (80% power)")
    if each.judged and each.passed == each.judged:
        bound = zero_failures_bound(each.judged)
        parts.append(f"no failure in {each.judged}: the failure rate is below {bound * 100:.1f}%")
    if not each.is_valid:
        parts.append(f"INVALID: {each.broken} of {each.samples} samples are broken, more than 2%")
    return "; ".join(parts)


def write_share(rate: float | None) -> str:
    """Write a rate as .950; a dash where nothing was judged, which is not a rate of zero."""
    if rate is None:
        return "–"
    return f"{rate:.3f}".removeprefix("0") if rate < 1 else "1.00"


def _interval(rate: float | None, bounds: tuple[float, float]) -> str:
    """Write a rate with its interval; where nothing was judged there is neither."""
    if rate is None:
        return write_share(rate)
    return f"{write_share(rate)} [{write_share(bounds[0])},{write_share(bounds[1])}]"


def _thousands(tokens: float) -> str:
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else f"{tokens:.0f}"
