"""The chain: what an entry's hash is taken of, and how a run is audited; the same for every engine, and pure.

The hash of an entry covers the hash before it, so a changed, lost or moved entry shows. It is no signature: whoever
can write the database can also compute a new chain from the first changed entry on, up to the run's last hash.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from treadle.canon.messages import Entry
from treadle.store.journal import AuditLine

LOST = "lost"
"""The kind, and the expected hash, of a line that stands for entries which are not there."""

EXTRA = "extra"
"""The expected hash of an entry that is numbered above the last one its run wrote."""


class KeptEntry(NamedTuple):
    """An entry as it is stored: with the epoch that wrote it and its hash, None from before the chain."""

    entry: Entry
    epoch: int
    sha256: str | None


Link = tuple[int, str, bytes | None, bool]
"""An entry in its chain: its number, its hash, its data as bytes, and whether all its texts are ASCII."""


def link_entries(entries: Iterable[Entry], run_id: str, epoch: int, head: int, sha256: str) -> list[Link]:
    """Chain entries behind the one that has this number and this hash; zero and empty for the first."""
    run, owner = _sized(run_id), f"{len(str(epoch))}:{epoch}"
    links: list[Link] = []
    for entry in entries:
        head += 1
        # As `body_hash` and `entry_hash` do it, but without a call and by few expressions: it is done for every entry.
        kind, name, call_id, item_id, content = entry.kind, entry.name, entry.call_id, entry.item_id, entry.content
        text = (
            f"{len(kind)}:{kind}1:{'1' if entry.is_input else '0'}"
            f"{'-' if name is None else f'{len(name)}:{name}'}"
            f"{'-' if call_id is None else f'{len(call_id)}:{call_id}'}"
            f"{'-' if item_id is None else f'{len(item_id)}:{item_id}'}"
            f"{'-' if content is None else f'{len(content)}:{content}'}"
        )
        is_plain = text.isascii()
        # The lengths in it are those of the bytes only where all of it is ASCII.
        texts = text.encode() if is_plain else _fields(entry)
        raw, at = entry.data, _pack(entry.at + 0.0)
        data = None if raw is None else bytes(raw)
        body = b"%b8:%b-" % (texts, at) if data is None else b"%b8:%b%d:" % (texts, at, len(data)) + data
        seq = str(head)
        place = f"{len(sha256)}:{sha256}{run}{len(seq)}:{seq}{owner}32:"
        sha256 = _sha256(place.encode("utf-8", "surrogatepass") + _sha256(body).digest()).hexdigest()
        links.append((head, sha256, data, is_plain))
    return links


def body_hash(entry: Entry) -> bytes:
    """Return the sha256 of what an entry says, wherever it will stand."""
    # Adding zero makes -0.0 and 0.0 one number: not every engine keeps them apart.
    texts, at = _fields(entry), _pack(entry.at + 0.0)
    data = b"-" if entry.data is None else b"%d:%b" % (len(entry.data), bytes(entry.data))
    return _sha256(b"%b8:%b%b" % (texts, at, data)).digest()


def entry_hash(previous: str, run_id: str, seq: int, epoch: int, body: bytes) -> str:
    """Return the sha256 of an entry at its place; `previous` is that of the entry before it, empty for the first."""
    text = f"{len(previous)}:{previous}{_sized(run_id)}{_sized(str(seq))}{_sized(str(epoch))}{len(body)}:"
    return _sha256(text.encode("utf-8", "surrogatepass") + body).hexdigest()


def audit_lines(run_id: str, kept: Iterable[KeptEntry], head: int, sha256: str) -> Iterator[AuditLine]:
    """Yield the lines of a run's audit; `head` and `sha256` are the number and the hash that its last entry had.

    A line is sound where its two hashes are equal, and from before the chain where both are empty.
    """
    previous, last = "", 0
    for entry, epoch, stored in kept:
        if entry.seq != last + 1:
            yield _lost(run_id, last + 1)
        is_old = stored is None and not previous
        expected = "" if is_old else entry_hash(previous, run_id, entry.seq, epoch, body_hash(entry))
        previous, last = stored or expected, entry.seq
        if last > head:
            expected = EXTRA
        elif last == head and expected == (stored or ""):
            expected = sha256
        yield AuditLine(run_id=run_id, seq=last, epoch=epoch, kind=entry.kind, sha256=stored or "", expected=expected)
    if last < head:
        yield _lost(run_id, last + 1)


def plan_fingerprint(entry: Entry) -> str | None:
    """Return the fingerprint that a plan's entry carries, by which the run is found; None for any other entry."""
    if entry.kind != "plan" or entry.data is None:
        return None
    try:
        return _plan.decode(entry.data).fingerprint
    except (msgspec.DecodeError, UnicodeError):
        return None


class _Plan(msgspec.Struct):
    fingerprint: str | None = None


_plan = msgspec.json.Decoder(_Plan)
_sha256 = hashlib.sha256
_pack = struct.Struct(">d").pack


# What is hashed is written so that no two different lists give the same bytes: each field with its length in bytes,
# none as a dash.


def _fields(entry: Entry) -> bytes:
    """Write the texts of an entry, whatever they are."""
    is_input = "1" if entry.is_input else "0"
    written: list[bytes] = []
    for text in (entry.kind, is_input, entry.name, entry.call_id, entry.item_id, entry.content):
        data = None if text is None else text.encode("utf-8", "surrogatepass")
        written.append(b"-" if data is None else b"%d:%b" % (len(data), data))
    return b"".join(written)


def _sized(text: str) -> str:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return f"{size}:{text}"


def _lost(run_id: str, seq: int) -> AuditLine:
    return AuditLine(run_id=run_id, seq=seq, epoch=0, kind=LOST, sha256="", expected=LOST)
