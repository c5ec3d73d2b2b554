"""The chain: what an entry's hash depends on, and what an audit finds."""

import hashlib
import struct
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.journal_entries import Entry
from treadle.journal.hash_chain import EXTRA, LOST, StoredEntry, audit_lines, entry_hash, link_hash, old_hash, spell_out
from treadle.journal.journal_interface import AuditLine

ENTRY = Entry(
    kind="tool_call", at=1.5, content="c", data=msgspec.Raw(b"{}"), name="n", call_id="i", item_id="m", is_input=False
)
PLACE = ("", "run_1", 1, 1)
Form = Callable[[str, str, int, int, Entry], str]
FORMS: list[Form] = [entry_hash, old_hash]
in_every_form = pytest.mark.parametrize("form", FORMS)
any_text = st.none() | st.text(st.characters(codec=None, exclude_categories=()), max_size=5)
entries = st.builds(
    Entry,
    kind=st.sampled_from(["user", "note"]),
    at=st.floats(allow_nan=False),
    content=any_text | st.sampled_from(["x" * 31, "x" * 32, "x" * 255, "é" * 128, "x" * 65_536]),
    name=any_text,
    call_id=any_text,
    item_id=any_text,
    is_input=st.booleans(),
    data=st.none() | st.builds(msgspec.Raw, st.binary(max_size=5) | st.sampled_from([b"x" * 256, b"x" * 65_536])),
)
numbers = st.integers(0, 300) | st.sampled_from([0xFFFF, 0x1_0000, 0xFFFF_FFFF, 0x1_0000_0000, 2**63])
places = st.tuples(st.text(max_size=3), st.text(max_size=3), numbers, numbers)


def packed(value: object) -> bytes:
    """Write a value as docs/journal.md says it: as MessagePack, each in its shortest form."""
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return bytes([value]) if value < 128 else _headed(value, {1: 0xCC, 2: 0xCD, 4: 0xCE, 8: 0xCF})
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            try:
                data = value.encode()
            except UnicodeEncodeError:
                return packed(value.encode("utf-8", "surrogatepass"))
            short = bytes([0xA0 + len(data)]) if len(data) < 32 else None
            return (short or _headed(len(data), {1: 0xD9, 2: 0xDA, 4: 0xDB})) + data
        case bytes():
            return _headed(len(value), {1: 0xC4, 2: 0xC5, 4: 0xC6}) + value
        case _:
            raise AssertionError(value)


def _headed(number: int, heads: dict[int, int]) -> bytes:
    size = next(size for size in heads if number < 256**size)
    return bytes([heads[size]]) + number.to_bytes(size, "big")


def written(previous: str, run_id: str, seq: int, epoch: int, entry: Entry) -> bytes:
    """Write an entry at its place by nothing but this file."""
    fields = [previous, run_id, seq, epoch, entry.kind, entry.is_input, float(entry.at) or 0.0]
    fields += [entry.name, entry.call_id, entry.item_id, entry.content]
    data = None if entry.data is None else bytes(entry.data)
    return b"\x9c" + b"".join(map(packed, [*fields, data]))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_hash_is_of_a_written_form() -> None:
    """What docs/journal.md says of the encoding, spelled out: another program can check a chain."""
    first = b"\x9c\xa0\xa5run_1\x01\x01\xa9tool_call\xc2\xcb\x3f\xf8\0\0\0\0\0\0\xa1n\xa1i\xa1m\xa1c\xc4\x02{}"
    assert written(*PLACE, ENTRY) == first
    assert entry_hash(*PLACE, ENTRY) == _sha256(first)
    later = b"\x9c\xd9\x40" + b"ab" * 32 + b"\xa5run_1\xcd\x01\x2c\x03\xa4user\xc3\xcb" + b"\0" * 8 + b"\xc0" * 5
    assert entry_hash("ab" * 32, "run_1", 300, 3, Entry(kind="user", at=-0.0, is_input=True)) == _sha256(later)
    odd = Entry(kind="note", at=0.0, content="a\udc80", name="é\0")
    told = b"\x9c\xa0\xa5run_1\x01\x01\xa4note\xc2\xcb" + b"\0" * 8 + b"\xa3\xc3\xa9\0\xc0\xc0\xc4\x04a\xed\xb2\x80\xc0"
    assert entry_hash(*PLACE, odd) == _sha256(told)


@pytest.mark.parametrize(
    ("seq", "entry", "expected"),
    [
        (1, ENTRY, "ab1867cc26b51a41cce1c34aa272274075523182c83217325f9a827c164abe77"),
        (
            2**31,
            Entry(kind="user", at=1, content="naïve 🜁" * 40, is_input=True),
            "eb846bcb76d60a9fb04a54d6d6358e3f4f369614dfc1298545cdc78efba0300b",
        ),
        (
            70_000,
            Entry(kind="note", at=1e300, item_id="\ud800", data=msgspec.Raw(b"\xff" * 70_000)),
            "7e3150e567cf0e573b75f92e99fe336e2347683f18e94306b714155368967d71",
        ),
    ],
    ids=["call", "text", "bytes"],
)
def test_the_hash_of_an_entry_never_changes(seq: int, entry: Entry, expected: str) -> None:
    """Whatever Python and whatever library writes it: what is in a journal must be sound for ever."""
    assert entry_hash("ab" * 32, "run_1", seq, 2, entry) == expected
    assert _sha256(written("ab" * 32, "run_1", seq, 2, entry)) == expected


@given(places, entries)
def test_the_quick_writer_writes_what_the_plain_one_does(place: tuple[str, str, int, int], entry: Entry) -> None:
    """The one in C, and the one in this file that anybody can read."""
    assert entry_hash(*place, entry) == _sha256(written(*place, entry))


class Word(str):
    """A kind of text."""


def test_only_what_is_said_counts_and_not_which_object_says_it() -> None:
    """Equal texts, interned or not, and of a kind of their own; data as bytes, or as a view of them."""
    link = ("", "run_1", 1, 1, "note", True, 1.0, "name", "name", None, "content", b"{}")
    others: list[tuple[Any, ...]] = [
        (*link[:7], sys.intern("name"), "".join(["na", "me"]), *link[9:]),
        (*link[:7], Word("name"), *link[8:]),
        (*link[:-1], memoryview(msgspec.Raw(b"{}"))),
        (*link[:-1], memoryview(b"[{}]")[1:3]),
        spell_out(link),
    ]
    assert {link_hash(other) for other in others} == {link_hash(link)}


def test_a_text_that_is_not_unicode_has_to_be_spelled_out() -> None:
    """Whoever keeps it as bytes hears of it here."""
    link = ("", "run_\ud800", 1, 1, "note", True, 1.0, None, "\x00", "é", "a\udfff", None)
    with pytest.raises(UnicodeEncodeError):
        link_hash(link)
    out = spell_out(link)
    assert (out[1], out[7:11]) == (b"run_\xed\xa0\x80", (None, "\x00", "é", b"a\xed\xbf\xbf"))
    assert link_hash(out) == entry_hash(
        "", "run_\ud800", 1, 1, Entry(kind="note", at=1, is_input=True, call_id="\0", item_id="é", content="a\udfff")
    )


def test_the_old_form_is_kept_as_it_was() -> None:
    """Journals hold it, and other programs may have read it."""
    body = hashlib.sha256(b"9:tool_call1:01:n1:i1:m1:c8:" + b"\x3f\xf8\0\0\0\0\0\0" + b"2:{}").digest()
    assert old_hash("", "run_1", 1, 1, ENTRY) == _sha256(b"0:5:run_11:11:132:" + body)
    nothing = hashlib.sha256(b"4:user1:1----8:" + b"\0" * 8 + b"-").digest()
    bare = Entry(kind="user", at=-0.0, is_input=True)
    assert old_hash("ab", "run_1", 12, 3, bare) == _sha256(b"2:ab5:run_12:121:332:" + nothing)
    odd = hashlib.sha256(b"4:note1:0--3:\xed\xb2\x802:\xc3\xa98:" + b"\0" * 8 + b"-").digest()
    said = Entry(kind="note", at=0.0, item_id="\udc80", content="é")
    assert old_hash("", "é", 1, 1, said) == _sha256(b"0:2:\xc3\xa91:11:132:" + odd)


@in_every_form
@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "tool_result"},
        {"at": 1.25},
        {"content": "d"},
        {"content": ""},
        {"content": None},
        {"data": msgspec.Raw(b"{ }")},
        {"data": None},
        {"name": "i", "call_id": "n"},
        {"name": "ni", "call_id": ""},
        {"item_id": "\udc80"},
        {"is_input": True},
    ],
)
def test_every_field_counts(form: Form, changed: dict[str, object]) -> None:
    """Also where two fields together read the same."""
    assert form(*PLACE, msgspec.structs.replace(ENTRY, **changed)) != form(*PLACE, ENTRY)


@in_every_form
@given(entries, entries)
def test_two_entries_have_one_hash_only_if_they_are_equal(form: Form, left: Entry, right: Entry) -> None:
    """The written form has no two readings; the number is no part of what an entry says."""
    assert (form(*PLACE, left) == form(*PLACE, right)) is (left == right)
    assert form(*PLACE, msgspec.structs.replace(left, seq=9)) == form(*PLACE, left)


@in_every_form
@given(places, places)
def test_two_places_have_one_hash_only_if_they_are_equal(
    form: Form, left: tuple[str, str, int, int], right: tuple[str, str, int, int]
) -> None:
    """Whatever the texts and the numbers in it are."""
    assert (form(*left, ENTRY) == form(*right, ENTRY)) is (left == right)


@in_every_form
def test_the_place_counts(form: Form) -> None:
    """The entry before, the run, the number and the epoch."""
    places = [("", "run_1", 1, 1), ("a", "run_1", 1, 1), ("", "run_2", 1, 1), ("", "run_1", 2, 1), ("", "run_1", 1, 2)]
    assert len({form(*place, ENTRY) for place in places}) == len(places)


@given(places, entries)
def test_the_two_forms_have_nothing_in_common(place: tuple[str, str, int, int], entry: Entry) -> None:
    """What is hashed in the old form begins with a digit: nothing can be read in both."""
    assert written(*place, entry)[:1] == b"\x9c"
    assert entry_hash(*place, entry) != old_hash(*place, entry)


def chained(count: int, forms: str = "nnnnn") -> list[StoredEntry]:
    """A run of notes as it is stored; `forms` says for each whether its hash is of the old or of the new form."""
    kept: list[StoredEntry] = []
    previous = ""
    for seq, form in zip(range(1, count + 1), forms, strict=False):
        entry = Entry(kind="note", at=1.0, seq=seq, content=str(seq))
        previous = {"o": old_hash, "n": entry_hash}[form](previous, "run_1", seq, 1, entry)
        kept.append(StoredEntry(entry, 1, previous))
    return kept


HISTORIES = ["nnnnn", "ooooo", "oonnn", "ooonn"]
"""A run from now, one from before, and two that were gone on with."""
in_every_history = pytest.mark.parametrize("forms", HISTORIES)


def audit(kept: list[StoredEntry], forms: str = "nnnnn", sha256: str | None = None) -> list[AuditLine]:
    """Audit a run whose last hash is that of four untouched notes."""
    last = chained(4, forms)[-1].sha256 or ""
    return list(audit_lines("run_1", kept, 4, last if sha256 is None else sha256))


def broken(lines: list[AuditLine]) -> list[tuple[int, str]]:
    """Return number and kind of the lines that are not sound."""
    return [(line.seq, line.kind) for line in lines if line.sha256 != line.expected]


@in_every_history
def test_an_untouched_run_is_sound(forms: str) -> None:
    """Every line has the hash it should have."""
    lines = audit(chained(4, forms), forms)
    assert [line.seq for line in lines] == [1, 2, 3, 4]
    assert [line.sha256 for line in lines] == [line.expected for line in lines]


@in_every_history
@pytest.mark.parametrize("place", range(4))
def test_a_changed_entry_is_named(place: int, forms: str) -> None:
    """It alone, because those after it still follow from the hash it carries."""
    kept = chained(4, forms)
    entry = msgspec.structs.replace(kept[place].entry, content="changed")
    kept[place] = kept[place]._replace(entry=entry)
    assert broken(audit(kept, forms)) == [(place + 1, "note")]


@in_every_form
@in_every_history
@pytest.mark.parametrize("place", range(4))
def test_a_changed_entry_with_a_new_hash_is_found_by_the_next(place: int, forms: str, form: Form) -> None:
    """Or by the hash that the run remembers of its last entry."""
    kept = chained(4, forms)
    entry = msgspec.structs.replace(kept[place].entry, content="changed")
    previous = kept[place - 1].sha256 or "" if place else ""
    kept[place] = StoredEntry(entry, 1, form(previous, "run_1", entry.seq, 1, entry))
    assert broken(audit(kept, forms)) == [(min(place + 2, 4), "note")]


@in_every_history
def test_a_lost_entry_is_named(forms: str) -> None:
    """At the start, in the middle and at the end; several in a row are one line."""
    kept = chained(4, forms)
    assert broken(audit(kept[1:], forms)) == [(1, LOST), (2, "note")]
    assert broken(audit([kept[0], kept[3]], forms)) == [(2, LOST), (4, "note")]
    assert broken(audit(kept[:2], forms)) == [(3, LOST)]
    assert broken(audit([], forms)) == [(1, LOST)]


@in_every_history
def test_swapped_entries_are_named(forms: str) -> None:
    """Their numbers were changed, or what they say."""
    one, two, three, four = chained(4, forms)
    moved = [
        three._replace(entry=msgspec.structs.replace(three.entry, seq=2)),
        two._replace(entry=msgspec.structs.replace(two.entry, seq=3)),
    ]
    assert broken(audit([one, *moved, four], forms)) == [(2, "note"), (3, "note"), (4, "note")]


@in_every_history
def test_an_added_entry_is_named(forms: str) -> None:
    """A line after the last that the run wrote, with a hash that would follow or with none."""
    five = chained(5, forms)
    assert audit(five, forms)[-1].expected == EXTRA
    assert broken(audit(five, forms)) == [(5, "note")]
    assert broken(audit([*five[:4], five[4]._replace(sha256=None)], forms)) == [(5, "note")]


@in_every_history
def test_another_writer_is_named(forms: str) -> None:
    """The epoch is part of the hash."""
    kept = chained(4, forms)
    kept[1] = kept[1]._replace(epoch=2)
    assert broken(audit(kept, forms)) == [(2, "note")]


@in_every_form
def test_entries_from_before_the_chain_are_unchained_and_not_broken(form: Form) -> None:
    """All of a run, or those before the first that is chained."""
    old = [each._replace(sha256=None) for each in chained(4)]
    assert broken(audit(old, sha256="")) == []
    assert [(line.sha256, line.expected) for line in audit(old, sha256="")] == [("", "")] * 4
    grown = old[3].entry
    sha256 = form("", "run_1", 4, 1, grown)
    mixed = [*old[:3], StoredEntry(grown, 1, sha256)]
    assert broken(audit(mixed, sha256=sha256)) == []
    assert [line.expected for line in audit(mixed, sha256=sha256)] == ["", "", "", sha256]


@in_every_history
def test_a_hash_taken_away_is_not_taken_for_an_old_entry(forms: str) -> None:
    """From the middle, from the start and from all of a run that was chained."""
    kept = chained(4, forms)
    assert broken(audit([kept[0], kept[1]._replace(sha256=None), *kept[2:]], forms)) == [(2, "note")]
    assert broken(audit([kept[0]._replace(sha256=None), *kept[1:]], forms)) == [(2, "note")]
    assert broken(audit([each._replace(sha256=None) for each in kept], forms)) == [(4, "note")]


@in_every_history
def test_hashes_taken_away_from_many_are_no_riddle(forms: str) -> None:
    """Each is named, and what they could have been is not tried in every way."""
    kept = chained(4, forms)
    bare = [kept[0], *[each._replace(sha256=None) for each in kept[1:]]]
    many = [StoredEntry(Entry(kind="note", at=1.0, seq=seq), 1, None) for seq in range(5, 200)]
    assert [seq for seq, _ in broken(audit([*bare, *many], forms))] == [*range(2, 200)]
