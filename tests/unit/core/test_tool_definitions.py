import msgspec
import pytest

from treadle.core.tool_definitions import (
    CallContext,
    Envelope,
    Fault,
    Outcome,
    ServerTool,
    ToolPolicy,
    ToolSpec,
    failure,
    is_person_only,
    refuse_person_only,
)


@pytest.mark.parametrize(
    ("policy", "asks", "taints", "reaches"),
    [
        (ToolPolicy(), False, False, True),
        (ToolPolicy(effect="read"), False, False, False),
        (ToolPolicy(effect="idempotent"), False, False, True),
        (ToolPolicy(effect="destructive"), True, False, True),
        (ToolPolicy(effect="destructive", approval="never"), False, False, True),
        (ToolPolicy(effect="read", approval="always"), True, False, False),
        (ToolPolicy(effect="read", exec=True), False, False, True),
        (ToolPolicy(effect="read", egress=True), False, True, True),
        (ToolPolicy(effect="read", untrusted=True), False, True, False),
    ],
)
def test_a_policy_says_who_is_asked_and_what_can_go_wrong(policy: ToolPolicy, asks: bool, taints: bool, reaches: bool):
    """Whether a person must agree, whether what comes back may be anybody's, whether harm can be done."""
    assert (policy.needs_approval, policy.taints, policy.reaches_out) == (asks, taints, reaches)


def test_a_failure_reads_the_same_whoever_made_it():
    """As JSON for the model, as words for a person, and as data."""
    made = failure("denied", "Nobody agreed.")
    assert msgspec.json.decode(made.text) == {"error": {"code": "denied", "message": "Nobody agreed."}}
    envelope = Envelope(ok=False, errors=(Fault(code="denied", message="Nobody agreed."),))
    assert made == Outcome(text=made.text, rc="denied", summary="Nobody agreed.", envelope=envelope)
    assert [Outcome(text="", rc=rc).is_error for rc in ("ok", "0", "1", "failed")] == [False, False, True, True]


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("facts.commit", True),
        ("facts_commit", True),
        ("factsCommit", True),
        ("mcp__x__FACTS-commit", True),
        ("mcp__x__factscommit", True),
        ("ｆａｃｔｓ．ｃｏｍｍｉｔ", True),
        ("facts.commit.now", False),
        ("facts.propose", False),
        ("commit.facts", False),
        ("commit", False),
        ("artifacts.commit", False),
        ("", False),
        ("x" * 500 + ".facts.commit", False),
    ],
)
def test_the_one_deed_of_a_person_is_known_in_any_spelling(name: str, is_refused: bool):
    """Whatever stands before its words or between them; nothing else is it."""
    assert is_person_only(name) is is_refused


def test_a_model_that_calls_it_reads_what_to_do_instead():
    """The name is shown, and not more of it than is readable."""
    refused = refuse_person_only("x" * 100)
    assert refused.rc == "denied"
    assert refused.summary is not None
    assert refused.summary.startswith("x" * 64 + " is refused. ")
    assert "facts.propose" in refused.text


def test_a_call_is_named_by_its_run_and_its_id():
    """So that what has the effect can tell a second attempt."""
    assert CallContext(run_id="run_1", call_id="call_2").idempotency_key == "run_1:call_2"
    assert ServerTool(spec=ToolSpec(name="look")).name == "look"
