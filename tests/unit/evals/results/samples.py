"""Rows and runs made by hand, for tests of what is done with them."""

from pathlib import Path
from typing import Any

from treadle.evals.graders import GraderEvidence, GraderVerdict
from treadle.evals.results.result_folder import EvalRunInfo, RunFolder
from treadle.evals.results.sample_rows import SampleRow
from treadle.evals.scenario_file import Scenario, read_scenario
from unit.evals.journals import answered, call, said, transcript

SCENARIO = read_scenario("""
id = "a.add"
title = "It adds"
tags = ["live"]
tools = ["add"]
[[turn]]
user = "1 + 2?"
[[script]]
calls = [{ name = "add", args = { a = 1, b = 2 } }]
[[script]]
text = "It is 3."
[[expect]]
text = { contains = ["3"] }
""")
EVIDENCE = GraderEvidence(
    transcript=transcript(*answered(call("add", "c1", a=1, b=2), "3"), said("It is 3.")), setting="live"
)


def row(scenario: str, outcome: str = "pass", trial: int = 1, /, **values: Any) -> SampleRow:
    """Return a live sample."""
    reason = "" if outcome == "pass" else "text: says nothing"
    verdicts = (
        GraderVerdict(grader="text", passed=outcome == "pass", reason="as expected" if outcome == "pass" else "no"),
    )
    given = {"model": "m", "strategy": "full", "reason": reason, "verdicts": verdicts, **values}
    key = f"{given['model']}.{given['strategy']}.{scenario}.{trial}"
    return SampleRow(key=key, scenario=scenario, outcome=outcome, trial=trial, **given)  # type: ignore[arg-type]


def info(*scenarios: Scenario, **values: Any) -> EvalRunInfo:
    """Return what a run was."""
    prints = {each.id: f"fp-{each.id}" for each in scenarios}
    fingerprints = {"graders": "g", "toolkit": "t", "treadle": "0"}
    return EvalRunInfo(
        **{
            "name": "test",
            "mode": "live",
            "fingerprints": fingerprints,
            "scenario_fingerprints": prints,
            "scenarios": scenarios,
            **values,
        }
    )


def folder(path: Path, *rows: SampleRow, **values: Any) -> RunFolder:
    """Write a run with these samples, each with the same transcript."""
    made = RunFolder(path)
    made.create(info(SCENARIO, **values))
    for each in rows:
        made.add(each, None if each.outcome == "broken" else EVIDENCE)
    return made
