"""What the commands on the journal share: times as people write them, and runs as they name them."""

import asyncio
from datetime import datetime
from pathlib import Path

import pytest

from treadle.cli.open_journal import LAST, PAGE, aligned, find_run, find_runs, opened, read_since
from treadle.config import Settings, StoreSection
from treadle.core.errors import ConfigError, RequestError
from treadle.providers.fakes.scripted_model import ScriptTurn
from unit.cli.own_journal import here as here
from unit.cli.stored import run_script, settings_in


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("12h", 43_200), ("7d", 604_800), (" 2w ", 1_209_600)]
)
def test_an_age_is_counted_from_now(text: str, seconds: float) -> None:
    """In seconds, minutes, hours, days or weeks."""
    assert read_since(text, 2_000_000.0) == 2_000_000.0 - seconds


def test_a_day_and_a_time_are_meant_here_unless_they_say_otherwise() -> None:
    """The local time zone, or the one that is written."""
    assert read_since("2026-11-16", 0.0) == datetime(2026, 11, 16).astimezone().timestamp()
    assert read_since("2026-11-16T08:30:00+00:00", 0.0) == 1_794_817_800.0


@pytest.mark.parametrize("text", ["", "soon", "7 days", "2026-13-01", "-1d", "9999999999999d"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """With a hint how to write one."""
    with pytest.raises(RequestError) as caught:
        read_since(text, 0.0)
    assert (caught.value.param, "7d" in (caught.value.hint or "")) == ("since", True)


async def test_runs_are_found_by_id_by_response_and_as_the_last(here: Path) -> None:
    """The newest is `last`; all of them come oldest first, over as many pages as it takes."""
    count = PAGE + 3
    ids = await run_script(here, *(ScriptTurn(text="x") for _ in range(count)), prompts=["hi"] * count)
    async with opened(settings_in(here)) as store:
        assert [row.id for row in await find_runs(store, [])] == ids
        row = await find_run(store, ids[0])
        assert (await find_run(store, row.response_id)).id == ids[0]
        assert (await find_run(store, LAST)).id == ids[-1]
        assert [row.id for row in await find_runs(store, [ids[1], LAST, ids[1]])] == [ids[1], ids[-1]]


async def test_reading_takes_over_no_run(here: Path) -> None:
    """A command that looks at the journal is no server: what a dead process left stays for one."""
    await run_script(here)
    async with opened(settings_in(here)) as store:
        assert await store.cancel_requests("anybody") == []
        names = {task.get_name() for task in asyncio.all_tasks()}
    assert "treadle-heartbeat" not in names


async def test_nothing_is_kept_where_nothing_is_stored() -> None:
    """And that is a matter of the configuration."""
    with pytest.raises(ConfigError, match="nothing is kept"):
        async with opened(Settings(store=StoreSection(url="sqlite:///x.db", persistence="off"))):
            pass


def test_columns_are_straight() -> None:
    """Without spaces at the end."""
    assert aligned([("a", "bb", ""), ("aaa", "b", "c")]) == ["a    bb", "aaa  b   c"]
