"""Rows: canonical structs as columns and back, exactly. Nothing here runs a statement.

PostgreSQL stores neither NUL nor a lone surrogate in a text, so each is stored as U+FDD0 (a code point without a
character) and the four hex digits of its number, and U+FDD0 itself likewise. Equal texts stay equal, different
ones different.
"""

import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from treadle.core.errors import ErrorInfo, ProtocolError
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.core.json import write_json
from treadle.core.usage import Usage
from treadle.journal.journal_interface import RunRow
from treadle.journal.run_row_hash import SealedRow, read_or_none, text_or_bytes
from treadle.journal.sql_steps import SqlDialect

MARK = "\ufdd0"
_ODD = re.compile("[\x00\ud800-\udfff\ufdd0]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MARKED = re.compile("\ufdd0([0-9a-f]{4})")

ENTRY_FIELDS = "e.seq, e.kind, e.is_input, e.at, e.name, e.call_id, e.item_id, e.content, e.data, b.data AS blob"
RUN_FIELDS = """r.id, r.response_id, r.conversation_id, (SELECT p.id FROM runs p WHERE p.n = r.previous) AS previous_id,
 r.session_id, r.key_id, r.protocol, r.model, r.status, r.store, r.background, r.created_at, r.ended_at, r.expires_at,
 r.stop, r.limit_name, r.usage, r.error, r.rounds, r.calls, r.idempotency_key, r.request_sha256,
 (SELECT q.body FROM requests q WHERE q.run = r.n) AS body"""
SEALED_FIELDS = """r.id, r.response_id, r.conversation_id,
 CASE WHEN r.previous IS NOT NULL THEN coalesce((SELECT p.id FROM runs p WHERE p.n = r.previous), '?') END
 AS previous_id, r.session_id, r.key_id, r.protocol, r.model, r.store, r.background, r.created_at, r.expires_at,
 r.idempotency_key, r.request_sha256, r.question, (SELECT q.body FROM requests q WHERE q.run = r.n) AS body, r.status,
 r.ended_at, r.stop, r.limit_name, r.usage, r.error, r.rounds, r.calls, r.epoch, r.head, r.sha256, r.amended"""

_usage = msgspec.json.Decoder(Usage)
_error = msgspec.json.Decoder(ErrorInfo)


class RunColumns(NamedTuple):
    """A new run as the values of its insert, in that order."""

    id: str
    response_id: str
    conversation_id: str
    previous_id: str | None
    session_id: str | None
    key_id: str
    protocol: str
    model: str
    status: str
    store: bool
    background: bool
    created_at: float
    expires_at: float | None
    idempotency_key: str | None
    request_sha256: str
    body: str | None


class EndColumns(NamedTuple):
    """The end of a run as the values of its update, in that order."""

    status: str
    ended_at: float
    stop: str
    limit: str | None
    usage: str | None
    error: str | None
    rounds: int
    calls: int


def bind_text(text: str | None) -> str | None:
    """Return the text as PostgreSQL can store it."""
    if text is None or (text.isascii() and "\x00" not in text):
        return text
    return _ODD.sub(_mark, text)


def read_text(stored: str | None) -> str | None:
    """Return the text that was stored."""
    return _MARKED.sub(_unmark, stored) if stored is not None and MARK in stored else stored


def bind_data(raw: bytes | memoryview) -> str:
    """Return bytes as a text: as they are where they are UTF-8, so that people can read and query them."""
    text = str(raw, "utf-8", "surrogateescape")
    return text if text.isascii() and "\x00" not in text else _ODD.sub(_mark, text)


def read_data(stored: str) -> bytes:
    """Return the bytes that were stored."""
    return (_MARKED.sub(_unmark, stored) if MARK in stored else stored).encode("utf-8", "surrogateescape")


def bind_plain(column: str, text: str | None) -> str | None:
    """Return a text for a column that is searched, which must be Unicode.

    Raises: ProtocolError, naming the column.
    """
    if text is not None and not text.isascii() and _SURROGATE.search(text):
        raise ProtocolError(f"a field is not plain Unicode text: {column}")
    return bind_text(text)


def read_entry(values: Sequence[Any]) -> Entry:
    """Read an entry from ENTRY_FIELDS; the last two are its data inline and out of line."""
    seq, kind, is_input, at, name, call_id, item_id, content, inline, blob = values[:10]
    data = blob if inline is None else read_data(inline)
    return Entry(
        kind=kind,
        at=at,
        seq=seq,
        content=read_text(content),
        data=None if data is None else msgspec.Raw(data),
        name=read_text(name),
        call_id=read_text(call_id),
        item_id=read_text(item_id),
        is_input=is_input,
    )


def run_columns(row: RunRow) -> RunColumns:
    """Write a new run as columns.

    Raises: ProtocolError.
    """
    texts = _run_texts(row)
    # Nearly always all of them can be stored as they are.
    together = "".join(filter(None, texts))
    if not together.isascii() or "\x00" in together:
        texts = [bind_plain(f"runs.{name}", text) for name, text in zip(_RUN_TEXTS, texts, strict=True)]
    body = None if row.request is None else bind_data(row.request)
    more = (row.status, row.store, row.background, row.created_at, row.expires_at)
    return RunColumns._make((*texts[:8], *more, *texts[8:], body))


_RUN_TEXTS = (
    "id",
    "response_id",
    "conversation_id",
    "previous_id",
    "session_id",
    "key_id",
    "protocol",
    "model",
    "idempotency_key",
    "request_sha256",
)
_run_texts: Callable[[RunRow], Sequence[Any]] = attrgetter(*_RUN_TEXTS)


def ended_columns(ended: RunEnded) -> EndColumns:
    """Write how a run ended as columns."""
    return EndColumns(
        ended.status,
        ended.ended_at,
        ended.stop,
        bind_text(ended.limit),
        None if ended.usage is None else write_json(ended.usage).decode(),
        None if ended.error is None else write_error(ended.error),
        ended.rounds,
        ended.calls,
    )


def write_error(error: ErrorInfo) -> str:
    """Write an error as text. A run must be able to end whatever its error quotes."""
    try:
        return bind_data(write_json(error))
    except UnicodeEncodeError:
        # JSON has no spelling for a lone surrogate.
        message = error.message.encode("utf-8", "replace").decode()
        return bind_data(write_json(ErrorInfo(code=error.code, message=message, status=error.status)))


def read_run(values: Sequence[Any]) -> RunRow:
    """Read a run from RUN_FIELDS."""
    usage, error, request = values[16], values[17], values[22]
    texts: dict[str, Any] = dict(zip(_READ_TEXTS, map(read_text, values[:9]), strict=True))
    return RunRow(
        **texts,
        store=values[9],
        background=values[10],
        created_at=values[11],
        ended_at=values[12],
        expires_at=values[13],
        stop=values[14],
        limit=read_text(values[15]),
        usage=read_or_none(_usage, usage),
        error=None if error is None else read_or_none(_error, read_data(error)),
        rounds=values[18],
        calls=values[19],
        idempotency_key=read_text(values[20]),
        request_sha256=values[21],
        request=None if request is None else msgspec.Raw(read_data(request)),
    )


_READ_TEXTS = (
    "id",
    "response_id",
    "conversation_id",
    "previous_id",
    "session_id",
    "key_id",
    "protocol",
    "model",
    "status",
)


def read_sealed(values: Sequence[Any]) -> SealedRow:
    """Read a run's row from SEALED_FIELDS; a text that is marked where it need not be stays as it is stored."""
    row = SealedRow._make(values)
    texts = {name: _exactly(getattr(row, name), read_text, bind_text) for name in _SEALED_TEXTS}
    error = None if row.error is None else _exactly(row.error, read_data, bind_data)
    body = None if row.body is None else _exactly(str(row.body), read_data, bind_data)
    return row._replace(
        **texts,
        error=error.decode("utf-8", "surrogateescape") if isinstance(error, bytes) else error,
        body=text_or_bytes(msgspec.Raw(body)) if isinstance(body, bytes) else body,
    )


_SEALED_TEXTS = (
    *("id", "response_id", "conversation_id", "previous_id", "session_id", "key_id", "protocol", "model"),
    *("idempotency_key", "request_sha256", "status", "stop", "limit", "amended"),
)


def _exactly(stored: Any, read: Callable[[Any], Any], bind: Callable[[Any], Any]) -> Any:
    value = read(stored)
    return value if bind(value) == stored else stored


def _mark(found: re.Match[str]) -> str:
    return f"{MARK}{ord(found[0]):04x}"


def _unmark(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))


def _bind_list(texts: Sequence[str]) -> list[str | None]:
    return [*map(bind_text, texts)]


DIALECT = SqlDialect(
    bind_text=bind_text,
    bind_plain=bind_plain,
    text_or_none=read_text,
    bind_json=bind_data,
    read_json=read_data,
    bind_list=_bind_list,
    fold_case=str,
    all_rows=None,
    in_list="= ANY({}::text[])",
    holds="strpos(lower({}), lower({}::text)) > 0",
    same_key="key_of({}) = key_of({})",
    lock=" FOR UPDATE",
    entry_fields=ENTRY_FIELDS,
    run_fields=RUN_FIELDS,
    sealed_fields=SEALED_FIELDS,
    read_entry=read_entry,
    read_run=read_run,
    read_sealed=read_sealed,
)
