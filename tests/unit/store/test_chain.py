"""The chain: what an entry's hash depends on, and what an audit finds."""

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.canon.messages import Entry
from treadle.store.chain import EXTRA, LOST, KeptEntry, audit_lines, body_hash, entry_hash
from treadle.store.journal import AuditLine

ENTRY = Entry(
    kind="tool_call", at=1.5, content="c", data=msgspec.Raw(b"{}"), name="n", call_id="i", item_id="m", is_input=False
)
any_text = st.none() | st.text(st.characters(codec=None, exclude_categories=()), max_size=5)
entries = st.builds(
    Entry,
    kind=st.sampled_from(["user", "note"]),
    at=st.floats(allow_nan=False),
    content=any_text,
    name=any_text,
    call_id=any_text,
    item_id=any_text,
    is_input=st.booleans(),
    data=st.none() | st.builds(msgspec.Raw, st.binary(max_size=5)),
)


def test_the_hash_is_of_a_written_form() -> None:
    """What docs/journal.md says of the encoding, spelled out: another program can check a chain."""
    body = bytes(range(32))
    assert entry_hash("", "run_1", 1, 1, body) == _sha256(b"0:5:run_11:11:132:" + body)
    assert entry_hash("ab", "run_1", 12, 3, body) == _sha256(b"2:ab5:run_12:121:332:" + body)
    written = b"9:tool_call1:01:n1:i1:m1:c8:" + b"\x3f\xf8\0\0\0\0\0\0" + b"2:{}"
    assert body_hash(ENTRY).hex() == _sha256(written)
    nothing = b"4:user1:1----8:" + b"\0" * 8 + b"-"
    assert body_hash(Entry(kind="user", at=-0.0, is_input=True)).hex() == _sha256(nothing)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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
def test_every_field_counts(changed: dict[str, object]) -> None:
    """Also where two fields together read the same."""
    assert body_hash(msgspec.structs.replace(ENTRY, **changed)) != body_hash(ENTRY)


@given(entries, entries)
def test_two_entries_have_one_hash_only_if_they_are_equal(left: Entry, right: Entry) -> None:
    """The written form has no two readings; the number is no part of it."""
    assert (body_hash(left) == body_hash(right)) is (left == right)
    assert body_hash(msgspec.structs.replace(left, seq=9)) == body_hash(left)


def test_the_place_counts() -> None:
    """The entry before, the run, the number and the epoch."""
    body = body_hash(ENTRY)
    places = [("", "run_1", 1, 1), ("a", "run_1", 1, 1), ("", "run_2", 1, 1), ("", "run_1", 2, 1), ("", "run_1", 1, 2)]
    assert len({entry_hash(*place, body) for place in places}) == len(places)


def chained(count: int, first: str = "") -> list[KeptEntry]:
    """A run of notes as it is stored."""
    kept: list[KeptEntry] = []
    previous = first
    for seq in range(1, count + 1):
        entry = Entry(kind="note", at=1.0, seq=seq, content=str(seq))
        previous = entry_hash(previous, "run_1", seq, 1, body_hash(entry))
        kept.append(KeptEntry(entry, 1, previous))
    return kept


def audit(kept: list[KeptEntry], head: int = 4, sha256: str | None = None) -> list[AuditLine]:
    """Audit a run whose last hash is that of four untouched notes."""
    return list(audit_lines("run_1", kept, head, chained(4)[-1].sha256 or "" if sha256 is None else sha256))


def broken(lines: list[AuditLine]) -> list[tuple[int, str]]:
    """Return number and kind of the lines that are not sound."""
    return [(line.seq, line.kind) for line in lines if line.sha256 != line.expected]


def test_an_untouched_run_is_sound() -> None:
    """Every line has the hash it should have."""
    lines = audit(chained(4))
    assert [line.seq for line in lines] == [1, 2, 3, 4]
    assert [line.sha256 for line in lines] == [line.expected for line in lines]


@pytest.mark.parametrize("place", range(4))
def test_a_changed_entry_is_named(place: int) -> None:
    """It alone, because those after it still follow from the hash it carries."""
    kept = chained(4)
    entry = msgspec.structs.replace(kept[place].entry, content="changed")
    kept[place] = kept[place]._replace(entry=entry)
    assert broken(audit(kept)) == [(place + 1, "note")]


@pytest.mark.parametrize("place", range(4))
def test_a_changed_entry_with_a_new_hash_is_found_by_the_next(place: int) -> None:
    """Or by the hash that the run remembers of its last entry."""
    kept = chained(4)
    entry = msgspec.structs.replace(kept[place].entry, content="changed")
    previous = kept[place - 1].sha256 or "" if place else ""
    kept[place] = KeptEntry(entry, 1, entry_hash(previous, "run_1", entry.seq, 1, body_hash(entry)))
    assert broken(audit(kept)) == [(min(place + 2, 4), "note")]


def test_a_lost_entry_is_named() -> None:
    """At the start, in the middle and at the end; several in a row are one line."""
    kept = chained(4)
    assert broken(audit(kept[1:])) == [(1, LOST), (2, "note")]
    assert broken(audit([kept[0], kept[3]])) == [(2, LOST), (4, "note")]
    assert broken(audit(kept[:2])) == [(3, LOST)]
    assert broken(audit([])) == [(1, LOST)]


def test_swapped_entries_are_named() -> None:
    """Their numbers were changed, or what they say."""
    one, two, three, four = chained(4)
    moved = [
        three._replace(entry=msgspec.structs.replace(three.entry, seq=2)),
        two._replace(entry=msgspec.structs.replace(two.entry, seq=3)),
    ]
    assert broken(audit([one, *moved, four])) == [(2, "note"), (3, "note"), (4, "note")]


def test_an_added_entry_is_named() -> None:
    """A line after the last that the run wrote, with a hash that would follow or with none."""
    five = chained(5)
    assert audit(five)[-1].expected == EXTRA
    assert broken(audit(five)) == [(5, "note")]
    assert broken(audit([*five[:4], five[4]._replace(sha256=None)])) == [(5, "note")]


def test_another_writer_is_named() -> None:
    """The epoch is part of the hash."""
    kept = chained(4)
    kept[1] = kept[1]._replace(epoch=2)
    assert broken(audit(kept)) == [(2, "note")]


def test_entries_from_before_the_chain_are_unchained_and_not_broken() -> None:
    """All of a run, or those before the first that is chained."""
    old = [each._replace(sha256=None) for each in chained(4)]
    assert broken(audit(old, sha256="")) == []
    assert [(line.sha256, line.expected) for line in audit(old, sha256="")] == [("", "")] * 4
    grown = old[3].entry
    sha256 = entry_hash("", "run_1", 4, 1, body_hash(grown))
    mixed = [*old[:3], KeptEntry(grown, 1, sha256)]
    assert broken(audit(mixed, sha256=sha256)) == []
    assert [line.expected for line in audit(mixed, sha256=sha256)] == ["", "", "", sha256]


def test_a_hash_taken_away_is_not_taken_for_an_old_entry() -> None:
    """From the middle, from the start and from all of a run that was chained."""
    kept = chained(4)
    assert broken(audit([kept[0], kept[1]._replace(sha256=None), *kept[2:]])) == [(2, "note")]
    assert broken(audit([kept[0]._replace(sha256=None), *kept[1:]])) == [(2, "note")]
    assert broken(audit([each._replace(sha256=None) for each in kept])) == [(4, "note")]
