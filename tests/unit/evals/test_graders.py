"""Graders: each passes what it should, and fails with a reason what it should not."""

from typing import Any

import msgspec
import pytest

from treadle.core.events import Noted
from treadle.core.request import Note
from treadle.core.tool_definitions import ToolSpec
from treadle.core.usage import Usage
from treadle.evals.graders import GraderEvidence, GraderVerdict, Opinion, grade
from treadle.evals.scenario_file import Expect, ExpectedCall, ExpectedEnd, ExpectedText
from treadle.evals.transcript import Transcript
from unit.evals.journals import answered, call, ended, play, said, tool, transcript

ADD = answered(call("add", "c1", a=1, b=2), "3")
GOOD = transcript(*ADD, said("It is 3."))


def verdict(expect: Expect, **evidence: Any) -> GraderVerdict:
    """Return the one verdict that was asked for, after the two that are always given."""
    verdicts = grade([expect], GraderEvidence(**{"transcript": GOOD, **evidence}))
    assert [each.grader for each in verdicts[:2]] == ["script", "log"]
    assert len(verdicts) == 3
    return verdicts[2]


def passed(grader: str) -> GraderVerdict:
    """Return the verdict of a grader that has nothing to say."""
    return GraderVerdict(grader=grader, passed=True, reason="as expected")


def failed(grader: str, reason: str) -> GraderVerdict:
    """Return the verdict of a grader that fails for this reason."""
    return GraderVerdict(grader=grader, passed=False, reason=reason)


def test_script_and_log_grade_every_scenario() -> None:
    """Whether anything else is expected or not: what did not fit the script and a broken journal fail it."""
    assert grade([], GraderEvidence(transcript=GOOD)) == [passed("script"), passed("log")]
    open_call = transcript(call("add", "c1"))
    assert grade([], GraderEvidence(transcript=open_call, mismatches=("asked otherwise", "1 turn left"))) == [
        failed("script", "asked otherwise; 1 turn left"),
        failed("log", "run 1: the calls ['c1'] have the results []"),
    ]


def test_one_expectation_may_ask_several_graders() -> None:
    """Each field that is given is graded."""
    expect = Expect(milestones=("call:add",), mines=("call:rm",), calls_max=1, ended=ExpectedEnd())
    names = [each.grader for each in grade([expect], GraderEvidence(transcript=GOOD))]
    assert names == ["script", "log", "milestones", "mines", "budget", "ended"]


def test_calls_let_extra_reading_pass_and_nothing_else() -> None:
    """The lesson of others: a harmless look must not fail a scenario; a write must."""
    expect = Expect(calls=(ExpectedCall(name="add", args={"a": 1, "b": 2}),))
    assert verdict(expect) == passed("calls")
    looked = (*answered(call("get", "c0")), *ADD)
    readable = transcript(*looked, tools=(tool("get", effect="read"),))
    assert verdict(expect, transcript=readable) == passed("calls")
    assert verdict(expect, transcript=transcript(*looked)) == failed(
        "calls", 'expected add({"a":1,"b":2}), got get({})'
    )


def test_an_empty_list_of_calls_expects_none_that_writes() -> None:
    """`calls = []` is an expectation too."""
    assert verdict(Expect(calls=())) == failed("calls", 'expected no more calls, got add({"a":1,"b":2})')


def test_no_calls_means_none() -> None:
    """Also none that only reads."""
    assert verdict(Expect(no_calls=True), transcript=transcript(said("8"))) == passed("no_calls")
    assert verdict(Expect(no_calls=True)) == failed("no_calls", 'expected no call, got add({"a":1,"b":2})')


BEFORE = {"draft": {"foo": "", "n": 1, "list": [1, 2]}, "facts": {}}
STATES: list[tuple[dict[str, Any], Any, str | None]] = [
    ({"state": {"/draft/foo": "bar"}}, {"draft": {**BEFORE["draft"], "foo": "bar"}, "facts": {}}, None),
    ({"state": {}}, BEFORE, None),
    (
        {"state": {"/draft/foo": "bar"}},
        {"draft": {**BEFORE["draft"], "foo": "baz"}, "facts": {}},
        '/draft/foo: expected "bar", got "baz"',
    ),
    ({"state": {"/draft/new": 1}}, BEFORE, "/draft/new: expected 1, got nothing"),
    ({"state": {"/draft/new": 1}}, {"draft": {**BEFORE["draft"], "new": 1}, "facts": {}}, None),
    (
        {"state": {"/draft/n": 1}},
        {"draft": {**BEFORE["draft"], "n": True}, "facts": {}},
        "/draft/n: expected 1, got true",
    ),
    (
        {"state": {"/draft/foo": ""}},
        {**BEFORE, "facts": {"name": "Eve"}},
        'something else changed: from {"draft":{"list":[1,2],"n":1},"facts":{}} '
        'to {"draft":{"list":[1,2],"n":1},"facts":{"name":"Eve"}}',
    ),
    ({"absent": ("/draft/foo",)}, BEFORE, "/draft/foo: expected nothing there"),
    ({"absent": ("/draft/foo",)}, {"draft": {"n": 1, "list": [1, 2]}, "facts": {}}, None),
    (
        {"state": {"/draft/list/2": 3, "/draft/list/10": 11}},
        {"draft": {**BEFORE["draft"], "list": list(range(1, 12))}, "facts": {}},
        'something else changed: from {"draft":{"foo":"","list":[1,2],"n":1},"facts":{}} '
        'to {"draft":{"foo":"","list":[1,2,4,5,6,7,8,9,10],"n":1},"facts":{}}',
    ),
]


@pytest.mark.parametrize(("expected", "after", "problem"), STATES)
def test_state_is_what_was_named_and_otherwise_unchanged(
    expected: dict[str, Any], after: Any, problem: str | None
) -> None:
    """Named places have their value; a change anywhere else fails, however harmless it looks."""
    wanted = passed("state") if problem is None else failed("state", problem)
    assert verdict(Expect(**expected), before=BEFORE, after=after) == wanted


def test_milestones_come_in_order_with_anything_between() -> None:
    """The same mark twice needs it to happen twice."""
    seen = transcript(*answered(call("a", "c1")), *answered(call("b", "c2")))
    assert verdict(Expect(milestones=("call:a", "call:b ok")), transcript=seen) == passed("milestones")
    marks = "call:a, call:a ok, result:ok, call:b, call:b ok, result:ok, status:completed"
    for milestones, missed in ((("call:b", "call:a"), "call:a"), (("call:a", "call:a"), "call:a")):
        assert verdict(Expect(milestones=milestones), transcript=seen) == failed(
            "milestones", f"{missed!r} was not reached, or too early; there was {marks}"
        )


def test_a_mine_must_not_be_stepped_on() -> None:
    """A mine names the same marks as a milestone."""
    assert verdict(Expect(mines=("call:rm", "call:add failed"))) == passed("mines")
    assert verdict(Expect(mines=("call:add ok",))) == failed("mines", "stepped on call:add ok")


def test_text_is_searched_in_whatever_case_and_spacing() -> None:
    """Contains and excludes look at the flattened answer, a pattern at the answer itself; never equality."""
    seen = transcript(said("It  is\n3."))
    good = ExpectedText(contains=("IT IS 3",), excludes=("4",), regex=(r"is\s3\.$",))
    assert verdict(Expect(text=good), transcript=seen) == passed("text")
    bad = ExpectedText(contains=("4",), excludes=("is 3",), regex=("^is",))
    assert verdict(Expect(text=bad), transcript=seen) == failed(
        "text", "the answer 'It  is\\n3.' does not say '4', says 'is 3', does not match '^is'"
    )


def test_valid_arguments_fit_the_declared_schema() -> None:
    """A tool that was not declared has no schema to fit."""
    schema = b'{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}'
    known = transcript(*ADD, tools=(tool("add", schema=schema),))
    assert verdict(Expect(valid_arguments=True), transcript=known) == passed("schema")
    wrong = transcript(
        *answered(call("add", "c1", a="x")),
        *answered(call("add", "c2", raw="{")),
        *answered(call("rm", "c3")),
        tools=(tool("add", schema=schema),),
    )
    assert verdict(Expect(valid_arguments=True), transcript=wrong) == failed(
        "schema", 'not valid for the declared schema: add({"a":"x"}), add({), rm({})'
    )


def test_the_budget_counts_calls_and_rounds() -> None:
    """At the bound is within it."""
    assert verdict(Expect(calls_max=1, rounds_max=1)) == passed("budget")
    assert verdict(Expect(calls_max=0, rounds_max=0)) == failed("budget", "1 calls, at most 0; 1 rounds, at most 0")


def test_the_end_has_a_status_and_a_limit() -> None:
    """An empty limit says that none was reached; no end at all fails."""
    limited = Transcript(runs=(play(ended(limit="max_iterations")),))
    assert verdict(Expect(ended=ExpectedEnd())) == passed("ended")
    assert verdict(Expect(ended=ExpectedEnd(limit="max_iterations")), transcript=limited) == passed("ended")
    assert verdict(Expect(ended=ExpectedEnd(status="failed")), transcript=limited) == failed(
        "ended", "expected failed (limit none), got completed (limit max_iterations)"
    )
    assert verdict(Expect(ended=ExpectedEnd()), transcript=Transcript()) == failed("ended", "no run ended")


def test_a_question_is_asked_instead_of_a_guess() -> None:
    """A question mark, or words that ask; a call that changes something is no question, a look is."""
    for text in ("Whom shall I send it to?", "Please tell me the recipient.", "I need to know the date."):
        assert verdict(Expect(asks=True), transcript=transcript(said(text))) == passed("asks")
    assert verdict(Expect(asks=True), transcript=transcript(said("Sent."))) == failed(
        "asks", "the answer 'Sent.' asks nothing"
    )
    wrote = transcript(*answered(call("send", "c1")), said("Done, or not?"))
    assert verdict(Expect(asks=True), transcript=wrote) == failed("asks", "expected a question, got send({})")
    looked = transcript(*answered(call("get", "c1")), said("Which one?"), tools=(tool("get", effect="read"),))
    assert verdict(Expect(asks=True), transcript=looked) == passed("asks")


def test_the_budget_counts_tokens_seconds_and_money_where_they_are_known() -> None:
    """What nobody told is over no bound."""
    used = Transcript(runs=(play(ended(usage=Usage(input_tokens=90, output_tokens=10))),))
    expect = Expect(tokens_max=99, seconds_max=1.5, cost_usd_max=0.01)
    assert verdict(expect, transcript=used, duration_s=2.0, cost_usd=0.02) == failed(
        "budget", "100 tokens, at most 99; 2 seconds, at most 1.5; 0.02 USD, at most 0.01"
    )
    assert verdict(expect) == passed("budget")


def test_notes_are_looked_for_by_their_code() -> None:
    """A repair that was not noted did not happen."""
    note = Noted(note=Note(code="index_shared", action="repaired", message="two calls at index 0"))
    noted = Transcript(runs=(play(ended(), events=(note,)),))
    assert grade([Expect(notes=("index_shared",))], GraderEvidence(transcript=noted))[-1] == passed("notes")
    assert verdict(Expect(notes=("index_shared",))) == failed("notes", "not noted: index_shared; there was nothing")


def test_a_judge_only_repeats_what_was_said_of_the_rubric() -> None:
    """Who was never asked says nothing; another rubric's opinion does not count."""
    expect = Expect(judge="Is it polite?")
    other = Opinion(rubric="Is it short?", passed=False, reason="long")
    for opinions in ((), (other,)):
        graded = grade([expect], GraderEvidence(transcript=GOOD, opinions=opinions))
        assert [each.grader for each in graded] == ["script", "log"]
    polite = Opinion(rubric="Is it polite?", passed=True, reason="It is.")
    assert verdict(expect, opinions=(polite,)) == passed("judge")
    rude = Opinion(rubric="Is it polite?", passed=False, reason="It is rude.")
    assert verdict(expect, opinions=(rude,)) == failed("judge", "It is rude.")


def test_an_expectation_may_be_of_one_setting_or_some_protocols_only() -> None:
    """What is meant for the scripted model is not asked of a real one."""
    offline, live = Expect(only="offline", no_calls=True), Expect(only="live", no_calls=True)
    there = Expect(protocols=("gemini",), no_calls=True)
    for setting, protocol, count in (("offline", "chat", 1), ("live", None, 1), ("offline", "gemini", 2)):
        evidence = GraderEvidence(transcript=GOOD, setting=setting, protocol=protocol)
        assert len(grade([offline, live, there], evidence)) == count + (2 if setting == "offline" else 1)


def test_a_reply_that_depends_on_its_cut_fails_whatever_is_expected() -> None:
    """Beside the script and the log; a good one adds no verdict."""
    assert grade([], GraderEvidence(transcript=GOOD, cuts=("a reply reads otherwise",)))[-1] == failed(
        "cuts", "a reply reads otherwise"
    )


def test_evidence_survives_json() -> None:
    """All that is graded is stored, so that it can be graded again."""
    evidence = GraderEvidence(transcript=GOOD, before={"a": 1}, after={"a": 2}, mismatches=("x",), setting="live")
    assert msgspec.json.decode(msgspec.json.encode(evidence), type=GraderEvidence) == evidence


def test_text_is_compared_whatever_its_case_spacing_and_typography() -> None:
    """Models write curly quotes, real minus signs and line breaks; none of that is a mistake."""
    text = "It\N{RIGHT SINGLE QUOTATION MARK}s 26\nand \N{MINUS SIGN}3 in Ko\u0308ln"
    played = transcript(said(text))
    good = ExpectedText(contains=("it's 26 and -3", "k\u00f6ln"), regex=(r"IT'S.*-3\b",))
    assert grade([Expect(text=good)], GraderEvidence(transcript=played))[-1] == passed("text")
    bad = ExpectedText(excludes=("it's",), regex=(r"and 3",))
    assert not grade([Expect(text=bad)], GraderEvidence(transcript=played))[-1].passed


def test_an_answer_to_an_earlier_turn_is_no_answer_to_the_last() -> None:
    """A model that says nothing in the last turn did not say it."""
    silent = Transcript(runs=(play(said("It is 3."), ended()), play(ended())))
    assert not grade([Expect(text=ExpectedText(contains=("3",)))], GraderEvidence(transcript=silent))[-1].passed


def test_the_arguments_of_a_clients_tool_have_a_schema_too() -> None:
    """It is valid or not by that, as for any other tool."""
    schema = msgspec.Raw(b'{"type":"object","properties":{"a":{"type":"integer"}}}')
    spec = ToolSpec(name="pick", parameters=schema)
    for value, expected in ((1, True), ("x", False)):
        played = Transcript(runs=(play(call("pick", "c1", a=value), ended()),), client_tools=(spec,))
        graded = grade([Expect(valid_arguments=True)], GraderEvidence(transcript=played))
        assert graded[-1].grader == "schema"
        assert graded[-1].passed is expected
