"""Reads of the journal on PostgreSQL: what they go through."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from postgres import postgres_server
from store.sample import called, run_row, said
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.postgres import queries as query
from treadle.journal.postgres.connection import connect
from treadle.journal.postgres.store import PostgresStore
from treadle.journal.store_url import PostgresAddress

RUNS, INPUTS = 30, 200
PLAN = Entry(kind="plan", at=1.0)
THOUGHT = Entry(kind="reasoning", at=1.0)
WAITING = RunEnded(status="requires_action", ended_at=2.0)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a node of a plan and all below it."""
    yield plan
    for each in plan.get("Plans", ()):
        yield from nodes(each)


def visited(plan: dict[str, Any], table: str) -> float:
    """Return how many rows of a table a plan went through."""
    found = [node for node in nodes(plan) if node.get("Relation Name") == table]
    return sum((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in found)


@pytest.fixture
async def opened() -> AsyncIterator[tuple[PostgresStore, Any]]:
    """An empty journal, and a connection of one's own to it."""
    address = PostgresAddress(postgres_server().url())
    store = PostgresStore(address)
    await store.open()
    connection = await connect(address)
    yield store, connection
    await asyncio.gather(connection.close(), store.close())


async def test_turns_are_found_without_going_through_what_was_said_before_them(
    opened: tuple[PostgresStore, Any],
) -> None:
    """Of each run a few entries, however many it holds."""
    store, connection = opened
    talk = [said("go", is_input=True), *(said("done", "assistant", is_input=True) for _ in range(INPUTS))]
    for n in range(RUNS):
        begun = [*talk, PLAN, THOUGHT, called(f"call_{n}")]
        journal = await store.start_run(run_row(str(n)), begun, owner="me", lease_s=60.0)
        await journal.finish([], WAITING)
    asked = ([f"call_{n}" for n in range(RUNS)], None, ["go"], 256)
    await connection.execute("ANALYZE")
    told = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query.STATEMENTS.find_turns}", *asked)
    [found] = json.loads(told)
    assert found["Plan"]["Actual Rows"] == RUNS * 2
    assert visited(found["Plan"], "events") < RUNS * 20


async def test_a_run_of_an_older_treadle_is_found_by_its_question(opened: tuple[PostgresStore, Any]) -> None:
    """It has no number for it, so its input is gone through; the same while an older process still writes."""
    store, connection = opened
    begun = [said("go", is_input=True), said("done", "assistant", is_input=True), PLAN, THOUGHT, called("call_1")]
    journal = await store.start_run(run_row("1"), begun, owner="me", lease_s=60.0)
    await journal.finish([], WAITING)
    await connection.execute("UPDATE runs SET question = NULL")
    assert [turn.run_id for turn in await store.find_turns(["call_1"], ["go"])] == ["run_1"]
    assert await store.find_turns(["call_1"], ["stop"]) == []
    assert await store.questions(["run_1"]) == {"run_1": "go"}
