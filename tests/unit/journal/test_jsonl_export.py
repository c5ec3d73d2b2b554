"""Runs as JSON Lines: everything comes back exactly, also what UTF-8 and one line cannot hold."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import ProtocolError
from treadle.core.journal_entries import Entry
from treadle.journal.hash_chain import entry_hash
from treadle.journal.journal_interface import AuditLine, Evidence, RunRow
from treadle.journal.jsonl_export import Exported, read_runs, sealed_of, write_run

ROW = RunRow(
    id="run_1",
    response_id="resp_1",
    conversation_id="conv_1",
    protocol="chat",
    model="m",
    created_at=1.5,
    status="completed",
    request=msgspec.Raw(b'{"model":"m"}'),
)
texts = st.one_of(st.none(), st.text(st.characters(codec=None), max_size=20))


def audited(entries: list[Entry], run_id: str = "run_1") -> list[AuditLine]:
    """Chain the entries as a store does."""
    lines: list[AuditLine] = []
    previous = ""
    for entry in entries:
        previous = entry_hash(previous, run_id, entry.seq, 1, entry)
        lines.append(
            AuditLine(run_id=run_id, seq=entry.seq, epoch=1, kind=entry.kind, sha256=previous, expected=previous)
        )
    return lines


def evidence(row: RunRow, entries: list[Entry], lines: list[AuditLine]) -> Evidence:
    """All that is kept of a run."""
    sealed = sealed_of(row, len(entries), "")
    return Evidence(row=row, sealed=sealed, entries=entries, lines=lines, is_rooted=False)


def there_and_back(row: RunRow, entries: list[Entry]) -> Exported:
    """Write a run and read it again, line by line."""
    data = b"".join(write_run(evidence(row, entries, audited(entries))))
    (read,) = read_runs(data.splitlines(keepends=True))
    return read


@given(
    st.lists(
        st.builds(
            Entry,
            kind=st.sampled_from(["user", "assistant", "tool_call", "note"]),
            at=st.floats(allow_nan=False, allow_infinity=False),
            content=texts,
            name=texts,
            call_id=texts,
            item_id=texts,
            is_input=st.booleans(),
            data=st.one_of(
                st.none(),
                st.sampled_from([b'{"a": 1}', b"{\n\r}", b'{"a":"\xc3\xb6"}', b'"\\ud800"', b"[1,  2]"]).map(
                    msgspec.Raw
                ),
            ),
        ),
        max_size=6,
    )
)
def test_entries_come_back_exactly(entries: list[Entry]) -> None:
    """NUL, lone surrogates, line breaks and the spelling of JSON included, so that their hashes still fit."""
    numbered = [msgspec.structs.replace(entry, seq=n) for n, entry in enumerate(entries, 1)]
    read = there_and_back(ROW, numbered)
    assert [each.entry.seq for each in read.stored] == [entry.seq for entry in numbered]
    assert audited([each.entry for each in read.stored]) == audited(numbered)
    assert (read.head, read.row) == (len(entries), ROW)


def test_a_row_stands_on_one_line() -> None:
    """Its request may have been written over several."""
    row = msgspec.structs.replace(ROW, request=msgspec.Raw(b'{\n "a":\r\n 1}'))
    read = there_and_back(row, [])
    assert read.row.request is not None
    assert msgspec.json.decode(read.row.request) == {"a": 1}


def test_a_row_with_a_name_that_no_bytes_can_say_is_written() -> None:
    """As an escape, and it comes back."""
    row = msgspec.structs.replace(ROW, idempotency_key="a\ud800b", request=None)
    assert there_and_back(row, []).row == row


def test_what_a_live_run_adds_meanwhile_is_left_out() -> None:
    """Entries and hashes are of the same moment."""
    entries = [Entry(kind="user", at=0.0, seq=n, content=str(n)) for n in (1, 2, 3)]
    lines = list(write_run(evidence(ROW, entries, audited(entries[:2]))))
    (read,) = read_runs(lines)
    assert ([each.entry.content for each in read.stored], read.head) == (["1", "2"], 2)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([b"{"], "x:1: "),
        ([b'{"type":"song"}'], "x:1: Invalid value 'song'"),
        ([b'{"type":"entry","run_id":"r","seq":1,"epoch":1,"kind":"user","at":0}'], "before the first run"),
        ([b'{"type":"run","version":3,"entries":0,"sha256":"","run":{}}'], "the version is 3"),
        ([b'{"type":"run","version":1,"entries":0,"sha256":"","run":{}}'], "missing required field"),
        (["RUN", b'{"type":"entry","run_id":"r","seq":1,"epoch":1,"kind":"user","at":0}'], "among those of 'run_1'"),
        (["RUN", b'{"type":"entry","run_id":"run_1","seq":1,"epoch":1,"kind":"song","at":0}'], "Invalid enum value"),
        (["RUN", b'{"type":"entry","run_id":"run_1","seq":1,"epoch":1,"kind":"user","at":0,"content":7}'], "a text"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(lines: list[bytes | str], said: str) -> None:
    """A file that somebody else wrote gets no traceback."""
    (head,) = write_run(evidence(ROW, [], []))
    given_lines = [head if line == "RUN" else line for line in lines]
    with pytest.raises(ProtocolError) as caught:
        list(read_runs(given_lines, "x"))  # type: ignore[arg-type]
    assert said in caught.value.message


def test_how_a_row_is_sealed_comes_along() -> None:
    """With it the export proves the row as the store does; an older export says nothing of it."""
    kept = evidence(ROW, [], [])
    spread = '{\n "a":\r\n 1}'
    sealed = kept.sealed._replace(
        body=spread, question=3, usage='{"input_tokens":1}', epoch=2, head=7, amended='{"sha256":"x"}'
    )
    (read,) = read_runs(write_run(msgspec.structs.replace(kept, sealed=sealed)))
    assert read.sealed == sealed
    (old,) = read_runs([b'{"type":"run","version":1,"entries":0,"sha256":"","run":' + msgspec.json.encode(ROW) + b"}"])
    assert (old.row, old.sealed) == (ROW, None)
