"""Rows: structs as columns and back, whatever characters they hold."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import ErrorInfo, ProtocolError
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.hash_chain import entry_hash
from treadle.journal.journal_interface import RunRow
from treadle.journal.postgres.leased_writes import PostgresChainHead, PostgresHold, make_batch
from treadle.journal.postgres.row_mapping import (
    bind_data,
    bind_plain,
    bind_text,
    ended_columns,
    read_data,
    read_entry,
    read_text,
    run_columns,
)

any_text = st.text(st.characters(codec=None, exclude_categories=()) | st.sampled_from("\x00\ufdd0\ud800a0"))


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        (None, None),
        ("", ""),
        ("é", "é"),
        ("a\x00", "a\ufdd00000"),
        ("\ud800", "\ufdd0d800"),
        ("\ufdd0", "\ufdd0fdd0"),
        ("\ufdd00000", "\ufdd0fdd00000"),
    ],
)
def test_only_what_postgres_cannot_hold_is_marked(text: str | None, bound: str | None) -> None:
    """NUL, lone surrogates and the mark itself; all else stays as people can read it."""
    assert bind_text(text) == bound


@given(any_text, any_text)
def test_texts_are_read_back_and_stay_different(left: str, right: str) -> None:
    """What is bound is valid for PostgreSQL, gives the text again, and is equal only for equal texts."""
    bound = bind_text(left)
    assert bound is not None
    bound.encode()
    assert "\x00" not in bound
    assert read_text(bound) == left
    assert (bound == bind_text(right)) is (left == right)


@given(st.binary() | any_text.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_bytes_are_read_back(raw: bytes) -> None:
    """Also such as are not UTF-8."""
    kept = bind_data(raw)
    kept.encode()
    assert "\x00" not in kept
    assert read_data(kept) == raw


def test_json_stays_as_it_is_written() -> None:
    """So that people can read and query it."""
    assert bind_data(b'{"a": "\\ud800\xc3\xa9"}') == '{"a": "\\ud800é"}'


@given(any_text, any_text, st.none() | st.binary(), st.booleans())
def test_every_entry_is_read_back_as_it_was(content: str, name: str, data: bytes | None, is_input: bool) -> None:
    """Whatever the texts and the data are."""
    raw = None if data is None else msgspec.Raw(data)
    entry = Entry(kind="note", at=1.5, content=content, name=name, item_id=name, data=raw, is_input=is_input)
    batch = make_batch([entry], PostgresHold(5, "owner", 1, "run_1"), PostgresChainHead(6, "ab"))
    [row] = batch.numbered(9)
    assert row[:2] == (9, 7)
    assert read_entry((*row[1:10], None)) == msgspec.structs.replace(entry, seq=7)
    assert row[-2] == entry_hash("ab", "run_1", 7, 1, entry)
    assert batch.place == PostgresChainHead(7, row[-2])


def test_a_field_that_is_looked_up_must_be_unicode() -> None:
    """The error names the column."""
    row = RunRow(id="r", response_id="r", conversation_id="c", protocol="chat", model="m\ud800", created_at=1.0)
    with pytest.raises(ProtocolError, match=r"runs\.model"):
        run_columns(row)
    assert bind_plain("runs.model", "a\x00") == "a\ufdd00000"


def test_an_error_that_is_not_unicode_can_still_be_kept() -> None:
    """A run must be able to end whatever its error quotes."""
    error = ErrorInfo(code="failed", message="said \ud800 \ufdd0", status=502)
    kept = ended_columns(RunEnded(status="failed", error=error, ended_at=1.0)).error
    assert kept is not None
    assert msgspec.json.decode(read_data(kept), type=ErrorInfo) == ErrorInfo(
        code="failed", message="said ? \ufdd0", status=502
    )
