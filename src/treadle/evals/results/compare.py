"""Compares two runs: gains and losses first, then the rates, paired by scenario. Does no I/O.

Runs with different scenarios or graders are not compared, since their numbers mean different things.
"""

from collections.abc import Sequence

import msgspec

from treadle.core.errors import Conflict
from treadle.evals.results.fingerprint import COMPARED
from treadle.evals.results.result_folder import EvalRunInfo
from treadle.evals.results.sample_rows import SampleRow, by, counts
from treadle.evals.results.statistics import holm, mcnemar, scenario_mean, sign_flip

_ALPHA = 0.05


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """How the rate of one scenario changed."""

    scenario: str
    before: float
    after: float


class ArmComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One model in both runs; `p` is corrected where several are compared."""

    arm: str
    gained: tuple[Shift, ...]
    lost: tuple[Shift, ...]
    scenarios: int
    before: float
    after: float
    test: str
    p: float

    @property
    def is_regression(self) -> bool:
        """Return whether it got worse by more than chance explains, or, with one run each, lost anything."""
        return self.after < self.before and (self.p < _ALPHA or self.test == "offline")


def check_comparable(first: EvalRunInfo, second: EvalRunInfo) -> None:
    """Refuse runs whose graders, toolkit or common scenarios differ.

    Raises: Conflict, naming what differs.
    """
    differs = [name for name in COMPARED if first.fingerprints.get(name) != second.fingerprints.get(name)]
    both = first.scenario_fingerprints.keys() & second.scenario_fingerprints.keys()
    changed = sorted(name for name in both if first.scenario_fingerprints[name] != second.scenario_fingerprints[name])
    differs += [f"the scenario {name}" for name in changed[:5]]
    if differs:
        raise Conflict(
            f"the runs cannot be compared, they differ in {', '.join(differs)}",
            param="run",
            hint="--regrade grades both again from their transcripts, by the graders of today",
        )


def compare(first: Sequence[SampleRow], second: Sequence[SampleRow]) -> list[ArmComparison]:
    """Compare the models that are in both; where only one is in each, those two, whatever their names.

    Raises: Conflict, when they have no model, or a model no scenario in common that could be judged: nothing can be
    said then, and least that nothing got worse.
    """
    before, after = by(first, lambda row: row.arm), by(second, lambda row: row.arm)
    pairs = [(arm, arm) for arm in before if arm in after]
    if not pairs and len(before) == 1 and len(after) == 1:
        pairs = [(next(iter(before)), next(iter(after)))]
    found = [_compare(old, new, before[old], after[new]) for old, new in pairs]
    if not found:
        names = f"{', '.join(before) or 'none'} and {', '.join(after) or 'none'}"
        raise Conflict(f"the runs have no model in common: {names}", param="run")
    if empty := [each.arm for each in found if not each.scenarios]:
        raise Conflict(f"the runs have no judged scenario of {empty[0]} in common", param="run")
    corrected = holm({each.arm: each.p for each in found})
    return [msgspec.structs.replace(each, p=corrected[each.arm]) for each in found]


def _compare(old: str, new: str, first: Sequence[SampleRow], second: Sequence[SampleRow]) -> ArmComparison:
    was, now = counts(first), counts(second)
    shared = [name for name in was if name in now and was[name][1] and now[name][1]]
    shifts = [
        Shift(scenario=name, before=was[name][0] / was[name][1], after=now[name][0] / now[name][1]) for name in shared
    ]
    gained = tuple(each for each in shifts if each.after > each.before)
    lost = tuple(each for each in shifts if each.after < each.before)
    is_single = all(was[name][1] == now[name][1] == 1 for name in shared)
    if any(row.strategy == "offline" for row in first):
        test, p = "offline", 1.0
    elif is_single:
        test, p = "McNemar, exact", mcnemar(len(gained), len(lost))
    else:
        test, p = "sign flips", sign_flip([each.after - each.before for each in shifts])
    return ArmComparison(
        arm=old if old == new else f"{old} → {new}",
        gained=gained,
        lost=lost,
        scenarios=len(shared),
        before=scenario_mean([was[name] for name in shared]),
        after=scenario_mean([now[name] for name in shared]),
        test=test,
        p=p,
    )


def write_comparison(found: Sequence[ArmComparison]) -> str:
    """Write what was lost and gained, then the rates."""
    lines: list[str] = []
    for each in found:
        lines.append(each.arm)
        lines += [f"  lost    {shift.scenario}  {shift.before:.2f} → {shift.after:.2f}" for shift in each.lost]
        lines += [f"  gained  {shift.scenario}  {shift.before:.2f} → {shift.after:.2f}" for shift in each.gained]
        verdict = "worse" if each.is_regression else "no difference that this many runs could show"
        if each.p < _ALPHA and each.after > each.before:
            verdict = "better"
        elif each.test == "offline" and each.after >= each.before:
            verdict = "better" if each.after > each.before else "the same"
        lines.append(
            f"  {each.scenarios} scenarios: {each.before:.3f} → {each.after:.3f}, "
            f"{'' if each.test == 'offline' else f'p = {each.p:.3f} ({each.test}): '}{verdict}"
        )
    return "\n".join([*lines, ""])
