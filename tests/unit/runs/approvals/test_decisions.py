"""Deciding: once, bound to what was read, with arguments and rules that are checked first."""

import pytest

from treadle.core.errors import Conflict, NotFound, ProtocolError
from treadle.core.tool_definitions import CallContext
from treadle.engine.ports import ApprovalVerdict
from treadle.journal.approvals_interface import DECIDED
from treadle.runs.approvals.decisions import ARGUMENTS_BYTES_MAX, REASON_CHARS_MAX, Answer, Remember
from treadle.runs.approvals.durable_approver import ApproverRules
from unit.runs.approvals.desks import CONTEXT, PLEA, office, other_call

YES, NO = Answer(approve=True, by="ann"), Answer(approve=False, by="bob", reason="no")


async def test_the_second_decider_is_told_what_stands() -> None:
    """And changes nothing."""
    async with office() as at:
        ticket = await at.ticket()
        decided = await at.service.decide(ticket.approval_id, NO)
        with pytest.raises(Conflict, match="denied already") as refused:
            await at.service.decide(ticket.approval_id, YES)
        assert (refused.value.info.code, refused.value.info.status) == (DECIDED, 409)
        assert await at.service.find(ticket.approval_id) == decided


async def test_the_loser_of_a_race_leaves_no_rule() -> None:
    """What was not decided is not remembered."""
    async with office() as at:
        ticket = await at.ticket()
        await at.service.decide(ticket.approval_id, NO)
        with pytest.raises(Conflict):
            await at.service.decide(ticket.approval_id, Answer(approve=True, remember=Remember()))
        assert await at.service.rules() == []


async def test_what_is_past_its_time_is_shown_and_kept_as_expired() -> None:
    """Before anybody has written it down, and after somebody tried to decide."""
    async with office(ApproverRules(wait_s=30.0, stored_s=30.0)) as at:
        ticket = await at.ticket()
        at.clock.time += 30
        assert (await at.service.find(ticket.approval_id)).status == "expired"
        assert [row.status for row in await at.service.page()] == ["expired"]
        assert await at.service.page(status="pending") == []
        with pytest.raises(Conflict, match="expired already"):
            await at.service.decide(ticket.approval_id, YES)


async def test_the_digest_of_another_call_is_refused() -> None:
    """What was read must be what would run; with the right digest it is decided."""
    async with office() as at:
        ticket = await at.ticket()
        with pytest.raises(Conflict) as refused:
            await at.service.decide(ticket.approval_id, Answer(approve=True, digest="0" * 64))
        assert (refused.value.info.code, refused.value.info.param) == ("approval_digest", "digest")
        assert (await at.service.find(ticket.approval_id)).status == "pending"
        decided = await at.service.decide(ticket.approval_id, Answer(approve=True, digest=ticket.digest))
        assert decided.status == "approved"


@pytest.mark.parametrize(
    ("given", "kept"),
    [(None, None), ('{"b":1,"a":"x"}', None), ('{"z":0, "a":"y"}', '{"a":"y","z":0}'), ("{}", "{}")],
)
async def test_changed_arguments_are_kept_in_one_spelling(given: str | None, kept: str | None) -> None:
    """The same ones in another order are no change."""
    async with office() as at:
        ticket = await at.ticket()
        row = await at.service.decide(ticket.approval_id, Answer(approve=True, arguments=given))
        assert row.decision is not None
        assert row.decision.arguments == kept


@pytest.mark.parametrize(
    "answer",
    [
        Answer(approve=False, arguments="{}"),
        Answer(approve=True, arguments="{broken"),
        Answer(approve=True, arguments="[1]"),
        Answer(approve=True, arguments='{"a":"' + "x" * ARGUMENTS_BYTES_MAX + '"}'),
    ],
)
async def test_arguments_that_can_not_run_are_refused(answer: Answer) -> None:
    """The error names the field, and the question stays open."""
    async with office() as at:
        ticket = await at.ticket()
        with pytest.raises(ProtocolError) as refused:
            await at.service.decide(ticket.approval_id, answer)
        assert refused.value.info.param == "arguments"
        assert (await at.service.find(ticket.approval_id)).status == "pending"


async def test_a_long_reason_is_cut() -> None:
    """A person's words have a bound."""
    async with office() as at:
        ticket = await at.ticket()
        row = await at.service.decide(ticket.approval_id, Answer(approve=False, reason="x" * (REASON_CHARS_MAX + 1)))
        assert row.decision is not None
        assert row.decision.reason == "x" * REASON_CHARS_MAX


@pytest.mark.parametrize(
    ("answer", "session_id", "param"),
    [
        (Answer(approve=False, remember=Remember()), "sess_1", "remember"),
        (Answer(approve=True, remember=Remember()), None, "remember.scope"),
        (Answer(approve=True, remember=Remember(kind="pattern")), "sess_1", "remember.patterns"),
    ],
)
async def test_a_rule_that_can_not_be_is_refused_before_anything_is_decided(
    answer: Answer, session_id: str | None, param: str
) -> None:
    """A denial, a session that is none, a pattern without patterns."""
    async with office() as at:
        ticket = await at.ticket(PLEA, CallContext(run_id="run_1", session_id=session_id))
        with pytest.raises(ProtocolError) as refused:
            await at.service.decide(ticket.approval_id, answer)
        assert refused.value.info.param == param
        assert (await at.service.find(ticket.approval_id)).status == "pending"
        assert await at.service.rules() == []


async def test_what_is_remembered_is_what_was_approved() -> None:
    """A call that a person changed is remembered as changed: the model's own is asked about again."""
    async with office() as at:
        ticket = await at.ticket()
        answer = Answer(approve=True, arguments='{"a":"mild"}', remember=Remember(kind="call"))
        await at.service.decide(ticket.approval_id, answer)
        await at.ticket(other_call("call_2"))
        agreed = await at.desk.ask(other_call("call_3", '{"a": "mild"}'), CONTEXT)
        assert isinstance(agreed, ApprovalVerdict)
        assert agreed.approved


async def test_patterns_are_checked_against_what_was_approved() -> None:
    """They fit the arguments that run, not those that the model wanted."""
    async with office() as at:
        ticket = await at.ticket()
        changed = {"arguments": '{"a":"mild"}', "approve": True}
        wrong = Remember(kind="pattern", patterns={"a": "x*"})
        with pytest.raises(ProtocolError) as refused:
            await at.service.decide(ticket.approval_id, Answer(**changed, remember=wrong))
        assert refused.value.info.param == "remember.patterns"
        right = Remember(kind="pattern", patterns={"a": "mi*"})
        await at.service.decide(ticket.approval_id, Answer(**changed, remember=right))
        assert [row.rule.patterns for row in await at.service.rules()] == [{"a": "mi*"}]


async def test_a_rule_is_kept_where_it_was_wanted() -> None:
    """In the session of the run, or in the whole project."""
    async with office(ApproverRules(project="/p")) as at:
        for call_id, scope in (("c1", "session"), ("c2", "project")):
            ticket = await at.ticket(other_call(call_id, f'{{"id":"{call_id}"}}'))
            remember = Remember(kind="call", scope=scope)  # type: ignore[arg-type]
            await at.service.decide(ticket.approval_id, Answer(approve=True, remember=remember))
        rules = await at.service.rules()
        assert [(rule.session_id, rule.rule.project) for rule in rules] == [(None, "/p"), ("sess_1", "")]


async def test_a_key_sees_and_decides_only_its_own() -> None:
    """To another key an approval and a rule are not there."""
    async with office(key_id="key_1") as at:
        ticket = await at.ticket()
        with pytest.raises(NotFound):
            await at.service.find(ticket.approval_id, key_id="key_2")
        with pytest.raises(NotFound):
            await at.service.decide(ticket.approval_id, YES, key_id="key_2")
        assert await at.service.page(key_id="key_2") == []
        await at.service.decide(ticket.approval_id, Answer(approve=True, remember=Remember()), key_id="key_1")
        [rule] = await at.service.rules(key_id="key_1")
        with pytest.raises(NotFound):
            await at.service.forget_rule(rule.id, key_id="key_2")
        await at.service.forget_rule(rule.id, key_id="key_1")
        assert await at.service.rules() == []


async def test_what_is_not_there_is_said_to_be_missing() -> None:
    """With a hint where to look."""
    async with office() as at:
        with pytest.raises(NotFound, match="apr_none"):
            await at.service.find("apr_none")
        with pytest.raises(NotFound, match="rule_none"):
            await at.service.forget_rule("rule_none")
