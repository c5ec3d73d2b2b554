"""Reads of the journal: what they cost, and that what an older Treadle wrote is found too."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

from store.sample import called, run_row, said
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.run_queries import RunQueries
from treadle.journal.sql_steps import Steps
from treadle.journal.sqlite.connection import connect, run_steps, select
from treadle.journal.sqlite.leased_writes import RunStart
from treadle.journal.sqlite.migrations import migrate, read_migrations
from treadle.journal.sqlite.queries import STATEMENTS
from treadle.journal.sqlite.row_mapping import DIALECT, SqliteChainHead, chain_entries, ended_columns, run_columns

T = TypeVar("T")

RUNS = 20
QUERIES = RunQueries(DIALECT, STATEMENTS)
WAITING = RunEnded(status="requires_action", ended_at=2.0)
LAST = (Entry(kind="plan", at=1.0), Entry(kind="reasoning", at=1.0))


@pytest.fixture
def connection(tmp_path: Path) -> apsw.Connection:
    """An empty journal."""
    opened = connect(str(tmp_path / "q.db"))
    migrate(opened, read_migrations(), 1.0)
    return opened


def keep(connection: apsw.Connection, name: str, inputs: int) -> None:
    """Keep a run that was asked once, long before, and hands a call to its client."""
    row = run_row(name)
    talk = [said("go", is_input=True), *(said("done", "assistant", is_input=True) for _ in range(inputs))]
    entries = [*talk, *LAST, called(f"call_{name}")]
    chained = chain_entries(entries, row.id, 1, SqliteChainHead())
    RunStart(run_columns(row, entries), None, "me", 20.0, chained, ended_columns(WAITING))(connection)


def read(connection: apsw.Connection, steps: Callable[..., Steps[T]], *values: Any) -> T:
    """Run steps of the queries."""
    return run_steps(partial(steps, *values), connection)


def steps(connection: apsw.Connection, names: list[str]) -> int:
    """Return how many steps of SQLite's machine it takes to find the turns of some runs."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    connection.set_progress_handler(step, 1)
    try:
        found = read(connection, QUERIES.find_turns, [f"call_{name}" for name in names], ["go"], None)
        assert set(read(connection, QUERIES.questions, [f"run_{name}" for name in names]).values()) == {"go"}
    finally:
        connection.set_progress_handler(None)
    assert [turn.run_id for turn in found] == [f"run_{name}" for name in reversed(names)]
    return count


def test_turns_are_found_without_going_through_what_was_said_before_them(connection: apsw.Connection) -> None:
    """A client that runs tools itself sends all its calls with every request: what each costs must not grow."""
    few, many = [f"few{n}" for n in range(RUNS)], [f"many{n}" for n in range(RUNS)]
    for short, long in zip(few, many, strict=True):
        keep(connection, short, 2)
        keep(connection, long, 200)
    assert steps(connection, many) < steps(connection, few) * 1.1


def test_a_run_of_an_older_treadle_is_found_by_its_question(connection: apsw.Connection) -> None:
    """It has no number for it, so its input is gone through."""
    keep(connection, "1", 3)
    keep(connection, "2", 3)
    select(connection, "UPDATE runs SET question = NULL WHERE id = 'run_1'")
    assert [turn.run_id for turn in read(connection, QUERIES.find_turns, ["call_1", "call_2"], ["go"], None)] == [
        "run_2",
        "run_1",
    ]
    assert read(connection, QUERIES.questions, ["run_1", "run_2"]) == {"run_1": "go", "run_2": "go"}
    assert read(connection, QUERIES.find_turns, ["call_1", "call_2"], ["stop"], None) == []
