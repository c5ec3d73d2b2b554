"""Reports: the same result as a table, as JSON and as JUnit."""

import json
import xml.etree.ElementTree as ElementTree

from treadle.evals.graders import GRADER_VERSION, GraderVerdict
from treadle.evals.suite_report import SuiteResult, SuiteSample, write_json, write_junit, write_table

GOOD = GraderVerdict(grader="calls", passed=True, reason="as expected")
BAD = GraderVerdict(grader="state", passed=False, reason="/draft/foo: expected 1, got <nothing> \x00")

PASSED = (
    SuiteSample(scenario="a.good", title="Good", chunk_bytes=1, verdicts=(GOOD,), calls=2, rounds=1, duration_s=0.25),
    SuiteSample(scenario="a.good", title="Good", verdicts=(GOOD,), calls=2, rounds=1, duration_s=0.25),
)
FAILED = (
    SuiteSample(scenario="b.bad", chunk_bytes=1, verdicts=(GOOD, BAD)),
    SuiteSample(scenario="b.bad", verdicts=(GOOD,)),
)
BROKEN = (SuiteSample(scenario="c.broken", broken="x.toml: unknown field `agrs`"),)
ALL = SuiteResult(samples=(*PASSED, *FAILED, *BROKEN), duration_s=1.5)


def test_a_sample_passes_only_when_something_was_graded_and_all_of_it_passed() -> None:
    """No verdict at all is broken, never a pass."""
    outcomes = [sample.outcome for sample in (*PASSED, *FAILED, *BROKEN, SuiteSample(scenario="d.empty"))]
    assert outcomes == ["pass", "pass", "fail", "pass", "broken", "broken"]
    assert SuiteSample(scenario="d.empty").reason == "nothing was graded"
    assert FAILED[0].reason == "state: /draft/foo: expected 1, got <nothing> \x00"


def test_what_a_judge_says_never_decides() -> None:
    """An opinion is shown, and is not in the headline."""
    opinion = GraderVerdict(grader="judge", passed=False, reason="rude")
    assert SuiteSample(scenario="a.b", verdicts=(GOOD, opinion)).outcome == "pass"


def test_the_exit_code_says_the_worst() -> None:
    """0 passed, 1 failed, 2 could not be judged, which an empty suite cannot either."""
    suites = [PASSED, FAILED, (*PASSED, *FAILED), (*FAILED, *BROKEN), ()]
    assert [SuiteResult(samples=samples).exit_code for samples in suites] == [0, 1, 1, 2, 2]


def test_the_table_has_a_line_for_each_scenario_and_the_reasons_below() -> None:
    """The worst cut decides; what failed says why."""
    assert write_table(ALL).splitlines() == [
        "scenario  result  plays  calls  rounds      ms",
        "a.good    pass        2      2       1     500",
        "b.bad     fail        2      0       0       0",
        "    chat, cut 1: state: /draft/foo: expected 1, got <nothing> \x00",
        "c.broken  broken      1      0       0       0",
        "    chat, whole: x.toml: unknown field `agrs`",
        "3 scenarios, 5 plays in 1.5 s: 1 passed, 1 failed, 1 broken",
    ]


def test_the_table_of_nothing_says_so() -> None:
    """An empty suite is not a silent success."""
    assert write_table(SuiteResult(samples=())).splitlines()[-1] == "0 scenarios, 0 plays in 0.0 s: nothing"


def test_json_holds_every_sample_with_its_outcome_and_verdicts() -> None:
    """A program needs no rule of ours to know what passed."""
    document = json.loads(write_json(SuiteResult(samples=(FAILED[0],), duration_s=0.5)))
    assert document == {
        "exit_code": 1,
        "grader_version": GRADER_VERSION,
        "duration_s": 0.5,
        "samples": [
            {
                "scenario": "b.bad",
                "title": "",
                "protocol": "chat",
                "chunk_bytes": 1,
                "verdicts": [
                    {"grader": "calls", "passed": True, "reason": "as expected"},
                    {"grader": "state", "passed": False, "reason": BAD.reason},
                ],
                "broken": None,
                "calls": 0,
                "rounds": 0,
                "duration_s": 0.0,
                "outcome": "fail",
                "reason": f"state: {BAD.reason}",
            }
        ],
    }


def test_junit_has_a_case_for_each_scenario() -> None:
    """A failed scenario is a failure, a broken one an error; what XML cannot hold is replaced."""
    suite = ElementTree.fromstring(write_junit(ALL))
    assert suite.attrib == {
        "name": "treadle.evals",
        "tests": "3",
        "failures": "1",
        "errors": "1",
        "time": "1.500",
    }
    told = {case.get("name"): [(child.tag, child.text) for child in case] for case in suite}
    assert told == {
        "a.good": [],
        "b.bad": [("failure", "chat, cut 1: state: /draft/foo: expected 1, got <nothing> �")],
        "c.broken": [("error", "chat, whole: x.toml: unknown field `agrs`")],
    }
