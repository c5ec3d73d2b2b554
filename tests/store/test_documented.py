"""docs/journal.md says what the journal is: its promises, its tables, its view, and queries that run."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import apsw
import pytest

from store.sample import COMPLETED, LEASE_S, OWNER, called, planned, resulted, run_row, said
from treadle.core.errors import ErrorInfo
from treadle.core.events import RunEnded
from treadle.core.journal_entries import EntryKind
from treadle.journal import journal_interface as journal
from treadle.journal.sqlite.store import SqliteStore

DOCUMENT = (Path(__file__).parents[2] / "docs" / "journal.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"^```sql\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)
ERROR = ErrorInfo(code="boom", message="it broke", status=502)


def words(text: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(text.split())


def rows_of(heading: str) -> list[list[str]]:
    """Return the cells of the table under a line that begins with `heading`."""
    lines = DOCUMENT[DOCUMENT.index(f"\n{heading}") + 1 :].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return cells[: next(n for n, line in enumerate(lines) if not line.startswith("|"))]


def names(cell: str) -> list[str]:
    """Return the names in a cell."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[apsw.Connection]:
    """A file with a conversation of two runs, as somebody else reads it."""
    store = SqliteStore(str(tmp_path / "journal.db"))
    await store.open()
    asked = [said("weather?", is_input=True), planned("f1")]
    first = await store.start_run(run_row("1", conversation_id="conv_1"), asked, owner=OWNER, lease_s=LEASE_S)
    await first.append([called("call_1"), resulted("call_1"), called("call_2")])
    await first.finish([said("22 °C", "assistant")], COMPLETED)
    row = run_row("2", conversation_id="conv_1", previous_id="run_1")
    second = await store.start_run(row, [said("and now?", is_input=True), planned("f1")], owner=OWNER, lease_s=LEASE_S)
    await second.finish([planned("f2")], RunEnded(status="failed", error=ERROR, ended_at=1_010.0))
    reading = apsw.Connection(store.path, flags=apsw.SQLITE_OPEN_READONLY)
    yield reading
    reading.close()
    await store.close()


def test_every_promise_is_there_word_for_word() -> None:
    """As the interface writes them, all and no other."""
    written = re.findall(r"^ (J\d+) +(.*?)(?=^ J\d+ |\Z)", journal.__doc__ or "", re.DOTALL | re.MULTILINE)
    shown = re.findall(r"^- \*\*(J\d+ .*?)(?=^- |\Z)", DOCUMENT, re.DOTALL | re.MULTILINE)
    assert [words(f"{name} {text}") for name, text in written] == [words(text.replace("**", "")) for text in shown]
    assert len(written) == 17


async def test_every_table_and_column_is_named(connection: apsw.Connection) -> None:
    """All that are there, in their order, and no other."""
    sql = """SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c
             WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' ORDER BY t.name, c.cid"""
    there: dict[str, list[str]] = {}
    for table, column in connection.execute(sql):
        there.setdefault(str(table), []).append(str(column))
    assert {names(table)[0]: names(columns) for table, _, columns in rows_of("| table |")} == there


async def test_every_column_of_the_view_is_named(connection: apsw.Connection) -> None:
    """In the order of the view."""
    found = [str(name) for (name,) in connection.execute("SELECT name FROM pragma_table_info('messages')")]
    assert [name for column, _ in rows_of("| column |") for name in names(column)] == found


def test_every_kind_of_entry_is_named() -> None:
    """As the canonical entries have them."""
    kinds = [name for kind, _ in rows_of("| kind of entry |") for name in names(kind)]
    assert sorted(kinds) == sorted(get_args(EntryKind))


def test_the_bound_of_inline_data_is_the_one_that_holds() -> None:
    """What is larger is a blob."""
    assert f"Data above {journal.INLINE_BYTES_MAX:,} bytes is a **blob**" in DOCUMENT


FOUND: list[list[tuple[Any, ...]]] = [
    [
        ("user", "weather?"),
        (
            "assistant",
            '[{"id":"call_1","type":"function","function":'
            '{"name":"get_weather","arguments":"{\\"city\\":\\"Paris\\"}"}}]',
        ),
        ("tool", '{"temp_c":22}'),
        ("assistant", "22 °C"),
        ("user", "and now?"),
    ],
    [("get_weather", 2, 1)],
    [("run_2", "demo", 1_000.0, '{"code":"boom","message":"it broke","status":502}')],
    [("f1", 2), ("f2", 1)],
]


@pytest.mark.parametrize("number", range(len(QUERIES)))
async def test_a_query_gives_what_it_says(connection: apsw.Connection, number: int) -> None:
    """On a conversation of two runs, one call of which has no result."""
    assert connection.execute(QUERIES[number]).fetchall() == FOUND[number]


def test_no_query_is_left_out() -> None:
    """Each has its answer above."""
    assert len(QUERIES) == len(FOUND)
