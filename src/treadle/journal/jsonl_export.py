"""Runs as JSON Lines, exactly: a line for the run, then one for each entry with its epoch and its hash. Pure.

What is exported can be audited without the store it came from. Content and data come back byte for byte: an entry's
data stands in its line as it is stored, or as a text (`data_text`) where it could not stand on one line; a text that
UTF-8 cannot encode (lone surrogates) is written as `{"base64": …}`.
"""

import base64
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from treadle.core.errors import ProtocolError
from treadle.core.events import ENDED
from treadle.core.journal_entries import Entry
from treadle.core.json import OptionalRaw, type_errors, write_json
from treadle.journal.hash_chain import LOST, StoredEntry
from treadle.journal.journal_interface import AuditLine, Evidence, RunRow
from treadle.journal.run_row_hash import SealedRow, amend, text_or_bytes

VERSION = 2
VERSIONS = (1, VERSION)
"""What can be read. The first has no seal of the run's row."""


class SealLine(msgspec.Struct, frozen=True, kw_only=True):
    """What of a run's row is sealed and stands nowhere else in its line, each as it is stored."""

    question: int | None
    usage: str | None
    error: str | None
    epoch: int
    head: int
    sha256: str
    amended: str | None
    body: OptionalRaw = None
    """The run's request as a text, where it cannot stand on one line as it is stored."""


class RunLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="run"):
    """The first line of a run: its row, how many entries follow, and the hash of the last one."""

    version: int
    entries: int
    sha256: str
    run: msgspec.Raw
    sealed: SealLine | None = None


class EntryLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="entry"):
    """One entry; its texts are strings, or `{"base64": …}` for one that UTF-8 cannot encode."""

    run_id: msgspec.Raw
    seq: int
    epoch: int
    kind: str
    at: float
    sha256: str = ""
    is_input: bool = False
    name: OptionalRaw = None
    call_id: OptionalRaw = None
    item_id: OptionalRaw = None
    content: OptionalRaw = None
    data: OptionalRaw = None
    data_text: OptionalRaw = None


class _Requested(msgspec.Struct):
    request: msgspec.Raw = msgspec.Raw(b"null")


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """A run read back from an export; `sealed` is its row, if the export has its seal."""

    row: RunRow
    sealed: SealedRow | None
    stored: list[StoredEntry]
    head: int
    sha256: str


_lines: msgspec.json.Decoder[RunLine | EntryLine] = msgspec.json.Decoder(RunLine | EntryLine)


def write_run(evidence: Evidence) -> Iterator[bytes]:
    """Yield the lines of a run."""
    row, sealed, entries = evidence.row, evidence.sealed, evidence.entries
    if not row.store and row.status in ENDED and not sealed.is_purged:
        # What is stored of it is only for the run that continues it: for all other readers it is purged already.
        entries, after = [], sealed._replace(body=None, sha256="")
        sealed = after._replace(amended=amend(sealed, after, is_purged=True))
    carried = {line.seq: line for line in evidence.lines if line.kind != LOST}
    stored = [entry for entry in entries if entry.seq in carried]
    last = carried[stored[-1].seq].sha256 if stored else ""
    values: dict[str, Any] = {name: getattr(sealed, name) for name in SealLine.__struct_fields__}
    values["body"] = _body(sealed.body)
    seal = SealLine(**values)
    line = RunLine(version=VERSION, entries=len(stored), sha256=last, run=_row(row), sealed=seal)
    yield msgspec.json.encode(line) + b"\n"
    for entry in stored:
        yield msgspec.json.encode(_entry_line(row.id, entry, carried[entry.seq])) + b"\n"


def sealed_of(row: RunRow, head: int, sha256: str, seal: SealLine | None = None) -> SealedRow:
    """Return a run's row with all that is sealed of it; without a seal, as much as the run itself has."""
    usage, error = (None if each is None else write_json(each).decode() for each in (row.usage, row.error))
    plain = SealLine(question=None, usage=usage, error=error, epoch=1, head=head, sha256=sha256, amended=None)
    values: dict[str, Any] = {name: getattr(row, name) for name in SealedRow._fields if hasattr(row, name)}
    values |= msgspec.structs.asdict(seal or plain)
    spelled = None if seal is None else _read(seal.body)
    request = row.request if spelled is None else msgspec.Raw(spelled.encode("utf-8", "surrogateescape"))
    values["body"] = text_or_bytes(request)
    return SealedRow(**values)


def read_runs(lines: Iterable[bytes], name: str = "export") -> Iterator[Exported]:
    """Read the runs of an export, one after the other; `name` is what errors call it.

    Raises: ProtocolError, naming the line.
    """
    current: Exported | None = None
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            line = _lines.decode(raw)
            if isinstance(line, RunLine):
                if current is not None:
                    yield current
                current = _begin(line)
            elif current is None:
                raise ValueError("an entry stands before the first run")
            else:
                current.stored.append(_stored_entry(line, current.row.id))
        except (*type_errors, ValueError) as error:
            raise ProtocolError(f"{name}:{number}: {error}", param="file") from None
    if current is not None:
        yield current


def _begin(line: RunLine) -> Exported:
    if line.version not in VERSIONS:
        raise ValueError(f"the version is {line.version}; this Treadle reads {' and '.join(map(str, VERSIONS))}")
    raw = msgspec.json.decode(line.run, type=_Requested).request
    fields: dict[str, Any] = msgspec.json.decode(line.run)
    known = {name: _unwrapped(value) for name, value in fields.items()}
    row = msgspec.convert({**known, "request": None}, RunRow)
    if bytes(raw) != b"null":
        row = msgspec.structs.replace(row, request=msgspec.Raw(bytes(raw)))
    sealed = None if line.sealed is None else sealed_of(row, line.entries, line.sha256, line.sealed)
    if sealed is not None and sealed.body is not None:
        body = sealed.body.encode() if isinstance(sealed.body, str) else sealed.body
        row = msgspec.structs.replace(row, request=msgspec.Raw(body))
    return Exported(row=row, sealed=sealed, stored=[], head=line.entries, sha256=line.sha256)


def _stored_entry(line: EntryLine, run_id: str) -> StoredEntry:
    if _read(line.run_id) != run_id:
        raise ValueError(f"an entry of run {_read(line.run_id)!r} stands among those of {run_id!r}")
    data = line.data
    if line.data_text is not None:
        data = msgspec.Raw((_read(line.data_text) or "").encode("utf-8", "surrogatepass"))
    entry = Entry(
        kind=msgspec.convert(line.kind, Entry.__annotations__["kind"]),
        at=line.at,
        seq=line.seq,
        content=_read(line.content),
        data=None if data is None else msgspec.Raw(bytes(data)),
        name=_read(line.name),
        call_id=_read(line.call_id),
        item_id=_read(line.item_id),
        is_input=line.is_input,
    )
    return StoredEntry(entry=entry, epoch=line.epoch, sha256=line.sha256 or None)


def _entry_line(run_id: str, entry: Entry, carried: AuditLine) -> EntryLine:
    data = None if entry.data is None else bytes(entry.data)
    is_inline = data is not None and _is_line(data)
    text = None if data is None or is_inline else data.decode("utf-8", "surrogatepass")
    return EntryLine(
        run_id=_required(run_id),
        seq=entry.seq,
        epoch=carried.epoch,
        kind=entry.kind,
        at=entry.at,
        sha256=carried.sha256,
        is_input=entry.is_input,
        name=_text(entry.name),
        call_id=_text(entry.call_id),
        item_id=_text(entry.item_id),
        content=_text(entry.content),
        data=entry.data if is_inline else None,
        data_text=_text(text),
    )


def _row(row: RunRow) -> msgspec.Raw:
    """Write a row on one line; a line break between the values of JSON means nothing."""
    if not row.store and row.status in ENDED:
        # What it was asked with is content too, which is stored for the run that comes next alone.
        row = msgspec.structs.replace(row, request=None)
    try:
        raw = msgspec.json.encode(row)
    except UnicodeEncodeError:
        fields = {name: getattr(row, name) for name in RunRow.__struct_fields__}
        raw = msgspec.json.encode({name: _wrapped(value) for name, value in fields.items()})
    return msgspec.Raw(raw.replace(b"\n", b" ").replace(b"\r", b" "))


def _body(body: str | bytes | None) -> msgspec.Raw | None:
    """Return a request that the row of its line does not hold byte for byte."""
    text = body.decode("utf-8", "surrogateescape") if isinstance(body, bytes) else body
    return _required(text) if text is not None and ("\n" in text or "\r" in text) else None


def _text(text: str | None) -> msgspec.Raw | None:
    return None if text is None else _required(text)


def _required(text: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(_wrapped(text)))


def _wrapped(value: object) -> object:
    """Return a value as JSON can encode it."""
    if not isinstance(value, str):
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return {"base64": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}
    return value


def _unwrapped(value: object) -> object:
    """Return a value that `_wrapped` was given. Raises: ValueError."""
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, object]", value)
    if list(fields) != ["base64"]:
        return fields
    return base64.b64decode(str(fields["base64"]), validate=True).decode("utf-8", "surrogatepass")


def _read(raw: msgspec.Raw | None) -> str | None:
    value = None if raw is None else _unwrapped(msgspec.json.decode(raw))
    if value is not None and not isinstance(value, str):
        raise ValueError(f"expected a text, got {type(value).__name__}")
    return value


def _is_line(data: bytes) -> bool:
    """Return whether JSON can stand in a line as it is: without a line break, and readable by everybody."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except type_errors:
        return False
    return b"\n" not in data and b"\r" not in data
