"""What the supervisor logs of a run: names, codes and messages of failures, never what was asked or answered."""

import asyncio
import gc
import logging

import pytest

from treadle.core.errors import UpstreamTimeout
from treadle.engine.limits import Limits
from treadle.journal.approvals_store import StoredApprovals
from treadle.runs.run_supervisor import EndingGate
from unit.engine.fakes import FakeModel, say
from unit.runs.approvals.test_deferred_calls import asked, going_on
from unit.runs.replay.test_approvals import REPLIES, Hands, process
from unit.runs.test_run_service import asking, events_of, running

WAIT_S = 5.0


async def test_a_failed_run_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    """A warning names the run, the model, the code and the message."""
    caplog.set_level(logging.INFO, "treadle.runs")
    async with running(FakeModel(UpstreamTimeout("the upstream fell silent"))) as (runs, _):
        told = await events_of(runs, asking("a secret question"))
    [record] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert record.getMessage() == "run failed: upstream_timeout: the upstream fell silent"
    about = vars(record)
    assert (about["run_id"], about["model"], about["code"]) == (told[0].event.run_id, "m", "upstream_timeout")
    assert "secret" not in caplog.text


async def test_a_run_that_ends_well_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It is told at the level of information."""
    caplog.set_level(logging.INFO, "treadle.runs")
    async with running(FakeModel(say("done"))) as (runs, _):
        await events_of(runs, asking())
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("INFO", "run completed")]


async def test_a_beginning_that_breaks_is_told_to_whoever_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug on the way to the journal fails one request, which does not wait for ever, and is heard of."""

    def broken(*_: object, **__: object) -> None:
        raise LookupError("a bug")

    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about["exception"]))
    async with running(FakeModel(say("done"))) as (runs, store):
        monkeypatch.setattr(store, "start_run", broken)
        with pytest.raises(LookupError, match="a bug"):
            await asyncio.wait_for(runs.start(asking()), 5)
    gc.collect()
    assert [str(error) for error in told] == ["a bug"]


async def test_who_leaves_before_the_beginning_cancels_the_run() -> None:
    """The run goes through its beginning all the same, and then ends as cancelled."""
    async with running(FakeModel(say("done"))) as (runs, store):
        starting = asyncio.create_task(runs.start(asking()))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await asyncio.wait_for(runs.close(5), 5)
        rows = await store.list_runs()
    assert [row.status for row in rows] == ["cancelled"]


async def test_a_run_that_is_handed_over_before_its_first_step_is_begun_and_left_to_others() -> None:
    """A process that leaves at that moment lets nobody wait for ever, and cancels nothing."""
    async with running(FakeModel(say("done"))) as (runs, store):
        starting = asyncio.create_task(runs.start(asking(background=True)))
        for _ in range(100):
            await asyncio.sleep(0)
            if runs._live:
                break
        [live] = runs._live.values()
        assert not live.is_driven
        await asyncio.wait_for(runs.close(), WAIT_S)
        handle = await asyncio.wait_for(starting, WAIT_S)
        row = await store.find_run(handle.run_id)
        assert row is not None
        assert (row.status, runs._live) == ("running", {})
        assert [each.id for each, _ in await store.claim_abandoned("other", 15.0, 1)] == [row.id]


async def test_a_run_that_is_handed_over_while_it_becomes_durable_is_left_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody cancelled it: it is there for whoever claims it."""
    async with running(FakeModel(say("done"))) as (runs, store):
        gate, entered, start_run = asyncio.Event(), asyncio.Event(), store.start_run

        async def slow(*what: object, **how: object) -> object:
            entered.set()
            await gate.wait()
            return await start_run(*what, **how)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "start_run", lambda *what, **how: asyncio.ensure_future(slow(*what, **how)))
        starting = asyncio.create_task(runs.start(asking(background=True)))
        await asyncio.wait_for(entered.wait(), WAIT_S)
        closing = asyncio.create_task(runs.close())
        await asyncio.sleep(0)
        gate.set()
        await asyncio.wait_for(closing, WAIT_S)
        row = await store.find_run((await asyncio.wait_for(starting, WAIT_S)).run_id)
        assert row is not None
        assert row.status == "running"


async def test_who_leaves_while_calls_are_taken_up_cancels_the_run_and_nothing_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was approved does not run later, by whoever would find the run without an owner."""
    hands = Hands()
    async with process(FakeModel(*REPLIES), hands) as at:
        previous, ids = await asked(at)
        gate, entered, use = asyncio.Event(), asyncio.Event(), StoredApprovals.use

        async def slow(approvals: StoredApprovals, approval_ids: tuple[str, ...], run_id: str) -> None:
            entered.set()
            await gate.wait()
            await use(approvals, approval_ids, run_id)

        monkeypatch.setattr(StoredApprovals, "use", slow)
        request = going_on(previous, (ids["b"], True), (ids["c"], True))
        starting = asyncio.create_task(at.runs.start(request, limits=Limits(approvals="defer")))
        await asyncio.wait_for(entered.wait(), WAIT_S)
        starting.cancel()
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(starting, WAIT_S)
        await asyncio.wait_for(at.runs.close(WAIT_S), WAIT_S)
        assert [row.status for row in await at.store.list_runs()] == ["cancelled", "requires_action"]
        assert hands.ran == ["a"]


async def test_runs_that_said_much_are_ended_a_few_at_a_time() -> None:
    """In the order they came; one that is larger than all that may be ended at once is ended alone."""
    gate, ended = EndingGate(text_max=10, wait_s=60.0), list[int]()

    async def end(size: int) -> None:
        await gate.enter(size)
        ended.append(size)

    ends = [asyncio.create_task(end(size)) for size in (4, 6, 30, 2, 3)]
    for leaving, expected in ((0, [4, 6]), (4, [4, 6]), (6, [4, 6, 30]), (30, [4, 6, 30, 2, 3])):
        if leaving:
            gate.leave(leaving)
        for _ in range(3):
            await asyncio.sleep(0)
        assert ended == expected
    await asyncio.gather(*ends)


async def test_a_run_does_not_wait_for_ever_to_be_ended() -> None:
    """Not even for one whose write hangs, and what it said counts until it is written."""
    gate = EndingGate(text_max=10, wait_s=0.01)
    await gate.enter(8)
    async with asyncio.timeout(20):
        await gate.enter(5)
    gate.leave(8)
    await gate.enter(3)
    gate.leave(5)
    gate.leave(3)
    await gate.enter(10)


async def test_a_run_that_waits_to_be_ended_is_ended_though_it_is_cancelled_again() -> None:
    """As while its end is written."""
    gate = EndingGate(text_max=10, wait_s=60.0)
    await gate.enter(10)
    waiting = asyncio.create_task(gate.enter(1))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.leave(10)
    async with asyncio.timeout(20):
        await waiting
