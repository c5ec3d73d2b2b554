"""The seal of a run's row: what is hashed of it, so that a changed column shows. The same for every engine, and pure.

Three parts of a row are proved in three ways, and none of them costs an extra write:

- What a run begins with (its ids, key, model, request …) is the **root**: its hash stands where the first entry's chain
  expects the hash before it. A change of the row breaks the chain at its first entry.
- How it ended is in its last entry word for word, and the row must agree.
- What changes later (the run before it was deleted, its session was, its content was) is **amended**: the row then
  holds what it was, and a hash of what it is. An amendment of a row that was changed by hand does not hide that.
"""

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from treadle.core.json import type_errors

if TYPE_CHECKING:
    from treadle.journal.journal_interface import RunRow

_ROOT, _LINKS, _PURGED = "root", "links", "purged"
_pack = msgspec.msgpack.Encoder(enc_hook=str.__str__).encode
_sha256 = hashlib.sha256

T = TypeVar("T")


class SealedRow(NamedTuple):
    """All of a run's row that is sealed, each value as it was before an engine wrote it in its own way.

    `body`, `usage` and `error` are JSON as it is stored. A value that no Treadle would have written is as it was found.
    """

    id: str
    response_id: str
    conversation_id: str
    previous_id: str | None
    session_id: str | None
    key_id: str
    protocol: str
    model: str
    store: bool
    background: bool
    created_at: float
    expires_at: float | None
    idempotency_key: str | None
    request_sha256: str
    question: int | None
    body: str | bytes | None
    status: str
    ended_at: float | None
    stop: str | None
    limit: str | None
    usage: str | None
    error: str | None
    rounds: int
    calls: int
    epoch: int
    head: int
    sha256: str
    amended: str | None

    @property
    def root(self) -> str:
        """Return the hash of what the run began with, as far as the row still knows it."""
        amendment = read_amendment(self.amended)
        if amendment is None:
            return _hash(_ROOT, self[:_BEGINNING])
        was = self._replace(previous_id=amendment.previous_id, session_id=amendment.session_id)
        return _hash(_ROOT, was[:_BEGINNING])

    @property
    def is_purged(self) -> bool:
        """Return whether the row records that the content was forgotten on purpose."""
        amendment = read_amendment(self.amended)
        if amendment is not None:
            return amendment.is_purged
        # Before there were amendments a purge cleared the two, which no other end leaves so.
        return self.ended_at is not None and self.head == 0 and self.sha256 == ""


_BEGINNING = SealedRow._fields.index("status")
"""How many of the values are there when a run begins."""


class Amendment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a row was when its run began, where it is something else now, and the hash of what it is."""

    sha256: str
    previous_id: str | None = None
    session_id: str | None = None
    is_purged: bool = False


_amendment = msgspec.json.Decoder(Amendment)


def root_hash(row: "RunRow", question: int) -> str:
    """Return the hash in which a run's chain begins."""
    body = text_or_bytes(row.request)
    return _hash(
        _ROOT,
        (
            row.id,
            row.response_id,
            row.conversation_id,
            row.previous_id,
            row.session_id,
            row.key_id,
            row.protocol,
            row.model,
            row.store,
            row.background,
            row.created_at + 0.0,
            None if row.expires_at is None else row.expires_at + 0.0,
            row.idempotency_key,
            row.request_sha256,
            question,
            body,
        ),
    )


def read_or_none(decoder: "msgspec.json.Decoder[T]", text: str | bytes | None) -> T | None:
    """Read JSON of a row. What was damaged reads as if it were not there; the audit reports it."""
    try:
        return None if text is None else decoder.decode(text)
    except (*type_errors, UnicodeEncodeError):
        return None


def amend(before: SealedRow, after: SealedRow, *, is_purged: bool = False) -> str | None:
    """Return what `amended` of a row must be that becomes another one.

    One that was not sound before does not become so.
    """
    known = read_amendment(before.amended)
    if known is None:
        known = Amendment(sha256="", previous_id=before.previous_id, session_id=before.session_id)
    elif not is_sound(before):
        return before.amended
    change = msgspec.structs.replace(known, is_purged=before.is_purged or is_purged)
    sealed = msgspec.structs.replace(change, sha256=_amended_hash(after, change))
    return msgspec.json.encode(sealed).decode()


def is_sound(row: SealedRow) -> bool:
    """Return whether a row agrees with its amendment; one without is proved by its chain alone."""
    amendment = read_amendment(row.amended)
    if amendment is None:
        return row.amended is None
    is_canonical = msgspec.json.encode(amendment).decode() == row.amended
    return is_canonical and amendment.sha256 == _amended_hash(row, amendment)


def read_amendment(text: str | None) -> Amendment | None:
    """Read an amendment; None where there is none, or what stands there is not one."""
    try:
        return None if text is None else _amendment.decode(text)
    except (*type_errors, UnicodeEncodeError):
        return None


def _amended_hash(row: SealedRow, amendment: Amendment) -> str:
    was = (amendment.previous_id, amendment.session_id)
    if amendment.is_purged:
        # The chain is gone, so all that is left of the row is sealed.
        return _hash(_PURGED, (*row[:-1], *was))
    return _hash(_LINKS, (row.id, row.previous_id, row.session_id, *was))


def _hash(kind: str, values: tuple[Any, ...]) -> str:
    try:
        packed = _pack((kind, *values))
    except UnicodeEncodeError:
        packed = _pack((kind, *[_spelled(each) for each in values]))
    return _sha256(packed).hexdigest()


def _spelled(value: object) -> object:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def text_or_bytes(raw: msgspec.Raw | None) -> str | bytes | None:
    """Return JSON as it is sealed: as text where it is valid UTF-8."""
    try:
        return None if raw is None else str(raw, "utf-8")
    except UnicodeDecodeError:
        return bytes(raw or b"")
