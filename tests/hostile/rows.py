"""The whole table: every class with what is tried, or with the tests that try it."""

import tomllib
from pathlib import Path

import msgspec

from hostile import rows_auth, rows_http, rows_json, rows_output, rows_protocol, rows_upstream
from hostile.table import Row
from hostile.upstream import Reply

HERE = Path(__file__).parent
LIVE: tuple[Row, ...] = (
    *rows_http.ROWS,
    *rows_json.ROWS,
    *rows_protocol.ROWS,
    *rows_upstream.ROWS,
    *rows_output.ROWS,
    *rows_auth.ROWS,
)
REPLIES: dict[str, Reply] = {
    **rows_protocol.REPLIES,
    **rows_upstream.REPLIES,
    **rows_output.REPLIES,
    **rows_auth.REPLIES,
}


def classes() -> list[str]:
    """Return the name of every class that there is."""
    groups = tomllib.loads((HERE / "classes.toml").read_text())
    return [f"{group}.{name}" for group, fields in groups.items() for name in fields["classes"]]


def covered() -> list[Row]:
    """Return the rows whose classes are tried by tests elsewhere."""
    given = tomllib.loads((HERE / "covered.toml").read_text())
    return [msgspec.convert({**fields, "id": name}, Row) for name, fields in given.items()]


def table() -> list[Row]:
    """Return every row, in the order of the classes."""
    order = {name: place for place, name in enumerate(classes())}
    return sorted((*LIVE, *covered()), key=lambda row: order.get(row.id, len(order)))
