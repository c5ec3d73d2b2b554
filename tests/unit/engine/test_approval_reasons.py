"""Why a call needs a person, what is journalled of the question, and what the model reads afterwards."""

import msgspec
import pytest

from treadle.core.items import TextPart
from treadle.core.tool_definitions import Offer, Outcome, ToolPolicy, ToolSpec
from treadle.engine.approval_reasons import (
    DecisionRecord,
    RequestRecord,
    decision_step,
    mark_changed,
    person_only_arguments,
    reasons_for,
    refusal_of,
    request_step,
)
from unit.engine.fakes import call


@pytest.mark.parametrize(
    ("policy", "tainted", "is_from_text", "expected"),
    [
        (ToolPolicy(effect="read"), (), False, ()),
        (ToolPolicy(effect="write"), (), False, ()),
        (ToolPolicy(effect="destructive"), (), False, ("wipe is destructive",)),
        (ToolPolicy(effect="destructive", approval="never"), (), False, ()),
        (ToolPolicy(effect="read", approval="always"), (), False, ("wipe always needs approval",)),
        (ToolPolicy(effect="write"), (), True, ("the call stood in the model's text and has effects",)),
        (ToolPolicy(effect="write"), ("fetch", "mail"), False, ("untrusted output of fetch, mail was read before",)),
        (
            ToolPolicy(effect="destructive"),
            ("fetch",),
            True,
            (
                "wipe is destructive",
                "the call stood in the model's text and has effects",
                "untrusted output of fetch was read before",
            ),
        ),
    ],
)
def test_every_reason_is_named(
    policy: ToolPolicy, tainted: tuple[str, ...], is_from_text: bool, expected: tuple[str, ...]
) -> None:
    """A call without a reason runs unasked; one with several names them all."""
    assert reasons_for(call("wipe"), policy, tainted, is_from_text=is_from_text) == expected


def test_a_question_is_told_and_written_alike() -> None:
    """The entry holds everything that the event says."""
    record = RequestRecord(
        approval_id="apr_1", source="python", digest="d", reasons=("one", "two"), expires_at=5.0, is_deferred=True
    )
    event, entry = request_step(3, call("wipe"), record, 1.0)
    assert (entry.kind, entry.name, entry.call_id, entry.content) == ("approval_request", "wipe", "call_1", "one; two")
    assert entry.data is not None
    again = msgspec.json.decode(entry.data, type=RequestRecord)
    assert again == record
    assert request_step(3, call("wipe"), again, 1.0)[0] == event


def test_a_decision_is_told_and_written_alike() -> None:
    """Who decided, why and with which arguments is in both."""
    record = DecisionRecord(approval_id="apr_1", status="approved", by="ann", reason="fine", arguments='{"a":1}')
    event, entry = decision_step(3, call("wipe"), record, 1.0)
    assert (entry.kind, entry.content) == ("approval_decision", "approved")
    assert entry.data is not None
    again = msgspec.json.decode(entry.data, type=DecisionRecord)
    assert decision_step(3, call("wipe"), again, 1.0)[0] == event
    assert (event.by, event.reason, event.arguments) == ("ann", "fine", '{"a":1}')


@pytest.mark.parametrize(
    ("record", "rc", "words"),
    [
        (DecisionRecord(approval_id="apr_1", status="denied"), "denied", "a person denied this call."),
        (
            DecisionRecord(approval_id="apr_1", status="denied", reason="wrong folder."),
            "denied",
            "denied this call: wrong folder.",
        ),
        (DecisionRecord(approval_id="", status="denied", reason="Nobody here."), "denied", "Nobody here."),
        (DecisionRecord(approval_id="", status="denied"), "denied", "nobody could be asked"),
        (DecisionRecord(approval_id="apr_1", status="expired"), "expired", "No person denied it."),
        (DecisionRecord(approval_id="apr_1", status="cancelled"), "expired", "was not answered"),
    ],
)
def test_a_refusal_says_who_refused(record: DecisionRecord, rc: str, words: str) -> None:
    """What expired was not denied, and what nobody could be asked about was denied by no person."""
    refusal = refusal_of(record)
    assert refusal is not None
    assert refusal.rc == rc
    assert words in refusal.summary
    assert ("a person denied" in refusal.summary) is (rc == "denied" and bool(record.approval_id))


def test_what_is_approved_is_not_refused() -> None:
    """The call runs."""
    assert refusal_of(DecisionRecord(approval_id="apr_1", status="approved")) is None


def changed(arguments: str | None, by: str = "a person at the terminal") -> DecisionRecord:
    """Return a decision that changed arguments."""
    return DecisionRecord(approval_id="apr_1", status="approved", by=by, arguments=arguments)


@pytest.mark.parametrize("record", [changed(None), changed('{"read_only":true}', "policy read-only")])
def test_what_a_policy_changes_is_told_by_the_tool_itself(record: DecisionRecord) -> None:
    """No person did: the result stays as it is."""
    outcome = Outcome(text='{"n":1}')
    assert mark_changed(outcome, record) is outcome


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"n":1}', '{"n":1,"arguments_changed":{"path":"b"}}'),
        ("plain", "plain\n\n[arguments_changed] A person changed the arguments of this call before it ran: "),
        ("[1]", "[1]\n\n[arguments_changed] A person changed the arguments of this call before it ran: "),
    ],
)
def test_the_model_reads_that_its_arguments_were_changed(text: str, expected: str) -> None:
    """In a field of an object, in a line after anything else."""
    said = mark_changed(Outcome(text=text, rc="ok"), changed('{"path":"b"}')).text
    assert said.startswith(expected)
    assert '{"path":"b"}' in said


def test_changed_arguments_are_named_beside_parts() -> None:
    """A result of parts gains one, and keeps the others."""
    parts = (TextPart(text="picture"),)
    marked = mark_changed(Outcome(text="", parts=parts), changed("{}"))
    assert marked.parts[:1] == parts
    assert [part.text.startswith("[arguments_changed]") for part in marked.parts if isinstance(part, TextPart)] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("source", "arguments", "expected"),
    [
        ("local", '{"path": "AGENTS.md", "protected": true}', ("it asks to write protected paths: AGENTS.md",)),
        ("local", '{"protected": [".envrc", "a"]}', ("it asks to write protected paths: .envrc, a",)),
        ("local", '{"git": true}', ("it asks to write the git repository",)),
        ("local", r'{"path": "A.md", "p\u0072otected": true}', ("it asks to write protected paths: A.md",)),
        ("local", r'{"\u0067it": true}', ("it asks to write the git repository",)),
        ("local", '{"git": false, "protected": []}', ()),
        ("local", '{"path": "protected"}', ()),
        ("local", '{"protected": true', ()),
        ("local", '"protected"', ()),
        ("python", '{"path": "AGENTS.md", "protected": true}', ()),
    ],
)
def test_what_a_person_must_allow_by_name_is_named(source: str, arguments: str, expected: tuple[str, ...]) -> None:
    """Whatever the policy of the tool says."""
    offer = Offer(spec=ToolSpec(name="act"), side="server", policy=ToolPolicy(approval="never"), source=source)
    assert person_only_arguments(msgspec.structs.replace(call("act"), arguments=arguments), offer) == expected
