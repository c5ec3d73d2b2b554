import msgspec
import pytest

from treadle.core.tool_definitions import Outcome
from treadle.engine.limits import GATEWAY_LIMITS, Limits, RunBudget, mark_limit, refuse
from unit.engine.fakes import call


def admit(budget: RunBudget, *arguments: str) -> list[bool]:
    """Ask for one call after the other."""
    return [budget.admit(call("f", arguments=text, call_id=f"c{n}")) for n, text in enumerate(arguments)]


def test_calls_past_the_total_do_not_run():
    """The limit is absolute: the call after the last one is refused, and the limit is named."""
    budget = RunBudget(Limits(max_total_tool_calls=2))
    assert admit(budget, "[1]", "[2]", "[3]") == [True, True, False]
    assert (budget.calls, budget.limit) == (2, "max_total_tool_calls")
    assert budget.message() == "Tool call limit reached (2). Stopping tool loop."


def test_a_clients_own_maximum_counts_if_it_is_lower():
    """`max_tool_calls` of a request narrows the limit and never widens it."""
    narrow, wide = RunBudget(Limits(max_total_tool_calls=2), 1), RunBudget(Limits(max_total_tool_calls=1), 9)
    assert admit(narrow, "[1]", "[2]") == [True, False]
    assert admit(wide, "[1]", "[2]") == [True, False]
    assert (narrow.limit, wide.limit) == ("max_tool_calls", "max_total_tool_calls")
    equal = RunBudget(Limits(max_total_tool_calls=1), 1)
    assert admit(equal, "[1]", "[2]") == [True, False]
    assert equal.limit == "max_total_tool_calls"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (['{"a":1}', '{ "a" : 1 }', '{"a":1}', '{"a":1}'], [True, True, True, False]),
        (['{"a":1}', '{"a":2}', '{"a":1}', '{"a":2}'], [True, True, True, True]),
        (["", "{}", " ", "{}"], [True, True, True, False]),
        (["oops", "oops", "oops", "oops"], [True, True, True, False]),
        (["oops1", "oops2", "oops3", "oops4"], [True, True, True, True]),
    ],
)
def test_the_same_call_again_and_again_is_stopped(arguments: list[str], expected: list[bool]):
    """Three identical calls in a row may run, a fourth may not; spelling does not matter, and others between do."""
    budget = RunBudget(Limits(identical_repeats_max=3))
    assert admit(budget, *arguments) == expected


def test_the_third_identical_call_ends_the_loop():
    """The limit is reached with the last call that may run, so that the model is asked for an answer."""
    budget = RunBudget(Limits(identical_repeats_max=3))
    admit(budget, "{}", "{}", "{}")
    assert budget.limit == "identical_repeats"
    none = RunBudget(Limits(identical_repeats_max=0))
    assert admit(none, "{}") == [False]
    assert none.limit == "identical_repeats"


def test_the_last_round_names_its_limit():
    """A round that reaches max_iterations says so in S3's words."""
    budget = RunBudget(Limits(max_iterations=3))
    for _ in range(3):
        budget.rounds += 1
    budget.end_round()
    assert budget.message() == "Tool call limit reached (3). Stopping tool loop."


def test_an_object_result_gains_the_fields_of_s3():
    """`limit_reached` and `limit_message` stand beside what the tool gave."""
    marked = mark_limit(Outcome(text='{"output":"a","count":1}'), "Tool call limit reached (3). Stopping tool loop.")
    assert msgspec.json.decode(marked.text) == {
        "output": "a",
        "count": 1,
        "limit_reached": True,
        "limit_message": "Tool call limit reached (3). Stopping tool loop.",
    }


def test_a_text_result_gains_a_line():
    """Text stays text."""
    assert mark_limit(Outcome(text="18 degrees"), "Stop.").text == "18 degrees\n\n[limit_reached] Stop."


def test_a_refused_call_reads_as_an_error():
    """The model reads that the call did not run, and why."""
    outcome = refuse("Stop.")
    assert msgspec.json.decode(outcome.text) == {"error": {"code": "limit_reached", "message": "Not run. Stop."}}
    assert (outcome.rc, outcome.is_error) == ("limit_reached", True)


def test_a_run_may_use_so_much_if_nobody_says_otherwise():
    """The defaults are the documented ones, and those of the gateway."""
    assert (
        GATEWAY_LIMITS
        == Limits()
        == Limits(
            max_iterations=8,
            max_total_tool_calls=32,
            identical_repeats_max=3,
            wall_s=600.0,
            final_answer_s=60.0,
            strict_unknown_tool=False,
            recovered_effects="ask",
            taint="ask",
            approvals="wait",
        )
    )
