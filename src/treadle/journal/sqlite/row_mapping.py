"""Rows: canonical structs as columns and back, exactly. Nothing here runs a statement."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.core.json import write_json
from treadle.core.usage import Usage
from treadle.journal.hash_chain import StoredEntry, is_unicode, link_entries, plan_fingerprint, spell, spell_out
from treadle.journal.journal_interface import RunRow, is_inline, question_place
from treadle.journal.run_row_hash import SealedRow, read_or_none, root_hash
from treadle.journal.sql_steps import SqlDialect

Text = str | bytes | None
"""A text as SQLite can hold it: bytes where it is not valid Unicode."""


EventRow = tuple[str | bytes | float | None, ...]
"""An entry as the columns of its table behind the run's number, in their order."""
BLOB = 10
"""Where in it the name of data stands that is out of line."""


class SqliteChainHead(NamedTuple):
    """Where a run's chain ends: the number and the hash of its last entry."""

    head: int = 0
    sha256: str = ""


def root_place(row: RunRow, entries: Sequence[Entry]) -> SqliteChainHead:
    """Return where the chain of a new run begins, which starts with these entries."""
    return SqliteChainHead(0, root_hash(row, question_place(entries)))


class Chained(NamedTuple):
    """Entries as rows behind a place: the place after them, the rows, and what is too large to stand in its row."""

    place: SqliteChainHead
    rows: list[EventRow]
    large: dict[int, memoryview]


class RunColumns(NamedTuple):
    """A new run as the values of its insert, in that order."""

    id: Text
    response_id: Text
    conversation_id: Text
    previous_id: Text
    session_id: Text
    key_id: Text
    protocol: Text
    model: Text
    status: str
    store: bool
    background: bool
    created_at: float
    expires_at: float | None
    idempotency_key: Text
    request_sha256: Text
    question: int


class EndColumns(NamedTuple):
    """The end of a run as the values of its update, in that order."""

    status: str
    ended_at: float
    stop: str
    limit: Text
    usage: str | None
    error: str | None
    rounds: int
    calls: int


ENTRY_FIELDS = "e.seq, e.kind, e.is_input, e.at, e.name, e.call_id, e.item_id, e.content, e.data, b.data"
STORED_ENTRY_FIELDS = f"e.epoch, e.sha256, {ENTRY_FIELDS}"
RUN_FIELDS = """r.id, r.response_id, r.conversation_id, (SELECT p.id FROM runs p WHERE p.n = r.previous), r.session_id,
 r.key_id, r.protocol, r.model, r.status, r.store, r.background, r.created_at, r.ended_at, r.expires_at, r.stop,
 r.limit_name, r.usage, r.error, r.rounds, r.calls, (SELECT q.body FROM requests q WHERE q.run = r.n),
 r.idempotency_key, r.request_sha256"""
SEALED_FIELDS = """r.id, r.response_id, r.conversation_id,
 CASE WHEN r.previous IS NOT NULL THEN coalesce((SELECT p.id FROM runs p WHERE p.n = r.previous), '?') END,
 r.session_id, r.key_id, r.protocol, r.model, r.store, r.background, r.created_at, r.expires_at, r.idempotency_key,
 r.request_sha256, r.question, (SELECT q.body FROM requests q WHERE q.run = r.n), r.status, r.ended_at, r.stop,
 r.limit_name, r.usage, r.error, r.rounds, r.calls, r.epoch, r.head, r.sha256, r.amended"""

_usage = msgspec.json.Decoder(Usage)
_error = msgspec.json.Decoder(ErrorInfo)


def bind_text(text: str | None) -> Text:
    """Return the text as a value that SQLite stores exactly."""
    return text if text is None or text.isascii() else spell(text)


def bind_text_list(texts: Sequence[str]) -> str:
    """Return texts as JSON for `json_each`; what is not Unicode equals nothing that is stored."""
    return msgspec.json.encode([text.encode("utf-8", "replace").decode() for text in texts]).decode()


def bind_json(raw: bytes | memoryview) -> str | bytes:
    """Return JSON as text where it is valid UTF-8, so that people can read and query it."""
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        return bytes(raw)


def chain_entries(
    entries: Sequence[Entry], run_id: str, epoch: int, place: SqliteChainHead, *, shares_input: bool = False
) -> Chained:
    """Chain entries to a place and write them as rows; input that is shared with other runs stands in few of these."""
    rows: list[EventRow] = []
    large: dict[int, memoryview] = {}
    sha256 = place.sha256
    for entry, link, sha256 in link_entries(entries, run_id, epoch, *place):
        view = link[-1]
        data = fingerprint = None
        if view is not None:
            if is_inline(len(view), shares_input and entry.is_input):
                data = bind_json(view)
            else:
                large[len(rows)] = view
            if entry.kind == "plan":
                fingerprint = bind_text(plan_fingerprint(entry))
        rows.append((*link[2:11], data, None, sha256, fingerprint))
    return Chained(SqliteChainHead(place.head + len(rows), sha256), rows, large)


def read_entry(values: Sequence[Any]) -> Entry:
    """Read an entry from ENTRY_FIELDS; the last two are its data inline and out of line."""
    seq, kind, is_input, at, name, call_id, item_id, content, inline, blob = values
    data = blob if inline is None else inline
    return Entry(
        kind=kind,
        at=at,
        seq=seq,
        content=read_text(content),
        data=None if data is None else msgspec.Raw(data),
        name=read_text(name),
        call_id=read_text(call_id),
        item_id=read_text(item_id),
        is_input=bool(is_input),
    )


def read_stored_entry(values: Sequence[Any]) -> StoredEntry:
    """Read an entry from KEPT_FIELDS."""
    return StoredEntry(entry=read_entry(values[2:]), epoch=values[0], sha256=values[1])


def run_columns(row: RunRow, entries: Sequence[Entry]) -> RunColumns:
    """Write a new run, which begins with these entries, as columns."""
    columns = RunColumns(
        row.id,
        row.response_id,
        row.conversation_id,
        row.previous_id,
        row.session_id,
        row.key_id,
        row.protocol,
        row.model,
        row.status,
        row.store,
        row.background,
        row.created_at,
        row.expires_at,
        row.idempotency_key,
        row.request_sha256,
        question_place(entries),
    )
    return columns if is_unicode(columns) else RunColumns._make(spell_out(columns))


def ended_columns(ended: RunEnded) -> EndColumns:
    """Write how a run ended as columns."""
    return EndColumns(
        ended.status,
        ended.ended_at,
        ended.stop,
        None if ended.limit is None else bind_text(ended.limit),
        None if ended.usage is None else write_json(ended.usage).decode(),
        None if ended.error is None else _write_error(ended.error),
        ended.rounds,
        ended.calls,
    )


def read_run(values: Sequence[Any]) -> RunRow:
    """Read a run from RUN_FIELDS."""
    usage, error, request = values[16], values[17], values[20]
    return RunRow(
        id=values[0],
        response_id=values[1],
        conversation_id=values[2],
        previous_id=values[3],
        session_id=values[4],
        key_id=values[5],
        protocol=values[6],
        model=values[7],
        status=values[8],
        store=bool(values[9]),
        background=bool(values[10]),
        created_at=values[11],
        ended_at=values[12],
        expires_at=values[13],
        stop=values[14],
        limit=values[15],
        usage=read_or_none(_usage, usage),
        error=read_or_none(_error, error),
        rounds=values[18],
        calls=values[19],
        request=None if request is None else msgspec.Raw(request),
        idempotency_key=values[21],
        request_sha256=values[22],
    )


def read_sealed(values: Sequence[Any]) -> SealedRow:
    """Read a run's row from SEALED_FIELDS; a flag that is neither 0 nor 1 stays the number that it is."""
    row = SealedRow._make(values)
    return row._replace(store=_flag(row.store), background=_flag(row.background))


def _flag(value: Any) -> Any:
    return bool(value) if value in (0, 1) else value


def read_text(value: str | bytes | None) -> str | None:
    """Read a text, also one that SQLite could only store as bytes; bytes that are no text at all are damage."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        # It is read as another text than was written, and the hash chain shows that.
        return value.decode("utf-8", "surrogateescape")


def _write_error(error: ErrorInfo) -> str:
    try:
        return write_json(error).decode()
    except UnicodeEncodeError:
        # A run must be able to end whatever its error quotes; JSON has no spelling for a lone surrogate.
        message = error.message.encode("utf-8", "replace").decode()
        return write_json(ErrorInfo(code=error.code, message=message, status=error.status)).decode()


def _bind_plain(_column: str, text: str | None) -> Text:
    # The schema refuses bytes in these columns.
    return bind_text(text)


def _read_json(value: str | bytes) -> str | bytes:
    return value


DIALECT = SqlDialect(
    bind_text=bind_text,
    bind_plain=_bind_plain,
    text_or_none=read_text,
    bind_json=bind_json,
    read_json=_read_json,
    bind_list=bind_text_list,
    fold_case=str.casefold,
    all_rows=-1,
    in_list="IN (SELECT value FROM json_each({}))",
    holds="holds({}, {})",
    same_key="{} = {}",
    lock="",
    entry_fields=ENTRY_FIELDS,
    run_fields=RUN_FIELDS,
    sealed_fields=SEALED_FIELDS,
    read_entry=read_entry,
    read_run=read_run,
    read_sealed=read_sealed,
)
