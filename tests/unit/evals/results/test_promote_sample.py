"""Promoting: a sample of a live run becomes a scenario that plays offline and passes."""

import pytest

from treadle.core.errors import RequestError
from treadle.evals.graders import GraderEvidence
from treadle.evals.offline_runner import Play, play, play_whole
from treadle.evals.results.promote_sample import promote
from treadle.evals.results.sample_rows import row_of
from treadle.evals.scenario_file import find_scenarios, load_scenario, read_scenario
from treadle.evals.transcript import Transcript
from unit.evals.results.samples import SCENARIO, row

NAMES = ["recover_unknown", "recover_json", "state_precondition", "limits_rounds", "select_among_3", "wire_mixed", "facts_stale"]  # fmt: skip # noqa: E501


@pytest.mark.parametrize("name", NAMES)
async def test_what_happened_plays_again_and_passes(name: str) -> None:
    """World, tools and limits stay; what the model said is the script, what came of it is expected."""
    scenario = load_scenario(next(path for path in find_scenarios() if path.stem == name))
    played = await play_whole(scenario, Play())
    assert played.evidence is not None
    text = promote(row_of(played.sample), scenario, played.evidence)
    promoted = read_scenario(text)
    sample = await play(promoted)
    assert (sample.outcome, sample.reason) == ("pass", "")
    assert (promoted.world, promoted.tools) == (scenario.world, scenario.tools)
    assert "live" not in promoted.tags


def test_the_title_says_what_failed() -> None:
    """And whose sample it was; one that said nothing cannot be promoted."""
    failed = row("a.add", "fail", 1, reason="text: says\n nothing")
    with pytest.raises(RequestError, match="has nothing that the model said"):
        promote(failed, SCENARIO, GraderEvidence(transcript=Transcript()))
