"""A transcript: what can be read of a scenario from the journals of its runs alone."""

import msgspec

from treadle.core.items import text_message, text_result
from treadle.core.journal_entries import entry_of_item
from treadle.evals.transcript import MadeCall, Transcript, codes_of
from unit.evals.journals import PLAN, answered, call, ended, play, said, tool, transcript


def test_calls_come_with_their_results_in_the_order_they_were_made() -> None:
    """Two calls, the first answered last."""
    first, second = call("add", "c1", a=1), call("add", "c2", a=2)
    seen = transcript(first, second, text_result(second, "two"), text_result(first, "one")).calls
    assert seen == [
        MadeCall(name="add", arguments='{"a":1}', call_id="c1", side="server", output="one", codes=("ok",)),
        MadeCall(name="add", arguments='{"a":2}', call_id="c2", side="server", output="two", codes=("ok",)),
    ]


def test_a_call_without_a_result_has_no_output() -> None:
    """An open call is still a call."""
    assert transcript(call("add", "c1")).calls[0].output is None


def test_what_the_user_sent_is_not_what_the_model_did() -> None:
    """Calls in the input belong to an earlier conversation, and so do its answers."""
    old = entry_of_item(call("add", "c0"), at=0.0, is_input=True)
    spoken = entry_of_item(text_message("assistant", "earlier"), at=0.0, is_input=True)
    seen = transcript(old, spoken)
    assert (seen.calls, seen.answer, seen.marks) == ([], "", ["status:completed"])


def test_the_answer_is_what_was_said_last() -> None:
    """Over all runs."""
    first, second = play(said("one"), ended()), play(said("two"), said("three"), ended())
    assert Transcript(runs=(first, second)).answer == "three"


def test_rounds_are_summed_over_the_runs() -> None:
    """As the runs themselves counted them."""
    assert Transcript(runs=(play(ended(rounds=2)), play(ended(rounds=3)))).rounds == 5


def test_marks_name_calls_results_limits_and_ends_in_order() -> None:
    """Each thing that a milestone can name, as it happened."""
    failed = answered(call("add", "c1"), '{"error":{"code":"NO_DICE","message":"x"}}', rc="failed")
    run = play(*failed, PLAN, *answered(call("add", "c2")), ended(limit="max_iterations"))
    assert Transcript(runs=(run,)).marks == [
        "call:add",
        "call:add failed",
        "result:failed",
        "call:add NO_DICE",
        "result:NO_DICE",
        "call:add",
        "call:add ok",
        "result:ok",
        "limit:max_iterations",
        "status:completed",
    ]


def test_a_result_has_the_code_of_treadle_and_the_one_told_to_the_model() -> None:
    """Only an error object at the top of the text counts, and the same code is not named twice."""
    made = call("add", "c1")
    texts = {
        '{"error":{"code":"X"}}': ("failed", "X"),
        '{"error":{"code":"failed"}}': ("failed",),
        '{"error":"text"}': ("failed",),
        '[{"error":{"code":"X"}}]': ("failed",),
        "no JSON": ("failed",),
        '{"error":{"code":1}}': ("failed",),
    }
    assert {text: codes_of(text_result(made, text, is_error=True, rc="failed")) for text in texts} == texts


def test_a_tool_nobody_knows_counts_as_writing() -> None:
    """Only a tool that is known to read is free."""
    seen = Transcript(tools=(tool("get", effect="read"),))
    assert (seen.effect_of("get"), seen.effect_of("invented")) == ("read", "write")


def test_a_transcript_survives_json() -> None:
    """Stored transcripts are graded again, so nothing may be lost on the way."""
    before = transcript(*answered(call("add", "c1", a=1)), said("done"))
    after = msgspec.json.decode(msgspec.json.encode(before), type=Transcript)
    assert (after.calls, after.marks, after.answer) == (before.calls, before.marks, before.answer)
