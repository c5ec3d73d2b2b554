"""What the loop writes down of a call: how it may run, what it is answered with, and who said so."""

import msgspec
import pytest

from treadle.core.items import TextPart
from treadle.core.tool_definitions import Outcome, ToolPolicy, failure
from treadle.engine.journal_steps import (
    decision_record,
    finished_step,
    policy_of,
    result_of,
    skip_after_failure,
    source_of,
    start_entry,
)
from treadle.engine.ports import ApprovalVerdict
from treadle.engine.run_decisions import PlannedCall
from unit.engine.fakes import call, client, server


def test_a_call_without_an_offer_has_the_careful_policy() -> None:
    """What is not known may write."""
    unknown = PlannedCall(index=0, call=call("nope"))
    assert (policy_of(unknown), source_of(unknown)) == (ToolPolicy(), "")
    assert policy_of(PlannedCall(index=0, call=call("theirs"), offer=client("theirs"))).effect == "write"
    ours = PlannedCall(index=0, call=call("ours"), offer=server("ours"))
    assert (policy_of(ours).effect, source_of(ours)) == ("read", "python")


def test_a_start_mark_says_which_attempt_it_is() -> None:
    """A recovered run marks what it begins again."""
    entry = start_entry(PlannedCall(index=0, call=call("ours"), offer=server("ours")), 2, 7.0)
    assert (entry.kind, entry.call_id, entry.at) == ("tool_start", "call_1", 7.0)
    assert entry.data is not None
    assert msgspec.json.decode(entry.data) == {"source": "python", "effect": "read", "attempt": 2}


def test_a_call_of_a_local_tool_that_never_ran_has_the_shape_of_its_errors() -> None:
    """Refused, skipped or out of time: one shape for these tools, and the one of all others for others."""
    ours = PlannedCall(index=0, call=call("grep"), offer=server("grep"))
    local = msgspec.structs.replace(ours, offer=msgspec.structs.replace(server("grep"), source="local"))
    outcome = failure("skipped", "Skipped.")
    assert result_of(local, outcome, "i").output == (TextPart(text='{"error":"Skipped.","code":"skipped"}'),)
    assert result_of(ours, outcome, "i").output == (TextPart(text=outcome.text),)
    fine = Outcome(text='{"error":{"message":"a word in a file"}}')
    assert result_of(local, fine, "i").output == (TextPart(text=fine.text),)


def test_a_result_is_told_and_written_with_its_measures() -> None:
    """The event and the entry name the same call, code and size."""
    planned = PlannedCall(index=4, call=call("ours"), offer=server("ours"))
    outcome = Outcome(text="late", rc="timeout", duration_s=1.5, output_bytes=4, truncated=True, sandbox="L2")
    result = result_of(planned, outcome, "fco_1")
    assert (result.output, result.is_error, result.rc) == ((TextPart(text="late"),), True, "timeout")
    event, entry = finished_step(planned, result, outcome, 9.0)
    assert event is not None
    assert entry is not None
    assert (entry.kind, entry.call_id) == ("tool_result", "call_1")
    assert entry.data is not None
    written = msgspec.json.decode(entry.data)
    assert event.sandbox == "L2"
    assert {name: written[name] for name in ("rc", "source", "duration_s", "bytes", "truncated", "sandbox")} == {
        "rc": "timeout",
        "source": "python",
        "duration_s": 1.5,
        "bytes": 4,
        "truncated": True,
        "sandbox": "L2",
    }


def test_a_call_that_never_ran_has_no_sandbox_in_the_journal() -> None:
    """Neither a word nor an empty one: older journals are written the same."""
    planned = PlannedCall(index=0, call=call("ours"), offer=server("ours"))
    outcome = Outcome(text="Not run.", rc="cancelled")
    _, entry = finished_step(planned, result_of(planned, outcome, "fco_1"), outcome, 9.0)
    assert entry is not None
    assert "sandbox" not in msgspec.json.decode(entry.data or b"{}")


def test_a_call_is_skipped_when_what_it_builds_on_failed() -> None:
    """The result names what failed; a call that is answered already keeps its answer."""
    calls = [PlannedCall(index=n, call=call(name, call_id=name)) for n, name in enumerate(("make", "fill", "send"))]
    skipped = skip_after_failure(calls[2], calls, {1, 0})
    assert skipped.outcome is not None
    assert skipped.outcome.rc == "skipped"
    assert skipped.outcome.summary.startswith("Skipped: make, fill failed before it")
    assert skip_after_failure(calls[2], calls, ()) == calls[2]
    answered = msgspec.structs.replace(calls[2], outcome=Outcome(text="x"))
    assert skip_after_failure(answered, calls, {0}) == answered


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (ApprovalVerdict(approved=True, code="denied"), "approved"),
        (ApprovalVerdict(approved=False), "denied"),
        (ApprovalVerdict(approved=False, code="cancelled"), "cancelled"),
        (ApprovalVerdict(approved=False, code="expired"), "expired"),
        (ApprovalVerdict(approved=False, code="approved"), "expired"),
        (ApprovalVerdict(approved=False, code="pending"), "expired"),
    ],
)
def test_a_verdict_is_written_down_as_one_of_four(verdict: ApprovalVerdict, status: str) -> None:
    """Whatever an approver answers, the journal knows the word."""
    assert decision_record(verdict, "apr_1").status == status


def test_a_verdict_keeps_who_why_and_what() -> None:
    """The approval is the one that was asked for, unless the verdict names its own."""
    verdict = ApprovalVerdict(approved=True, by="ann", reason="fine", arguments="{}")
    record = decision_record(verdict, "apr_1")
    assert (record.approval_id, record.by, record.reason, record.arguments) == ("apr_1", "ann", "fine", "{}")
    assert decision_record(msgspec.structs.replace(verdict, approval_id="apr_2"), "apr_1").approval_id == "apr_2"
