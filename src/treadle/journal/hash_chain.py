"""The hash chain of a run: what each entry's hash covers, and how a run is audited. Pure, the same for both databases.

The hash of an entry covers the hash before it, so a changed, lost or moved entry shows. It is no signature: a writer
of the database can also compute a new chain from the first changed entry on, up to the run's last hash. Entries
that were hashed in the old form are sound too, which weakens nothing: what is hashed begins with a digit in one form
and never in the other, so that a false entry still needs two texts with one sha256.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import AuditLine

LOST = "lost"
"""The kind, and the expected hash, of a line that stands for entries which are not there."""

EXTRA = "extra"
"""The expected hash of an entry that is numbered above the last one its run wrote."""


class StoredEntry(NamedTuple):
    """An entry as it is stored: with the epoch that wrote it and its hash, None from before the chain."""

    entry: Entry
    epoch: int
    sha256: str | None


Link = tuple[Any, ...]
"""An entry at its place: the hash of the entry before it (for the first the root, see `seal`), run id, number, epoch,
kind, whether it is input, time (a float, never minus zero), name, call id, item id, content, and data as bytes."""


def link_hash(link: Link) -> str:
    """Return the sha256 of an entry at its place: of the MessagePack of the twelve, each in its shortest form.

    Raises: UnicodeEncodeError, where a text is not valid Unicode: it has to be there as bytes, see `spell_out`.
    """
    return _sha256(_pack(link)).hexdigest()


def link_entries(
    entries: Iterable[Entry], run_id: str, epoch: int, seq: int, sha256: str
) -> Iterator[tuple[Entry, Link, str]]:
    """Yield entries with their links and hashes, behind the one that has this number and this hash.

    The texts of a link are as in its entry, but for those that are not valid Unicode: these are bytes.
    """
    for entry in entries:
        seq += 1
        raw = entry.data
        # In as few steps as can be: it is done for every entry. Adding zero makes -0.0 and 0.0 one number: not every
        # database stores them apart.
        link: Link = (
            sha256,
            run_id,
            seq,
            epoch,
            entry.kind,
            entry.is_input,
            entry.at + 0.0,
            entry.name,
            entry.call_id,
            entry.item_id,
            entry.content,
            None if raw is None else memoryview(raw),
        )
        try:
            sha256 = link_hash(link)
        except UnicodeEncodeError:
            link = spell_out(link)
            sha256 = link_hash(link)
        yield entry, link, sha256


def is_unicode(values: Link) -> bool:
    """Return whether all texts among the values are valid Unicode."""
    try:
        _pack(values)
    except UnicodeEncodeError:
        return False
    return True


def spell_out(link: Link) -> Link:
    """Return a link in which all texts can be written."""
    return tuple([spell(each) if isinstance(each, str) else each for each in link])


def spell(text: str) -> str | bytes:
    """Return a text, or the bytes that would be its UTF-8 if it is not valid Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def entry_hash(previous: str, run_id: str, seq: int, epoch: int, entry: Entry) -> str:
    """Return the sha256 of an entry at its place; `previous` is that of the entry before it, for the first the root."""
    [(_, _, sha256)] = link_entries([entry], run_id, epoch, seq - 1, previous)
    return sha256


def old_hash(previous: str, run_id: str, seq: int, epoch: int, entry: Entry) -> str:
    """Return the sha256 that an entry at its place had in the old form: each field with its length in bytes before it.

    It covers the place and a hash of the entry's values.
    """
    is_input, at = b"1" if entry.is_input else b"0", struct.pack(">d", entry.at + 0.0)
    data = None if entry.data is None else bytes(entry.data)
    texts = (entry.name, entry.call_id, entry.item_id, entry.content)
    body = _sha256(_sized(entry.kind, is_input, *texts, at, data)).digest()
    return _sha256(_sized(previous, run_id, str(seq), str(epoch), body)).hexdigest()


def audit_lines(
    run_id: str, stored: Iterable[StoredEntry], head: int, sha256: str, root: str = ""
) -> Iterator[AuditLine]:
    """Yield the lines of a run's audit; `head` and `sha256` are the number and the hash that its last entry had.

    A line is sound where its two hashes are equal, and from before the chain where both are empty. `root` is what the
    first entry follows, unless it is of a run from before there were roots.
    """
    before = (root, "") if root else ("",)
    is_chained = False
    last = 0
    for entry, epoch, found in stored:
        if entry.seq != last + 1:
            yield _lost(run_id, last + 1)
        last, expected = entry.seq, ""
        if found is not None or is_chained:
            is_chained = True
            fitting = _fitting(before, run_id, epoch, entry)
            expected = next(fitting)
            if found:
                expected = found if found != expected and found in fitting else expected
                before = (found,)
            else:
                # The hash was deleted: the next entry follows from what it was, in one form or the other.
                *_, former = fitting
                before = (expected, former)
        if last > head:
            expected = EXTRA
        elif last == head and expected == (found or ""):
            expected = sha256
        yield AuditLine(run_id=run_id, seq=last, epoch=epoch, kind=entry.kind, sha256=found or "", expected=expected)
    if last < head:
        yield _lost(run_id, last + 1)


def is_rooted(run_id: str, stored: Sequence[StoredEntry], root: str, sha256: str) -> bool:
    """Return whether the chain of a run begins with this root; one without entries ends there too."""
    if not stored:
        return sha256 == root
    first = stored[0]
    return first.sha256 == entry_hash(root, run_id, first.entry.seq, first.epoch, first.entry)


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
# What is a kind of text is taken as the text that it is.
_pack = msgspec.msgpack.Encoder(enc_hook=str.__str__).encode


def _sized(*fields: str | bytes | None) -> bytes:
    """Write fields so that no two different lists give the same bytes; what is not there is a dash."""
    written = [each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each for each in fields]
    return b"".join([b"-" if each is None else b"%d:%b" % (len(each), each) for each in written])


def _fitting(before: Sequence[str], run_id: str, epoch: int, entry: Entry) -> Iterator[str]:
    """Yield the hashes that an entry may have: of either form, behind each of these."""
    for previous in before:
        yield entry_hash(previous, run_id, entry.seq, epoch, entry)
        yield old_hash(previous, run_id, entry.seq, epoch, entry)


def _lost(run_id: str, seq: int) -> AuditLine:
    return AuditLine(run_id=run_id, seq=seq, epoch=0, kind=LOST, sha256="", expected=LOST)
