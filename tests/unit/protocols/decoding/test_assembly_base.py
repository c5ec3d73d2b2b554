import msgspec
import pytest

from treadle.core.events import Noted
from treadle.core.ids import CountingIds
from treadle.core.items import Blob
from treadle.protocols.decoding.assembly_base import (
    NOTES_MAX,
    SEQUENCE_BYTES_MAX,
    STOPPED_BY,
    AnswerBounds,
    AnswerMeter,
    AnswerTotals,
    Maker,
)
from treadle.protocols.decoding.call_arguments import FinalArguments


class Open(AnswerTotals):
    """A ledger whose tools for assemblies can be tried."""

    def __init__(self, taken: frozenset[str] = frozenset(), id_chars_max: int = 64) -> None:
        super().__init__(CountingIds(), AnswerBounds(text_bytes_max=10, arguments_bytes_max=4), taken, id_chars_max)

    def codes(self) -> list[str]:
        """Return the codes of the notes since the last time."""
        return [event.note.code for event in self.take() if isinstance(event, Noted)]

    def call_id(self, given: str, *, is_needed: bool = True) -> str:
        """Return the id of a call."""
        return self._call_id(given, is_needed=is_needed)

    def has_room(self, text: str) -> bool:
        """Count a text."""
        return self._has_room(text)

    def has_room_for(self, size: int) -> bool:
        """Count bytes."""
        return self._has_room_for(size)

    def may_have(self, size: int) -> bool:
        """Check the size of arguments."""
        return self._check_arguments(size)

    def end(self) -> None:
        """Say what was not said."""
        self._note_left()

    def has_name(self, name: str) -> bool:
        """Name a call without a name."""
        return self._has_name(name)

    def mend(self, final: FinalArguments | None) -> None:
        """Say what was mended."""
        self._note_repair(final)


@pytest.mark.parametrize(
    ("given", "call_id", "codes"),
    [
        ("call_a", "call_a", []),
        ("functions.get_time:0", "functions.get_time:0", []),
        ("x" * 64, "x" * 64, []),
        ("x" * 65, "call_0001", ["odd_call_id"]),
        ("a b", "call_0001", ["odd_call_id"]),
        ("a\n", "call_0001", ["odd_call_id"]),
        ("", "call_0001", ["call_without_id"]),
        ("taken", "call_0001", ["duplicate_call_id"]),
    ],
)
def test_a_call_keeps_an_id_that_clients_can_carry(given: str, call_id: str, codes: list[str]) -> None:
    """Any other is replaced, and that is told."""
    ledger = Open(frozenset({"taken"}))
    assert ledger.call_id(given) == call_id
    assert ledger.codes() == codes


def test_no_two_calls_of_an_answer_have_one_id() -> None:
    """What this answer gave is taken as well as what the conversation had."""
    ledger = Open()
    assert [ledger.call_id("a"), ledger.call_id("a"), ledger.call_id("a")] == ["a", "call_0001", "call_0002"]
    assert ledger.codes() == ["duplicate_call_id"] * 2


def test_a_protocol_without_ids_is_not_told_that_they_lack() -> None:
    """The call gets one all the same; how long ids may be is the protocol's to say."""
    ledger = Open(id_chars_max=128)
    assert ledger.call_id("", is_needed=False) == "call_0001"
    assert ledger.call_id("x" * 128) == "x" * 128
    assert ledger.codes() == []
    assert ledger.call_id("x" * 129) == "call_0002"
    assert ledger.codes() == ["odd_call_id"]


def test_notes_are_bounded_and_the_rest_is_counted_at_the_end() -> None:
    """A stream that is all wrong is not echoed line by line."""
    ledger = Open()
    for _ in range(NOTES_MAX + 3):
        ledger.note("odd", "kept", "again")
    ledger.end()
    *notes, last = [event.note for event in ledger.take() if isinstance(event, Noted)]
    assert [note.code for note in notes] == ["odd"] * NOTES_MAX
    assert (last.code, last.action, last.count) == ("more_notes", "dropped", 3)
    assert ledger.take() == []


def test_an_end_within_the_bound_of_notes_adds_none() -> None:
    """Nothing was left out."""
    ledger = Open()
    for _ in range(NOTES_MAX):
        ledger.note("odd", "kept", "again")
    ledger.end()
    assert ledger.codes() == ["odd"] * NOTES_MAX


def test_text_and_other_bytes_count_together() -> None:
    """In bytes, not in characters; up to the bound there is room."""
    ledger = Open()
    assert ledger.has_room("ää")
    assert ledger.has_room_for(6)
    assert ledger.overflow is None
    assert not ledger.has_room("a")
    assert ledger.overflow == "the answer is over 10 bytes"


def test_arguments_have_a_bound_of_their_own() -> None:
    """Over it the answer is too much, whatever room is left."""
    ledger = Open()
    assert ledger.may_have(4)
    assert ledger.overflow is None
    assert not ledger.may_have(5)
    assert ledger.overflow == "the arguments of a call are over 4 bytes"


def test_mended_arguments_are_told_and_a_call_without_a_name_is_damage() -> None:
    """Arguments that came whole are nothing to speak of."""
    ledger = Open()
    ledger.mend(None)
    ledger.mend(FinalArguments(text="{}", rest=""))
    ledger.mend(FinalArguments(text="{}", rest="", repair="quoted_arguments"))
    ledger.mend(FinalArguments(text="{}", rest="", repair="repeated_arguments"))
    assert ledger.codes() == ["quoted_arguments", "repeated_arguments"]
    assert (ledger.has_name("f"), ledger.meter.damage) == (True, None)
    assert not ledger.has_name("")
    assert (ledger.meter.damage, ledger.meter.is_over) == ("a call has no name", True)


def test_a_stop_sequence_is_told_as_it_is_but_not_without_end() -> None:
    """Halves of pairs are mended: a note must be writable."""
    ledger = Open()
    for sequence in ("END", "\ud83d", "x" * (SEQUENCE_BYTES_MAX * 2)):
        ledger.note_sequence(sequence)
    notes = [event.note for event in ledger.take() if isinstance(event, Noted)]
    assert {(note.code, note.action) for note in notes} == {(STOPPED_BY, "kept")}
    assert [note.message for note in notes[:2]] == ["END", "\ufffd"]
    assert len(notes[2].message.encode()) < SEQUENCE_BYTES_MAX * 2


def test_a_meter_counts_text_and_raw_json() -> None:
    """A lone half of a pair counts too, and what was refused stays refused."""
    meter = AnswerMeter(8)
    meter.add("ä")
    meter.add("\ud83d")
    meter.add_raw(msgspec.Raw(b"[1,2]"))
    assert meter.overflow is None
    meter.refuse("more than 3 parts")
    assert meter.overflow == "more than 3 parts"
    meter.add_bytes(1)
    assert meter.overflow == "the answer is over 8 bytes"


def test_state_bears_the_name_of_its_maker() -> None:
    """Text as it is, values as JSON."""
    maker = Maker(provider="p", model="m")
    assert maker.seal("signature", "x") == Blob(provider="p", kind="signature", data="x", model="m")
    assert maker.blob("details", {"a": 1}) == Blob(provider="p", kind="details", data='{"a":1}', model="m")
