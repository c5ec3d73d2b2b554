"""Statistics of rates: intervals, pass^k, the detectable difference for a number of runs, and paired comparisons.

Does no I/O. Random draws are seeded, so the same numbers give the same interval everywhere.
"""

import math
import random
from collections.abc import Mapping, Sequence

Z_95 = 1.959963984540054
Z_80_POWER = 0.8416212335729143
BOOTSTRAPS = 2_000
PERMUTATIONS = 10_000
EXACT_PAIRS_MAX = 14
"""Up to so many pairs all sign flips are counted, beyond that they are drawn."""


def wilson(passed: float, runs: int, z: float = Z_95) -> tuple[float, float]:
    """Return the Wilson interval of a rate; everything is possible where nothing was run."""
    if runs == 0:
        return 0.0, 1.0
    rate = passed / runs
    weight = 1 + z * z / runs
    centre = (rate + z * z / (2 * runs)) / weight
    half = z * math.sqrt(rate * (1 - rate) / runs + z * z / (4 * runs * runs)) / weight
    return (centre - half if passed > 0 else 0.0), (centre + half if passed < runs else 1.0)


def pass_hat(passed: int, runs: int, k: int) -> float | None:
    """Return the chance that k runs drawn from these all pass; None where there are fewer than k."""
    return None if runs < k else math.comb(passed, k) / math.comb(runs, k)


def mean_pass_hat(counts: Sequence[tuple[int, int]], k: int) -> float | None:
    """Return pass^k as the mean over scenarios, each (passed, runs); None where none has k runs."""
    rates = [rate for passed, runs in counts if (rate := pass_hat(passed, runs, k)) is not None]
    return sum(rates) / len(rates) if rates else None


def scenario_mean(counts: Sequence[tuple[int, int]]) -> float:
    """Return the mean of the rates of scenarios, each of which counts the same however often it was run."""
    rates = [passed / runs for passed, runs in counts if runs]
    return sum(rates) / len(rates) if rates else 0.0


def cluster_bootstrap(counts: Sequence[tuple[int, int]], seed: int = 0) -> tuple[float, float]:
    """Return the 95 % interval of the mean over scenarios, by drawing scenarios: their trials are not independent.

    Where all rates are the same every draw is too, and would say that the mean is certain: then each scenario counts
    as one run, and the interval is Wilson's.
    """
    rates = [passed / runs for passed, runs in counts if runs]
    if len(set(rates)) < 2:
        return wilson(sum(rates), len(rates))
    draw = random.Random(seed)
    means = sorted(sum(draw.choices(rates, k=len(rates))) / len(rates) for _ in range(BOOTSTRAPS))
    return means[int(0.025 * BOOTSTRAPS)], means[int(0.975 * BOOTSTRAPS) - 1]


def runs_needed(before: float, after: float) -> int:
    """Return how many runs each of two arms needs to tell these rates apart (5 %, two-sided, 80 % power)."""
    mean = (before + after) / 2
    spread = Z_95 * math.sqrt(2 * mean * (1 - mean))
    spread += Z_80_POWER * math.sqrt(before * (1 - before) + after * (1 - after))
    return math.ceil((spread / (before - after)) ** 2)


def detectable_drop(rate: float, runs: int) -> float | None:
    """Return the smallest drop from a rate that so many runs in each arm detect; None where none can be.

    A rate of one is treated as slightly less, since the formula would otherwise give zero runs.
    """
    base = min(rate, 1 - 0.5 / max(1, runs))
    for step in range(1, int(base * 1000) + 1):
        drop = step / 1000
        if runs_needed(base, base - drop) <= runs:
            return drop
    return None


def zero_failures_bound(runs: int) -> float:
    """Return below which the failure rate is, with 95 % confidence, when so many runs had no failure."""
    return 1.0 if runs == 0 else 1 - 0.05 ** (1 / runs)


def sign_flip(differences: Sequence[float], seed: int = 0) -> float:
    """Return the p-value of paired differences by flipping their signs: all ways where they are few, else drawn."""
    told = [each for each in differences if each != 0]
    if not told:
        return 1.0
    seen = abs(sum(told)) - 1e-12
    if len(told) <= EXACT_PAIRS_MAX:
        ways = 1 << len(told)
        extreme = sum(
            abs(sum(-each if way >> place & 1 else each for place, each in enumerate(told))) >= seen
            for way in range(ways)
        )
        return extreme / ways
    draw = random.Random(seed)
    extreme = sum(
        abs(sum(each if draw.random() < 0.5 else -each for each in told)) >= seen for _ in range(PERMUTATIONS)
    )
    return (extreme + 1) / (PERMUTATIONS + 1)


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact p-value of pairs that changed: as likely to be gained as lost, if nothing changed."""
    changed = gained + lost
    if changed == 0:
        return 1.0
    tail = sum(math.comb(changed, count) for count in range(min(gained, lost) + 1)) / 2**changed
    return min(1.0, 2 * tail)


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """Return p-values corrected for being several (Holm), under the same names."""
    corrected: dict[str, float] = {}
    worst = 0.0
    for place, (name, value) in enumerate(sorted(values.items(), key=lambda pair: (pair[1], pair[0]))):
        worst = max(worst, min(1.0, value * (len(values) - place)))
        corrected[name] = worst
    return {name: corrected[name] for name in values}


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of them lies, by the nearest rank; zero for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]
