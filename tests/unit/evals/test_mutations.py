"""The suite notices: each way of breaking the loop makes the scenario fail that was written for it."""

import logging

import pytest

from rules.tree import ROOT
from treadle.evals.offline_runner import play
from treadle.evals.scenario_file import find_scenarios, load_scenario
from unit.evals.mutations import MUTATIONS

SCENARIOS = {scenario.id: scenario for scenario in map(load_scenario, find_scenarios())}


@pytest.mark.parametrize("name", MUTATIONS)
async def test_a_broken_loop_fails_the_scenario_that_is_named_for_it(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It passes as it is, and fails, by the grader that is named, once the loop is broken."""
    caplog.set_level(logging.CRITICAL)
    mutation = MUTATIONS[name]
    scenario = SCENARIOS[mutation.scenario]
    whole = await play(scenario)
    assert (whole.outcome, whole.reason) == ("pass", "")
    mutation.how(monkeypatch)
    broken = await play(scenario)
    assert broken.outcome == "fail"
    assert mutation.grader in {verdict.grader for verdict in broken.verdicts if not verdict.passed}


def test_the_document_names_them_all() -> None:
    """docs/evals.md says what was broken and what noticed."""
    text = (ROOT / "docs" / "evals.md").read_text(encoding="utf-8")
    assert [
        name for name, each in MUTATIONS.items() if f"| {name} |" not in text or f"`{each.scenario}`" not in text
    ] == []
