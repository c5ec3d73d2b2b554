"""What the supervisor logs of a run: names, codes and messages of failures, never what was asked or answered."""

import asyncio
import gc
import logging

import pytest

from treadle.canon.errors import UpstreamTimeout
from unit.engine.fakes import FakeModel, say
from unit.runs.test_service import asking, events_of, running


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
