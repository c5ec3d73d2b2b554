"""The stage: clients that leave, processes that die, tools that the client runs, and worlds that stand still."""

import pytest

from treadle.evals.fixed_clock import BEGIN, StillClock, no_sleep
from treadle.evals.offline_runner import Play, play_whole
from treadle.evals.scenario_file import Scenario, read_scenario
from treadle.evals.transcript import Transcript

CLIENT = """
id = "a.b"
title = "T"
[[client_tool]]
name = "ask"
results = [{ output = "blue" }, { error = "nobody is there" }]
[[turn]]
user = "hi"
[[script]]
calls = [{ name = "ask", id = "c1" }]
[[script]]
sees = { contains = "blue" }
calls = [{ name = "ask", id = "c2" }]
[[script]]
sees = { contains = "nobody is there" }
text = "well"
[[expect]]
text = { contains = ["well"] }
"""


CRASH = """
id = "a.c"
title = "T"
tools = ["long.read"]
[[tool]]
name = "look"
effect = "read"
results = [{ output = "blue" }]
[[turn]]
user = "hi"
crash_at = "tool.started"
[[script]]
calls = [{ name = "long.read" }]
[[script]]
sees = { contains = "looked" }
calls = [{ name = "look" }]
[[script]]
sees = { contains = "blue" }
text = "well"
[[expect]]
text = { contains = ["well"] }
"""


async def transcript_of(scenario: Scenario) -> Transcript:
    """Play a scenario that must pass and return its transcript."""
    played = await play_whole(scenario, Play())
    assert (played.sample.outcome, played.sample.reason) == ("pass", "")
    assert played.evidence is not None
    return played.evidence.transcript


async def test_the_client_runs_its_own_tools_run_after_run() -> None:
    """Each time the run ends and waits; the results begin the next one."""
    transcript = await transcript_of(read_scenario(CLIENT))
    assert [end.status for end in transcript.endings] == ["requires_action", "requires_action", "completed"]
    assert [(call.name, call.side, call.output) for call in transcript.calls] == [
        ("ask", "client", "blue"),
        ("ask", "client", "nobody is there"),
    ]


async def test_a_client_that_is_asked_for_ever_breaks_the_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn has an end."""
    from treadle.evals import scenario_playback as stage

    monkeypatch.setattr(stage, "CLIENT_ROUNDS_MAX", 1)
    played = await play_whole(read_scenario(CLIENT), Play())
    assert played.sample.outcome == "broken"
    assert "more than 1 times" in played.sample.reason


async def test_time_stands_still() -> None:
    """Every entry is of the same moment, so that two plays write the same journal."""
    transcript = await transcript_of(read_scenario(CLIENT))
    assert {entry.at for run in transcript.runs for entry in run.entries} == {BEGIN}
    clock = StillClock()
    assert (clock.now(), clock.monotonic()) == (BEGIN, BEGIN)
    await no_sleep(1e9)


async def test_a_crash_goes_on_from_what_was_on_disk() -> None:
    """The second process hears the first reply from the journal, and asks the model only for the next one."""
    scenario = read_scenario(CRASH)
    transcript = await transcript_of(scenario)
    assert [end.status for end in transcript.endings] == ["completed"]
    assert [call.name for call in transcript.calls] == ["long.read", "look"]
