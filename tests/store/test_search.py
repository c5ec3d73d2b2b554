"""Runs are looked for by what they were and by what was said in them, the same way in every store."""

from typing import Any

import pytest

from store.sample import COMPLETED, LEASE_S, OWNER, called, resulted, run_row, said
from treadle.core.errors import ErrorInfo, NotFound
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import RunSearch, Store

FAILED = RunEnded(
    status="failed", error=ErrorInfo(code="rate_limited", message="slow\x00down", status=429), ended_at=1_010.0
)


async def keep(store: Store, name: str, entries: list[Entry], ended: RunEnded = COMPLETED, **fields: Any) -> None:
    """Keep an ended run."""
    journal = await store.start_run(run_row(name, **fields), [], owner=OWNER, lease_s=LEASE_S)
    await journal.append(entries)
    await journal.finish([], ended)


async def found(store: Store, **wanted: Any) -> list[str]:
    """Return the names of the runs that are found."""
    return [row.id.removeprefix("run_") for row in await store.search_runs(RunSearch(**wanted))]


async def fill(store: Store) -> None:
    """Keep four runs that differ in everything that can be looked for."""
    await keep(store, "a", [said("The weather in Paris?"), called("c1"), resulted("c1", "rain")])
    await keep(store, "b", [said("Anything")], FAILED, model="other", key_id="key_1")
    await keep(store, "c", [said("ÜBER all"), said("done", "assistant")], created_at=2_000.0)
    await keep(store, "d", [called("c1", is_input=True), resulted("c1", is_input=True)], model="other")


async def test_runs_are_found_by_model_tool_error_and_time(store: Store) -> None:
    """Each narrows for itself and together with the others; nothing wanted is everything, newest first."""
    await fill(store)
    assert await found(store) == ["d", "c", "b", "a"]
    assert await found(store, model="other") == ["d", "b"]
    assert await found(store, tool="get_weather") == ["a"]
    assert await found(store, error="") == ["b"]
    assert await found(store, error="rate_limited") == ["b"]
    assert await found(store, error="timeout") == []
    assert await found(store, since=1_500.0) == ["c"]
    assert await found(store, model="other", key_id="key_1") == ["b"]
    assert await found(store, model="other", status="completed") == ["d"]
    assert await found(store, model="\udc80") == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("paris", ["d", "a"]),
        ("über", ["c"]),
        ("DONE", ["c"]),
        ("22 °C", ["d", "a"]),
        ("100%", []),
        ("_", ["d", "a"]),
        ("\udc80", []),
    ],
)
async def test_runs_are_found_by_what_was_said_in_them(store: Store, text: str, names: list[str]) -> None:
    """Without regard to case, in what was asked, said, called and answered; signs of patterns are letters."""
    await fill(store)
    assert await found(store, text=text) == names


async def test_what_is_found_comes_in_pages(store: Store) -> None:
    """Pages join without a gap; an unknown cursor is refused by name."""
    await fill(store)
    wanted = RunSearch(model="other")
    assert [row.id for row in await store.search_runs(wanted, limit=1)] == ["run_d"]
    assert [row.id for row in await store.search_runs(wanted, limit=1, before="run_d")] == ["run_b"]
    assert await store.search_runs(wanted, before="run_b") == []
    with pytest.raises(NotFound, match="run_x"):
        await store.search_runs(wanted, before="run_x")
