"""The desk: a question is durable, asked once, answered by rules, people or the clock."""

import asyncio
from typing import Any

import msgspec
import pytest

from treadle.core.errors import StoreError
from treadle.engine.ports import ApprovalVerdict
from treadle.journal.approvals_interface import ApprovalQuestion
from treadle.journal.approvals_store import StoredApprovals
from treadle.runs.approvals.decisions import Answer, Remember
from treadle.runs.approvals.durable_approver import ApproverRules
from treadle.runs.approvals.remembered_rules import digest_of
from unit.runs.approvals.desks import CONTEXT, PLEA, WAIT_S, office, other_call


async def test_a_question_is_kept_with_all_that_a_person_needs() -> None:
    """Tool, source, canonical arguments, reasons, session and the digest that the answer is bound to."""
    async with office(ApproverRules(project="/p"), key_id="key_1") as at:
        ticket = await at.ticket()
        row = await at.service.find(ticket.approval_id)
        digest = digest_of("wipe", "python", '{"a":"x","b":1}', "run_1")
        assert row.question == ApprovalQuestion(
            tool="wipe",
            source="python",
            arguments='{"a":"x","b":1}',
            digest=digest,
            reasons=("wipe is destructive",),
            session_id="sess_1",
            project="/p",
        )
        assert (row.run_id, row.call_id, row.key_id, row.status) == ("run_1", "call_1", "key_1", "pending")
        assert (ticket.digest, ticket.expires_at) == (digest, row.expires_at)


@pytest.mark.parametrize(
    ("protocol", "background", "is_deferred", "stands_s"),
    [
        ("chat", False, False, 300.0),
        ("messages", False, False, 300.0),
        ("gemini", False, False, 300.0),
        ("chat", True, False, 3600.0),
        ("responses", False, False, 300.0),
        ("responses", False, True, 3600.0),
        ("treadle", False, False, 3600.0),
        ("chat", False, True, 3600.0),
    ],
)
async def test_a_question_stands_as_long_as_somebody_may_wait(
    protocol: str, background: bool, is_deferred: bool, stands_s: float
) -> None:
    """Minutes where a client holds its connection, an hour where none does."""
    async with office(protocol=protocol, background=background) as at:
        ticket = await at.ticket(msgspec.structs.replace(PLEA, is_deferred=is_deferred))
        assert ticket.expires_at == at.clock.now() + stands_s


async def test_asked_again_it_is_the_same_question() -> None:
    """After a crash the run finds its row, with the time that was left."""
    async with office() as at:
        first = await at.ticket()
        at.clock.time += 60
        assert await at.ticket() == first


async def test_an_approval_does_not_pass_to_other_arguments() -> None:
    """A call of the same id that says something else is refused, whatever was approved."""
    async with office() as at:
        ticket = await at.ticket()
        await at.service.decide(ticket.approval_id, Answer(approve=True))
        answer = await at.desk.ask(other_call("call_1", '{"a":"other"}'), CONTEXT)
        assert isinstance(answer, ApprovalVerdict)
        assert (answer.approved, "other arguments" in answer.reason) == (False, True)


async def test_who_waits_hears_the_decision() -> None:
    """With who decided, why and the changed arguments."""
    async with office() as at:
        ticket = await at.ticket()
        hearing = asyncio.create_task(at.desk.wait(ticket.approval_id, CONTEXT))
        await asyncio.sleep(0)
        assert not hearing.done()
        answer = Answer(approve=True, by="ann", reason="fine", arguments='{"a":"y"}')
        await at.service.decide(ticket.approval_id, answer)
        assert await asyncio.wait_for(hearing, WAIT_S) == ApprovalVerdict(
            approved=True,
            code="approved",
            reason="fine",
            by="ann",
            arguments='{"a":"y"}',
            approval_id=ticket.approval_id,
        )


async def test_a_store_that_is_away_ends_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits for a person outlives an outage; what does not pass by itself ends it."""
    async with office() as at:
        ticket = await at.ticket()
        find, failures = StoredApprovals.find, [StoreError("away"), StoreError("away")]

        async def failing(self: StoredApprovals, approval_id: str, **named: Any) -> object:
            if failures:
                raise failures.pop()
            return await find(self, approval_id, **named)

        monkeypatch.setattr(StoredApprovals, "find", failing)
        hearing = asyncio.create_task(at.desk.wait(ticket.approval_id, CONTEXT))
        async with asyncio.timeout(WAIT_S):
            while failures:  # noqa: ASYNC110 that it failed is told to nobody
                await asyncio.sleep(0)
            await at.service.decide(ticket.approval_id, Answer(approve=True, by="ann"))
            verdict = await hearing
        assert (verdict.approved, verdict.by) == (True, "ann")
        failures.append(StoreError("damaged", code="store_corrupt"))
        with pytest.raises(StoreError):
            await at.desk.wait(ticket.approval_id, CONTEXT)


async def test_a_question_that_nobody_answers_expires() -> None:
    """It is not denied, and nobody can approve it afterwards."""
    async with office(ApproverRules(wait_s=30.0, stored_s=30.0)) as at:
        ticket = await at.ticket()
        at.clock.time += 30
        verdict = await asyncio.wait_for(at.desk.wait(ticket.approval_id, CONTEXT), WAIT_S)
        assert (verdict.approved, verdict.code) == (False, "expired")
        row = await at.store.approvals.find(ticket.approval_id)
        assert row is not None
        assert row.status == "expired"


async def test_a_decision_at_the_last_moment_stands() -> None:
    """The desk finds the time over while somebody has decided in it."""
    async with office(ApproverRules(wait_s=30.0, stored_s=30.0)) as at:
        ticket = await at.ticket()
        await at.service.decide(ticket.approval_id, Answer(approve=True))
        at.clock.time += 31
        verdict = await asyncio.wait_for(at.desk.wait(ticket.approval_id, CONTEXT), WAIT_S)
        assert verdict.approved


async def test_a_question_that_is_gone_is_no_approval() -> None:
    """The content of the run was deleted while it waited."""
    async with office() as at:
        verdict = await at.desk.wait("apr_none", CONTEXT)
        assert (verdict.approved, verdict.code) == (False, "cancelled")


async def test_a_closed_desk_asks_nobody_and_says_so() -> None:
    """No row is filed; the reasons are in the refusal."""
    async with office(ApproverRules(is_open=False)) as at:
        verdict = await at.desk.ask(PLEA, CONTEXT)
        assert isinstance(verdict, ApprovalVerdict)
        assert (verdict.approved, "wipe is destructive" in verdict.reason) == (False, True)
        assert await at.service.page() == []


async def test_a_remembered_rule_answers_for_the_person() -> None:
    """Without a question, naming the rule; once it is taken away people are asked again."""
    async with office() as at:
        ticket = await at.ticket()
        await at.service.decide(ticket.approval_id, Answer(approve=True, remember=Remember(kind="call")))
        [rule] = await at.service.rules()
        again = await at.desk.ask(other_call("call_2"), CONTEXT)
        assert again == ApprovalVerdict(approved=True, by=f"rule {rule.id}")
        await at.ticket(other_call("call_3", '{"a":"other"}'))
        await at.service.forget_rule(rule.id)
        await at.ticket(other_call("call_4"))


async def test_a_rule_of_one_key_says_nothing_for_another() -> None:
    """Rules belong to who gave them."""
    async with office(key_id="key_1") as at:
        ticket = await at.ticket()
        remember = Remember(kind="tool", scope="project")
        await at.service.decide(ticket.approval_id, Answer(approve=True, remember=remember))
        [rule] = await at.service.rules(key_id="key_1")
        assert await at.service.rules(key_id="key_2") == []
        await at.store.approvals.delete_rule(rule.id)
        await at.store.approvals.add_rule(msgspec.structs.replace(rule, key_id="key_2"))
        await at.ticket(other_call("call_2"))


async def test_a_rule_does_not_reach_past_untrusted_output() -> None:
    """One for the tool asks again; one for the very call does not."""
    async with office() as at:
        ticket = await at.ticket()
        remember = Remember(kind="tool")
        await at.service.decide(ticket.approval_id, Answer(approve=True, remember=remember))
        assert isinstance(await at.desk.ask(other_call("call_2"), CONTEXT), ApprovalVerdict)
        await at.ticket(other_call("call_3", is_tainted=True))
