"""What the supervisor logs of a run: names, codes and messages of failures, never what was asked or answered."""

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
