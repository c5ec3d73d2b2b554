import msgspec
import pytest

from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    Noted,
    ReasoningDelta,
    TextDelta,
)
from treadle.core.ids import CountingIds
from treadle.core.items import Blob, CallItem, MessageItem, OpaqueItem, ReasoningItem, TextPart
from treadle.protocols.decoding.answer_meter import NOTES_MAX, SEQUENCE_BYTES_MAX, STOPPED_BY, AnswerBounds, AnswerMeter
from treadle.protocols.decoding.item_builder import ItemBuilder
from treadle.protocols.decoding.item_drafts import (
    BlobFactory,
    CallDraft,
    ItemDraft,
    MessageDraft,
    OpaqueDraft,
    ReasoningDraft,
)


class Open(ItemBuilder):
    """A builder whose parts for the assemblies can be tried."""

    def __init__(self, taken: frozenset[str] = frozenset(), text_bytes_max: int = 10, id_chars_max: int = 64) -> None:
        bounds = AnswerBounds(text_bytes_max=text_bytes_max, arguments_bytes_max=4)
        super().__init__(CountingIds(), bounds, taken_call_ids=taken)
        self.call_id_chars_max = id_chars_max

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
        self._note_rest()

    def has_name(self, name: str) -> bool:
        """Name a call without a name."""
        return self._has_name(name)

    def mend(self, repair: str) -> None:
        """Note what was mended."""
        self._note_repair(repair)

    def add(self, draft: ItemDraft, text: str = "") -> None:
        """Open an item and append to it."""
        if isinstance(draft, CallDraft):
            self._open_call(draft)
            self._append_arguments(draft, text)
        else:
            self._open(draft)
        if isinstance(draft, MessageDraft):
            self._append_text(draft, text)
        elif isinstance(draft, ReasoningDraft):
            self._append_reasoning(draft, text)

    def early(self, call: CallDraft, text: str) -> None:
        """Append to a call that is not open yet."""
        self._append_arguments(call, text)

    def close(self, draft: ItemDraft) -> None:
        """Close an item."""
        self._close(draft)
        self._emit_done()

    def leave_out(self, call: CallDraft) -> None:
        """Leave a call out."""
        self._leave_out(call)
        self._emit_done()


class Patient(Open):
    """A builder whose last item waits for the end."""

    def _may_change(self, draft: ItemDraft) -> bool:
        return True

    def end(self) -> None:
        """Emit what waited for the end."""
        self._emit_done(is_final=True)


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
    assert ledger.meter.overflow is None
    assert not ledger.has_room("a")
    assert ledger.meter.overflow == "the answer is over 10 bytes"


def test_arguments_have_a_bound_of_their_own() -> None:
    """Over it the answer is too much, whatever room is left."""
    ledger = Open()
    assert ledger.may_have(4)
    assert ledger.meter.overflow is None
    assert not ledger.may_have(5)
    assert ledger.meter.overflow == "the arguments of a call are over 4 bytes"


def test_mended_arguments_are_told_and_a_call_without_a_name_is_damage() -> None:
    """Each repair has a code of its own."""
    ledger = Open()
    ledger.mend("quoted_arguments")
    ledger.mend("repeated_arguments")
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


def test_items_are_done_in_the_order_in_which_they_were_opened() -> None:
    """Whichever is closed first; half a character that waits for the other becomes U+FFFD when its item is closed."""
    builder = Open(text_bytes_max=100)
    message, reasoning = MessageDraft("msg_1"), ReasoningDraft("rs_1")
    opaque, raw = OpaqueDraft("x_1", "p", msgspec.Raw(b"[1]")), msgspec.Raw(b"[1]")
    builder.add(message, "a\ud83d")
    builder.add(reasoning, "b\ud83d")
    builder.add(opaque)
    assert builder.take() == [
        ItemAdded(index=0, item=MessageItem(id="msg_1", role="assistant")),
        TextDelta(index=0, text="a"),
        ItemAdded(index=1, item=ReasoningItem(id="rs_1")),
        ReasoningDelta(index=1, text="b"),
        ItemAdded(index=2, item=OpaqueItem(id="x_1", protocol="p", raw=raw)),
    ]
    builder.close(opaque)
    builder.close(reasoning)
    assert builder.take() == [ReasoningDelta(index=1, text="\ufffd")]
    builder.close(message)
    text = (TextPart(text="a\ufffd"),)
    assert builder.take() == [
        TextDelta(index=0, text="\ufffd"),
        ItemDone(index=0, item=MessageItem(id="msg_1", role="assistant", content=text)),
        ItemDone(index=1, item=ReasoningItem(id="rs_1", text=("b\ufffd",))),
        ItemDone(index=2, item=OpaqueItem(id="x_1", protocol="p", raw=raw)),
    ]


def test_a_call_is_opened_with_the_arguments_that_came_before() -> None:
    """They are noted; nothing at all is completed to an empty object."""
    builder = Open()
    call, bare = CallDraft("c1", "f"), CallDraft("c2", "g")
    builder.early(call, '{"')
    assert builder.take() == []
    builder.add(call, '"')
    begun = CallItem(id="fc_0001", call_id="c1", name="f", upstream_id="c1")
    assert [event for event in builder.take() if not isinstance(event, Noted)] == [
        ItemAdded(index=0, item=begun),
        ArgumentsDelta(index=0, text='{"'),
        ArgumentsDelta(index=0, text='"'),
    ]
    builder.add(bare)
    builder.close(call)
    builder.close(bare)
    whole = CallItem(id="fc_0002", call_id="c2", name="g", upstream_id="c2", arguments="{}")
    assert builder.take()[-2:] == [ArgumentsDelta(index=1, text="{}"), ItemDone(index=1, item=whole)]


def test_a_call_that_is_left_out_is_never_done() -> None:
    """Those behind it are, and the note says how much of it came."""
    builder = Open()
    cut, message = CallDraft("c1", "f"), MessageDraft("msg_1")
    builder.add(cut, '{"a')
    builder.add(message)
    builder.close(message)
    builder.take()
    builder.leave_out(cut)
    noted, done = builder.take()
    assert isinstance(noted, Noted)
    assert noted.note.message == "a call of 'f' was cut off after 3 bytes of its arguments"
    assert done == ItemDone(index=1, item=MessageItem(id="msg_1", role="assistant"))


def test_the_last_item_may_wait_for_the_end() -> None:
    """Any other is done once it is closed."""
    builder = Patient()
    first, last = ReasoningDraft("rs_1"), ReasoningDraft("rs_2")
    builder.add(first)
    builder.add(last)
    builder.take()
    builder.close(first)
    builder.close(last)
    assert builder.take() == [ItemDone(index=0, item=ReasoningItem(id="rs_1"))]
    builder.end()
    assert builder.take() == [ItemDone(index=1, item=ReasoningItem(id="rs_2"))]


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
    blobs = BlobFactory(provider="p", model="m")
    assert blobs.from_text("signature", "x") == Blob(provider="p", kind="signature", data="x", model="m")
    assert blobs.from_value("details", {"a": 1}) == Blob(provider="p", kind="details", data='{"a":1}', model="m")
