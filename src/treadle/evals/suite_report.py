"""Reports of a suite: a plain table for terminals, JSON for programs, JUnit for CI. Does no I/O."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.evals.graders import GRADER_VERSION, NEVER_HEADLINE, GraderVerdict
from treadle.protocols.protocol_registry import CHAT

Outcome = Literal["pass", "fail", "broken"]
_WORST_FIRST: tuple[Outcome, ...] = ("broken", "fail", "pass")
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class SuiteSample(msgspec.Struct, frozen=True, kw_only=True):
    """One play of one scenario on one upstream protocol, its replies cut at one chunk size (None: whole).

    `broken` says why it could not be judged.
    """

    scenario: str
    title: str = ""
    protocol: str = CHAT
    chunk_bytes: int | None = None
    verdicts: tuple[GraderVerdict, ...] = ()
    broken: str | None = None
    calls: int = 0
    rounds: int = 0
    duration_s: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """Return `broken` when it could not be judged, else what the verdicts say together."""
        if self.broken is not None or not self.verdicts:
            return "broken"
        return "pass" if all(each.passed for each in self.verdicts if each.grader not in NEVER_HEADLINE) else "fail"

    @property
    def reason(self) -> str:
        """Return why it did not pass; empty when it did."""
        if self.outcome == "broken":
            return self.broken or "nothing was graded"
        return "; ".join(f"{verdict.grader}: {verdict.reason}" for verdict in self.verdicts if not verdict.passed)


class SuiteResult(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of a suite, scenario by scenario."""

    samples: tuple[SuiteSample, ...]
    duration_s: float = 0.0
    grader_version: int = GRADER_VERSION

    @property
    def exit_code(self) -> int:
        """Return 0 when everything passed, 2 when something could not be judged (or there was nothing), else 1."""
        outcomes = {sample.outcome for sample in self.samples}
        if "broken" in outcomes or not outcomes:
            return 2
        return 1 if "fail" in outcomes else 0

    def scenarios(self) -> list[tuple[str, list[SuiteSample]]]:
        """Return the samples of each scenario, in the order they were played."""
        grouped: dict[str, list[SuiteSample]] = {}
        for sample in self.samples:
            grouped.setdefault(sample.scenario, []).append(sample)
        return list(grouped.items())


def write_table(result: SuiteResult) -> str:
    """Write one line for each scenario, the reasons below those that did not pass, and a last line that sums up."""
    grouped = result.scenarios()
    width = max([len("scenario"), *(len(name) for name, _ in grouped)])
    lines = [f"{'scenario':<{width}}  {'result':<6}  {'plays':>5}  {'calls':>5}  {'rounds':>6}  {'ms':>6}"]
    for name, samples in grouped:
        counts = f"{len(samples):>5}  {samples[0].calls:>5}  {samples[0].rounds:>6}  {_total_ms(samples):>6.0f}"
        lines.append(f"{name:<{width}}  {_worst(samples):<6}  {counts}")
        lines += [f"    {_place(sample)}: {sample.reason}" for sample in samples if sample.outcome != "pass"]
    return "\n".join([*lines, _sum(result), ""])


def write_json(result: SuiteResult) -> bytes:
    """Write everything, with the outcomes spelled out."""
    samples = [
        {**msgspec.to_builtins(sample), "outcome": sample.outcome, "reason": sample.reason} for sample in result.samples
    ]
    document = {
        "exit_code": result.exit_code,
        "grader_version": result.grader_version,
        "duration_s": result.duration_s,
        "samples": samples,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def write_junit(result: SuiteResult) -> str:
    """Write one test case for each scenario: a failed one is a failure, a broken one an error."""
    grouped = result.scenarios()
    worst = [_worst(samples) for _, samples in grouped]
    suite = ElementTree.Element(
        "testsuite",
        name="treadle.evals",
        tests=str(len(grouped)),
        failures=str(worst.count("fail")),
        errors=str(worst.count("broken")),
        time=f"{result.duration_s:.3f}",
    )
    for (name, samples), outcome in zip(grouped, worst, strict=True):
        case = ElementTree.SubElement(
            suite, "testcase", classname="treadle.evals", name=_xml(name), time=f"{_total_ms(samples) / 1000:.3f}"
        )
        if outcome != "pass":
            told = ElementTree.SubElement(case, "failure" if outcome == "fail" else "error", message=outcome)
            reasons = (f"{_place(sample)}: {sample.reason}" for sample in samples if sample.outcome != "pass")
            told.text = _xml("\n".join(reasons))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _worst(samples: Sequence[SuiteSample]) -> Outcome:
    outcomes = {sample.outcome for sample in samples}
    return next(outcome for outcome in _WORST_FIRST if outcome in outcomes)


def _place(sample: SuiteSample) -> str:
    return f"{sample.protocol}, {'whole' if sample.chunk_bytes is None else f'cut {sample.chunk_bytes}'}"


def _total_ms(samples: Sequence[SuiteSample]) -> float:
    return sum(sample.duration_s for sample in samples) * 1000


def _sum(result: SuiteResult) -> str:
    worst = [_worst(samples) for _, samples in result.scenarios()]
    counts = ", ".join(f"{worst.count(outcome)} {word}" for outcome, word in _WORDS.items() if worst.count(outcome))
    return f"{len(worst)} scenarios, {len(result.samples)} plays in {result.duration_s:.1f} s: {counts or 'nothing'}"


_WORDS: dict[Outcome, str] = {"pass": "passed", "fail": "failed", "broken": "broken"}


def _xml(text: str) -> str:
    """Leave out what XML 1.0 cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
