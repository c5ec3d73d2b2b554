"""Database work that is written once for SQLite and PostgreSQL: steps are a generator that yields SQL statements.

Each step yields `(sql, *values)` and is sent the rows; parameters are numbered `$1`. An engine drives the steps on one
of its connections. Opening connections, transactions and retries do not belong here.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import RunRow
from treadle.journal.run_row_hash import SealedRow

T = TypeVar("T")

Steps = Generator[tuple[Any, ...], Sequence[Any], T]


class SqlDialect(msgspec.Struct, frozen=True, kw_only=True):
    """How one database spells values and the parts of SQL in which databases differ.

    `all_rows` is the LIMIT of a statement without one; `in_list`, `holds` and `same_key` are templates of conditions;
    `lock` ends a SELECT whose rows this transaction is going to change, and is empty where writers take turns.
    """

    bind_text: Callable[[str | None], Any]
    bind_plain: Callable[[str, str | None], Any]
    text_or_none: Callable[[Any], str | None]
    bind_json: Callable[[bytes], Any]
    read_json: Callable[[Any], bytes | str]
    bind_list: Callable[[Sequence[str]], Any]
    fold_case: Callable[[str], str]
    all_rows: int | None
    in_list: str
    holds: str
    same_key: str
    lock: str
    entry_fields: str
    run_fields: str
    sealed_fields: str
    read_entry: Callable[[Sequence[Any]], Entry]
    read_run: Callable[[Sequence[Any]], RunRow]
    read_sealed: Callable[[Sequence[Any]], SealedRow]

    def text(self, value: Any) -> str:
        """Read a text from a column that is never NULL."""
        return self.text_or_none(value) or ""

    def bind_raw(self, raw: msgspec.Raw | None) -> Any:
        """Return JSON as the database stores it."""
        return None if raw is None else self.bind_json(bytes(raw))

    def read_raw(self, value: Any) -> msgspec.Raw | None:
        """Read JSON from a column that may be NULL."""
        return None if value is None else msgspec.Raw(self.read_json(value))

    def bind_struct(self, value: msgspec.Struct) -> Any:
        """Return a struct as the database stores JSON."""
        return self.bind_json(msgspec.json.encode(value))


class RunSteps(Protocol):
    """Runs steps on a connection of the store."""

    async def __call__(self, steps: Callable[[], Steps[T]], /) -> T:
        """Return what the steps return."""
        ...


class WriteSteps(Protocol):
    """Runs steps that write; `settle` finds out whether a write whose answer was lost was done, and what it returned.

    Without one, doing the steps twice must be the same as doing them once.
    """

    async def __call__(
        self, steps: Callable[[], Steps[T]], settle: "Callable[[], Steps[T | None]] | None" = None, /
    ) -> T:
        """Return what the steps return."""
        ...


class Access(NamedTuple):
    """What the tables of a store are read and written with.

    `write` is for a single statement, `transact` for several that are done together or not at all, `forget` for a
    transaction that deletes content, and may take its time.
    """

    dialect: SqlDialect
    read: RunSteps
    write: WriteSteps
    transact: WriteSteps
    forget: RunSteps


class Tables:
    """The base of what is stored beside runs: keys, approvals, workspaces and login tickets."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._dialect = access.dialect

    async def fetch(self, sql: str, *values: Any) -> Sequence[Any]:
        """Return the rows of a statement that changes nothing."""
        return await self._access.read(partial(single, sql, *values))

    async def execute(self, sql: str, *values: Any) -> Sequence[Any]:
        """Return the rows of a statement that writes."""
        return await self._access.write(partial(single, sql, *values))


def single(*statement: Any) -> Steps[Sequence[Any]]:
    """Run one statement and return its rows."""
    return (yield statement)


INTEGER_MAX = 2**62


def within(number: int) -> int:
    """Return the number, or the nearest that a database can count with: callers pass on what clients asked for."""
    return max(0, min(number, INTEGER_MAX))
