"""The audit of a run: each promise of the journal, broken by hand, is named."""

import msgspec
import pytest

from treadle.core.events import RunEnded, Status
from treadle.core.items import CallItem, text_message, text_result
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.journal.audit_verification import PROBLEMS_MAX, audit_export, audit_run
from treadle.journal.hash_chain import StoredEntry
from treadle.journal.journal_interface import AuditLine, Evidence, RunRow
from treadle.journal.jsonl_export import Exported, SealLine, sealed_of
from unit.journal.test_jsonl_export import audited

CALL = CallItem(call_id="c1", name="f", side="server")


def row(status: Status = "completed", *, store: bool = True) -> RunRow:
    """A run in this state."""
    return RunRow(
        id="run_1",
        response_id="resp_1",
        conversation_id="conv_1",
        protocol="chat",
        model="m",
        created_at=0.0,
        status=status,
        store=store,
        ended_at=None if status == "running" else 0.0,
        stop=None if status == "running" else "done",
    )


def evidence(found: RunRow, entries: list[Entry], lines: list[AuditLine]) -> Evidence:
    """All that is kept of a run whose row is as it should be."""
    is_ended = found.ended_at is not None
    seal = SealLine(
        question=None,
        usage=None,
        error=None,
        epoch=max((line.epoch for line in lines), default=1) if is_ended else 1,
        head=len(entries) if is_ended else 0,
        sha256=lines[-1].sha256 if is_ended and lines else "",
        amended=None,
    )
    sealed = sealed_of(found, len(entries), "", seal)
    return Evidence(row=found, sealed=sealed, entries=entries, lines=lines, is_rooted=False)


def end(status: Status = "completed") -> Entry:
    """The end of a run."""
    return Entry(kind="status", at=0.0, data=msgspec.Raw(msgspec.json.encode(RunEnded(status=status))))


def numbered(*entries: Entry) -> list[Entry]:
    """Number entries as a store does."""
    return [msgspec.structs.replace(entry, seq=number) for number, entry in enumerate(entries, 1)]


def item(value: object, *, is_input: bool = False) -> Entry:
    """An item as an entry."""
    return entry_of_item(value, at=0.0, is_input=is_input)  # type: ignore[arg-type]


SOUND = numbered(
    item(text_message("user", "hi"), is_input=True),
    item(CALL),
    Entry(kind="tool_start", at=0.0, call_id="c1"),
    item(text_result(CALL, "1")),
    item(text_message("assistant", "one")),
    end(),
)


def problems(found: RunRow, entries: list[Entry]) -> list[str]:
    """Return what the audit says of a run whose chain is sound."""
    return list(audit_run(evidence(found, entries, audited(entries))).problems)


def test_a_sound_run_has_no_problem() -> None:
    """Its numbers, epochs, chain, calls and end are as promised."""
    finding = audit_run(evidence(row(), SOUND, audited(SOUND)))
    assert (finding.problems, finding.chain, finding.entries, finding.epochs) == ((), "sound", 6, 1)
    assert finding.is_sound


@pytest.mark.parametrize(
    ("found", "entries", "said"),
    [
        (row(), SOUND[:-1], "its end is recorded 0 times"),
        (row(), numbered(*SOUND, end()), "its end is recorded 2 times"),
        (row(), numbered(*SOUND, item(text_message("assistant", "more"))), "others follow it"),
        (row("failed"), SOUND, "its recorded end says completed"),
        (row("running"), SOUND, "the run is running, and entry 6 is its end"),
        (row(), numbered(SOUND[1], end()), "the call 'c1' has no result"),
        (row(), numbered(SOUND[1], SOUND[3], SOUND[3], end()), "the call id 'c1' has 2 results"),
        (row(), numbered(SOUND[1], SOUND[1], SOUND[3], end()), "the call id 'c1' has 2 calls"),
        (row(), numbered(SOUND[3], end()), "there is a result for 'c1', which was not called"),
        (row(), numbered(SOUND[2], end()), "a start is marked for 'c1', which was not called"),
        (row(), [SOUND[0], *SOUND[2:]], "at place 2 stands 3"),
    ],
)
def test_a_broken_promise_is_named(found: RunRow, entries: list[Entry], said: str) -> None:
    """Even where somebody has computed the chain anew."""
    assert any(said in problem for problem in problems(found, entries))


def test_input_is_exempt_and_so_is_a_client_call() -> None:
    """A client may send what it likes, and answers its own calls later."""
    sent = [item(CALL, is_input=True), item(CALL, is_input=True)]
    client = item(CallItem(call_id="c9", name="g", side="client"))
    assert problems(row("requires_action"), numbered(*sent, client, end("requires_action"))) == []


def test_a_run_that_goes_on_has_no_end_yet() -> None:
    """Nor all of its results."""
    assert problems(row("running"), SOUND[:2]) == []


def test_an_epoch_never_goes_back() -> None:
    """A writer that was taken over has written no more."""
    lines = audited(SOUND)
    lines[2] = msgspec.structs.replace(lines[2], epoch=2)
    finding = audit_run(evidence(row(), SOUND, lines))
    assert "entry 4 was written by epoch 1, after epoch 2" in finding.problems
    assert finding.epochs == 2


def test_an_older_run_is_unchained_and_not_broken() -> None:
    """There were no hashes when it was written."""
    lines = [msgspec.structs.replace(line, sha256="", expected="") for line in audited(SOUND)]
    finding = audit_run(evidence(row(), SOUND, lines))
    assert (finding.chain, finding.problems) == ("unchained", ())


def test_what_was_forgotten_on_purpose_is_no_loss_and_all_else_is() -> None:
    """A run that is not stored loses its content at its end; a stored one never does."""
    kept = StoredEntry(SOUND[0], 1, None)
    assert audit_run(evidence(row(store=False), [], [])).chain == "forgotten"
    lost = audit_export(Exported(row=row(), sealed=None, stored=[], head=6, sha256="ab"))
    assert (lost.chain, lost.problems[0]) == ("broken", "entry 1 is lost")
    going_on = Exported(row=row("running"), sealed=None, stored=[kept], head=1, sha256="")
    assert audit_export(going_on).chain == "unchained"


def test_no_more_is_named_than_a_person_reads() -> None:
    """A thousand problems are one problem."""
    many = numbered(*(item(text_result(msgspec.structs.replace(CALL, call_id=f"c{n}"), "")) for n in range(50)), end())
    found = problems(row(), many)
    assert (len(found), found[-1]) == (PROBLEMS_MAX + 1, "and 30 more")


def test_an_entry_that_can_not_be_read_breaks_nothing() -> None:
    """It is hashed as it is; what it says cannot be judged."""
    odd = [Entry(kind="tool_call", at=0.0, call_id="c", data=msgspec.Raw(b"7")), Entry(kind="status", at=0.0)]
    assert problems(row(), numbered(*odd, end())) == []


def asked(call_id: str, *, is_deferred: bool) -> Entry:
    """That a person was asked about a call."""
    data = msgspec.Raw(msgspec.json.encode({"approval_id": "apr_1", "is_deferred": is_deferred}))
    return Entry(kind="approval_request", at=0.0, call_id=call_id, data=data)


def framed(*call_ids: str) -> Entry:
    """The frame of a run that carries on calls of an earlier one."""
    calls = [{"index": 0, "call": {"type": "call", "call_id": call_id, "name": "f"}} for call_id in call_ids]
    data = {"offers": [], "carried": {"calls": calls, "order": call_ids}}
    return Entry(kind="frame", at=0.0, data=msgspec.Raw(msgspec.json.encode(data)))


def test_a_call_may_be_left_to_the_next_run_only_where_a_person_was_asked() -> None:
    """And only by a run that ends with the question."""
    left = [item(CALL), asked("c1", is_deferred=True)]
    assert problems(row("requires_action"), numbered(*left, end("requires_action"))) == []
    assert problems(row(), numbered(*left, end())) == ["the call 'c1' has no result"]
    waits = [item(CALL), asked("c1", is_deferred=False)]
    lost = ["the call 'c1' has no result"]
    assert problems(row("requires_action"), numbered(*waits, end("requires_action"))) == lost


def test_a_run_answers_the_calls_that_it_carries_on_and_no_other() -> None:
    """Each has its start and its result here, or is asked about again."""
    result, start = item(text_result(CALL, "1")), Entry(kind="tool_start", at=0.0, call_id="c1")
    assert problems(row(), numbered(framed("c1"), start, result, end())) == []
    assert problems(row(), numbered(framed("c1"), end())) == ["the call 'c1' has no result"]
    stray = ["there is a result for 'c1', which was not called", "a start is marked for 'c1', which was not called"]
    assert problems(row(), numbered(framed(), start, result, end())) == stray
    again = numbered(framed("c1"), asked("c1", is_deferred=True), end("requires_action"))
    assert problems(row("requires_action"), again) == []


@pytest.mark.parametrize(
    ("column", "value"),
    [("ended_at", 1.0), ("stop", "length"), ("limit", "rounds"), ("usage", "{}"), ("error", "{}"), ("rounds", 1)],
)
def test_a_row_says_what_the_recorded_end_says(column: str, value: object) -> None:
    """Each column is named that does not."""
    kept = evidence(row(), SOUND, audited(SOUND))
    wrong = msgspec.structs.replace(kept, sealed=kept.sealed._replace(**{column: value}))
    assert audit_run(wrong).problems == (f"the run's {column} is not what its recorded end says",)
