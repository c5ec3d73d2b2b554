"""The invariants of a journal: each one broken by hand is found."""

import msgspec
import pytest

from treadle.core.events import RunStarted
from treadle.core.items import CallItem, text_result
from treadle.evals.journal_invariants import log_problems
from treadle.evals.transcript import PlayedRun, Transcript
from unit.evals.journals import PLAN, answered, call, ended, play, said

ONE, TWO = call("add", "c1"), call("add", "c2")
GOOD = play(ONE, TWO, text_result(ONE, "1"), text_result(TWO, "2"), PLAN, said("done"), ended())


def problems(run: PlayedRun) -> list[str]:
    """Return what is wrong with a transcript of this run."""
    return log_problems(Transcript(runs=(run,)))


def test_a_good_journal_has_no_problem() -> None:
    """Two calls, two results in order, an answer, one end."""
    assert problems(GOOD) == []


def test_a_client_call_needs_no_result() -> None:
    """The client answers it, in the next request."""
    asked = CallItem(call_id="c9", name="ask", arguments="{}", side="client")
    assert problems(play(asked, ended(status="requires_action"))) == []


NO_RESULT = play(ONE, PLAN, said("done"), ended())
SWAPPED = play(ONE, TWO, text_result(TWO, "2"), text_result(ONE, "1"), ended())
TWICE = play(*answered(ONE), text_result(ONE, "again"), ended())
LATE = play(ONE, PLAN, text_result(ONE, "1"), ended())
BROKEN = [
    (NO_RESULT, ["run 1: the calls ['c1'] have the results []"]),
    (SWAPPED, ["run 1: the calls ['c1', 'c2'] have the results ['c2', 'c1']"]),
    (TWICE, ["run 1: the calls ['c1'] have the results ['c1', 'c1']"]),
    (LATE, ["run 1: the calls ['c1'] have the results []", "run 1: the calls [] have the results ['c1']"]),
    (play(said("done")), ["run 1: there must be one end, and last; found 0"]),
    (play(ended(), ended()), ["run 1: there must be one end, and last; found 2"]),
    (play(ended(), said("more")), ["run 1: there must be one end, and last; found 1"]),
]


@pytest.mark.parametrize(("run", "expected"), BROKEN)
def test_a_broken_journal_is_found_out(run: PlayedRun, expected: list[str]) -> None:
    """A missing, swapped, doubled or late result, and no end, two ends or something after it."""
    assert problems(run) == expected


def test_a_gap_in_the_numbers_is_found_out() -> None:
    """Entries are numbered 1, 2, 3 and so on."""
    gap = msgspec.structs.replace(GOOD.entries[-1], seq=99)
    run = PlayedRun(entries=(*GOOD.entries[:-1], gap))
    assert problems(run) == ["run 1: entries are not numbered 1, 2, 3 …: [1, 2, 3, 4, 5, 6, 7, 99]"]


def test_the_end_is_told_once_and_last() -> None:
    """Whoever listened must have heard exactly one terminal event, after everything else."""
    start = RunStarted(run_id="r", response_id="p", model="m", created_at=0.0)
    told = {
        (start, ended()): [],
        (start,): ["run 1: one terminal event must be told, and last; 0 were"],
        (ended(), ended()): ["run 1: one terminal event must be told, and last; 2 were"],
        (ended(), start): ["run 1: one terminal event must be told, and last; 1 were"],
    }
    assert {events: problems(play(ended(), events=events)) for events in told} == told


def test_nothing_played_is_a_problem() -> None:
    """An empty transcript proves nothing."""
    assert log_problems(Transcript()) == ["there is no run"]
