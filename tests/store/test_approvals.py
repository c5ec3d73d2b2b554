"""Approvals as every store keeps them: promises A1 to A6 of `journal/approvals_interface`."""

import asyncio

import msgspec
import pytest

from store.sample import COMPLETED, LEASE_S, OWNER, WAIT_S, SetClock, run_row
from treadle.core.errors import Conflict, NotFound
from treadle.journal.approvals_interface import (
    DECIDED,
    USED,
    ApprovalDecision,
    ApprovalQuestion,
    ApprovalRow,
    ApprovalRule,
    RuleRow,
)
from treadle.journal.journal_interface import RunJournal, SessionRow, Store

QUESTION = ApprovalQuestion(
    tool="wipe", source="python", arguments='{"path":"/tmp/ä"}', digest="d1", reasons=("destructive",)
)
YES = ApprovalDecision(status="approved", at=1_001.0, by="ann", reason="fine")
NO = ApprovalDecision(status="denied", at=1_001.0, by="bob", reason="no")


async def begun(store: Store, name: str = "1") -> RunJournal:
    """A run to ask in."""
    return await store.start_run(run_row(name), [], owner=OWNER, lease_s=LEASE_S)


def asked(approval_id: str = "apr_1", call_id: str = "call_1", run: str = "run_1", **fields: object) -> ApprovalRow:
    """A question of a run."""
    row = ApprovalRow(
        id=approval_id, run_id=run, call_id=call_id, created_at=1_000.0, expires_at=1_300.0, question=QUESTION
    )
    return msgspec.structs.replace(row, **fields)


async def test_a_question_is_read_back_as_it_was_filed(store: Store) -> None:
    """Every field, odd call ids included, survives."""
    await begun(store)
    row = asked(call_id="call\ud800\x00", key_id="key_1")
    assert await store.approvals.file(row) == row
    assert await store.approvals.find("apr_1") == row
    assert await store.approvals.find("apr_1", key_id="key_2") is None
    assert await store.approvals.page(run_id="run_1") == [row]


async def test_a_call_has_one_question(store: Store) -> None:
    """Whoever asks again, perhaps after a crash, gets the question that stands (A1)."""
    await begun(store)
    first = await store.approvals.file(asked())
    again = await store.approvals.file(asked("apr_2", expires_at=9_999.0))
    assert again == first
    assert await store.approvals.find("apr_2") is None


async def test_a_question_needs_a_run(store: Store) -> None:
    """There is nothing to ask for a run that is not there."""
    with pytest.raises(NotFound):
        await store.approvals.file(asked(run="run_none"))


async def test_of_many_deciders_one_wins(store: Store) -> None:
    """A race has one winner, and every loser is told what stands (A2)."""
    await begun(store)
    await store.approvals.file(asked())
    wanted = [msgspec.structs.replace(YES if n % 2 else NO, by=f"person {n}") for n in range(8)]
    outcomes = await asyncio.gather(*(store.approvals.decide("apr_1", each) for each in wanted), return_exceptions=True)
    won = [each for each in outcomes if isinstance(each, ApprovalRow)]
    lost = [each for each in outcomes if isinstance(each, Conflict)]
    assert (len(won), len(lost)) == (1, 7)
    assert await store.approvals.find("apr_1") == won[0]
    assert won[0].decision in wanted
    assert {each.info.code for each in lost} == {DECIDED}
    assert all(won[0].status in each.message for each in lost)


async def test_what_is_late_expires_whatever_was_decided(store: Store) -> None:
    """After its time nobody can approve; it is expired, and not denied (A3)."""
    await begun(store)
    await store.approvals.file(asked())
    with pytest.raises(Conflict, match="expired already"):
        await store.approvals.decide("apr_1", msgspec.structs.replace(YES, at=1_300.0))
    row = await store.approvals.find("apr_1")
    assert row is not None
    assert (row.status, row.decision) == ("expired", ApprovalDecision(status="expired", at=1_300.0))
    expired = await store.approvals.decide("apr_1", ApprovalDecision(status="expired", at=1_301.0))
    assert expired == row


async def test_deciding_what_is_not_there_is_refused(store: Store) -> None:
    """A made up id is no approval."""
    with pytest.raises(NotFound):
        await store.approvals.decide("apr_none", YES)


async def test_a_decision_wakes_who_waits_for_the_run(store: Store) -> None:
    """The run that asked hears of the decision at once (A5)."""
    await begun(store)
    await store.approvals.file(asked())

    looked = asyncio.Event()

    async def wait() -> ApprovalRow:
        while (row := await store.approvals.find("apr_1")) is not None and row.status == "pending":
            looked.set()
            await store.wait_change("run_1", WAIT_S)
        assert row is not None
        return row

    waiting = asyncio.create_task(wait())
    # Whoever looked before the decision waits by now: nothing comes between its look and its wait.
    await looked.wait()
    decided = await store.approvals.decide("apr_1", YES)
    assert await asyncio.wait_for(waiting, WAIT_S / 3) == decided


async def test_a_run_that_ends_withdraws_its_questions(store: Store) -> None:
    """What nobody answered before the end can not be answered afterwards; what was decided stays."""
    await begun(store)
    await store.approvals.file(asked())
    await store.approvals.file(asked("apr_2", "call_2"))
    await store.approvals.decide("apr_2", YES)
    await store.approvals.withdraw("run_1", 1_002.0)
    assert [(row.id, row.status) for row in await store.approvals.page()] == [
        ("apr_2", "approved"),
        ("apr_1", "cancelled"),
    ]
    with pytest.raises(Conflict, match="cancelled"):
        await store.approvals.decide("apr_1", YES)


async def test_a_call_is_carried_on_by_one_run(store: Store) -> None:
    """Two runs can not both go on with an approved call, and one that takes several takes all or none (A4)."""
    await begun(store)
    await store.approvals.file(asked())
    await store.approvals.file(asked("apr_2", "call_2"))
    await store.approvals.use(["apr_2"], "run_2")
    with pytest.raises(Conflict) as refused:
        await store.approvals.use(["apr_1", "apr_2"], "run_3")
    assert refused.value.info.code == USED
    assert [row.used_by for row in await store.approvals.page()] == ["run_2", None]
    await store.approvals.use(["apr_2"], "run_2")
    await store.approvals.release("run_2")
    await store.approvals.use(["apr_1", "apr_2"], "run_3")
    with pytest.raises(NotFound):
        await store.approvals.use(["apr_none"], "run_3")


async def test_pages_are_newest_first_and_narrowed(store: Store) -> None:
    """By status, run and key, page by page."""
    await begun(store)
    await begun(store, "2")
    for n in range(4):
        await store.approvals.file(asked(f"apr_{n}", f"call_{n}", run=f"run_{1 + n % 2}", key_id=f"key_{n % 2}"))
    await store.approvals.decide("apr_0", NO)
    page = store.approvals.page
    assert [row.id for row in await page(2)] == ["apr_3", "apr_2"]
    assert [row.id for row in await page(2, before="apr_2")] == ["apr_1", "apr_0"]
    assert [row.id for row in await page(status="pending", run_id="run_1")] == ["apr_2"]
    assert [row.id for row in await page(key_id="key_1")] == ["apr_3", "apr_1"]
    with pytest.raises(NotFound):
        await page(before="apr_none")


async def test_approvals_go_with_the_content_of_their_run(store: Store) -> None:
    """A purge and a deletion take the arguments along (A6)."""
    for name in ("1", "2"):
        journal = await begun(store, name)
        await store.approvals.file(asked(f"apr_{name}", run=f"run_{name}"))
        await journal.finish([], COMPLETED)
    await store.purge_run("run_1")
    await store.delete_run("run_2")
    assert await store.approvals.page() == []


async def test_rules_are_kept_found_and_removed(store: Store, clock: SetClock) -> None:
    """Rules are listed by key and tool, and go with their session (A6)."""
    await store.create_session(SessionRow(id="sess_1", created_at=clock.now, updated_at=clock.now))
    everywhere = RuleRow(id="rule_1", created_at=1.0, rule=ApprovalRule(kind="tool", tool="wipe", source="python"))
    here = RuleRow(
        id="rule_2",
        created_at=2.0,
        session_id="sess_1",
        key_id="key_1",
        rule=ApprovalRule(kind="pattern", tool="fetch", patterns={"url": "https://ä.example/*"}, covers_taint=True),
    )
    approvals = store.approvals
    await approvals.add_rule(everywhere)
    await approvals.add_rule(here)
    assert await approvals.rules() == [here, everywhere]
    assert await approvals.rules(key_id="key_1") == [here]
    assert await approvals.rules(tool="wipe") == [everywhere]
    with pytest.raises(NotFound):
        await approvals.add_rule(msgspec.structs.replace(here, id="rule_3", session_id="sess_none"))
    with pytest.raises(Conflict):
        await approvals.add_rule(everywhere)
    assert await approvals.delete_rule("rule_1", key_id="key_1") is False
    assert await approvals.delete_rule("rule_1") is True
    await store.delete_session("sess_1", with_runs=False)
    assert await approvals.rules() == []
