"""Rows: structs as columns and back."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import ErrorInfo
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.hash_chain import StoredEntry, entry_hash
from treadle.journal.journal_interface import INLINE_BYTES_MAX, RunRow
from treadle.journal.sqlite.row_mapping import (
    SqliteChainHead,
    bind_json,
    bind_text,
    chain_entries,
    ended_columns,
    read_entry,
    read_stored_entry,
    run_columns,
)

any_text = st.none() | st.text(st.characters(codec=None, exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        (None, None),
        ("", ""),
        ("a\x00", "a\x00"),
        ("é", "é"),
        ("\ud800", b"\xed\xa0\x80"),
        ("é\udfff", b"\xc3\xa9\xed\xbf\xbf"),
    ],
)
def test_text_stays_text_unless_it_is_not_unicode(text: str | None, bound: str | bytes | None) -> None:
    """Only a lone surrogate makes bytes of it."""
    assert bind_text(text) == bound


def test_json_stays_text_unless_it_is_not_utf8() -> None:
    """So that people can read and query it."""
    assert bind_json(b'{"a": "\\ud800\xc3\xa9"}') == '{"a": "\\ud800é"}'
    assert bind_json(b"\xff") == b"\xff"


@given(any_text, any_text, any_text, any_text, st.none() | st.binary(), st.booleans())
def test_every_entry_is_read_back_as_it_was(
    content: str | None, name: str | None, call_id: str | None, item_id: str | None, data: bytes | None, is_input: bool
) -> None:
    """Whatever the texts and the data are, inline or out of line."""
    raw = None if data is None else msgspec.Raw(data)
    entry = Entry(
        kind="note", at=1.5, content=content, name=name, call_id=call_id, item_id=item_id, data=raw, is_input=is_input
    )
    chained = chain_entries([entry], "run_1", 3, SqliteChainHead(6, "ab"))
    [(seq, epoch, *plain, inline, blob, sha256, _)] = chained.rows
    whole = msgspec.structs.replace(entry, seq=7)
    assert (seq, epoch, blob) == (7, 3, None)
    assert read_entry((seq, *plain, inline, None)) == whole
    assert read_entry((seq, *plain, None, data)) == whole
    assert read_stored_entry((3, "ab", 7, *plain, inline, None)) == StoredEntry(entry=whole, epoch=3, sha256="ab")
    assert sha256 == entry_hash("ab", "run_1", 7, 3, whole)
    assert chained.place == SqliteChainHead(7, sha256)


def test_entries_are_chained_and_large_data_stands_apart() -> None:
    """Each to the one before it, in order; what goes to a blob is not in the row, and counts for the hash."""
    large = msgspec.Raw(b'"' + b"x" * INLINE_BYTES_MAX + b'"')
    entries = [Entry(kind="note", at=1.0, data=data) for data in (msgspec.Raw(b"{}"), large, None)]
    chained = chain_entries(entries, "run_1", 2, SqliteChainHead())
    hashes = [""]
    for seq, entry in enumerate(entries, 1):
        hashes.append(entry_hash(hashes[-1], "run_1", seq, 2, entry))
    assert [(*row[:2], row[-2]) for row in chained.rows] == [(seq, 2, hashes[seq]) for seq in (1, 2, 3)]
    assert [row[9] for row in chained.rows] == ["{}", None, None]
    assert chained.large == {1: bytes(large)}
    assert chained.place == SqliteChainHead(3, hashes[3])
    assert chain_entries([], "run_1", 2, SqliteChainHead(4, "ab")) == ((4, "ab"), [], {})


@pytest.mark.parametrize(
    ("kind", "data", "fingerprint"),
    [
        ("plan", b'{"round":1,"fingerprint":"ab12"}', "ab12"),
        ("note", b'{"fingerprint":"ab12"}', None),
        ("plan", b'{"round":1}', None),
        ("plan", b'{"fingerprint":7}', None),
        ("plan", b"[1]", None),
        ("plan", b"\xff", None),
        ("plan", None, None),
    ],
)
def test_a_plan_is_found_by_its_fingerprint(kind: Any, data: bytes | None, fingerprint: str | None) -> None:
    """Only a plan has one, and whatever else its data may be does no harm."""
    entry = Entry(kind=kind, at=1.0, data=None if data is None else msgspec.Raw(data))
    assert chain_entries([entry], "run_1", 1, SqliteChainHead()).rows[0][-1] == fingerprint


def test_an_error_that_is_not_unicode_can_still_be_kept() -> None:
    """A run must be able to end whatever its error quotes."""
    error = ErrorInfo(code="failed", message="said \ud800", status=502)
    kept = ended_columns(RunEnded(status="failed", error=error, ended_at=1.0)).error
    assert kept == '{"code":"failed","message":"said ?","status":502}'


def test_only_what_is_not_unicode_is_other_in_the_columns_of_a_run() -> None:
    """It is kept as its bytes, or refused by the schema."""
    row = RunRow(
        id="run_é", response_id="resp", conversation_id="c", protocol="chat", model="\ud800", created_at=1.0, key_id="k"
    )
    odd, plain = run_columns(row, []), run_columns(msgspec.structs.replace(row, model="m"), [])
    assert odd.model == b"\xed\xa0\x80"
    assert odd._replace(model="m") == plain
    assert plain == ("run_é", "resp", "c", None, None, "k", "chat", "m", "running", True, False, 1.0, None, None, "", 0)
