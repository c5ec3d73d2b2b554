import msgspec
import pytest

from treadle.core.items import Extra, MessageItem, ResultItem, TextPart
from treadle.core.request import Note
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.translation_notes import NOTES_MAX, RECENT_BYTES_MAX, Notes, Recent, note_foreign


def test_the_same_note_is_counted() -> None:
    """Notes are one for each code and field, in the order of their first appearance."""
    notes = Notes()
    notes.add("a", "dropped", "first")
    notes.add("b", "kept", "other", "x")
    notes.add("a", "dropped", "again", count=2)
    assert notes.all() == (
        Note(code="a", action="dropped", message="first", count=3),
        Note(code="b", action="kept", message="other", field="x"),
    )


def test_fields_of_another_protocol_are_noted_wherever_they_stand() -> None:
    """On items, parts, results and tools, once for each field; those of the protocol itself are not."""
    extra = Extra(protocol="messages", fields={"cache_control": msgspec.Raw(b"{}")})
    items = (
        MessageItem(role="user", content=(TextPart(text="a", extra=extra),), extra=extra),
        ResultItem(call_id="c", output=(TextPart(text="b", extra=extra),)),
    )
    tools = (ToolSpec(name="f", extra=extra),)
    notes, own = Notes(), Notes()
    note_foreign(items, tools, "chat", notes)
    note_foreign(items, tools, "messages", own)
    message = "cache_control: only messages knows it"
    assert notes.all() == (
        Note(code="field_dropped", action="dropped", message=message, field="cache_control", count=4),
    )
    assert own.all() == ()


def test_the_phase_of_a_message_is_noted_where_it_cannot_be_said() -> None:
    """Only the Responses API has it."""
    item = MessageItem(role="assistant", phase="commentary")
    notes, own = Notes(), Notes()
    note_foreign((item, item), (), "chat", notes)
    note_foreign((item,), (), "responses", own)
    assert [(note.code, note.field, note.count) for note in notes.all()] == [("phase_dropped", "phase", 2)]
    assert own.all() == ()


def test_notes_without_end_are_only_counted() -> None:
    """What a client makes up is told up to a bound; beyond it one note for each kind says how much more there was."""
    notes = Notes()
    for number in range(NOTES_MAX + 50):
        notes.add("option_dropped", "dropped", "nobody knows it", f"k{number}")
    notes.add("odd", "coerced", "something else", "x")
    notes.add("option_dropped", "dropped", "nobody knows it", "k0")
    told = notes.all()
    assert len(told) == NOTES_MAX + 2
    assert (told[0].count, [(note.code, note.action, note.count) for note in told[-2:]]) == (
        2,
        [("more_dropped", "dropped", 50), ("more_coerced", "coerced", 1)],
    )


def _read_list(raw: msgspec.Raw, notes: Notes) -> tuple[object, ...]:
    values = tuple(msgspec.json.decode(raw))
    if None in values:
        notes.add("null", "dropped", "nothing")
    return values


def test_the_same_bytes_are_read_once() -> None:
    """What is handed out is the same object, so that more can be remembered by it; other bytes are another."""
    recent, notes = Recent(_read_list), Notes()
    first = recent.of(msgspec.Raw(b"[1,2]"), notes)
    assert recent.of(msgspec.Raw(b"[1,2]"), notes) is first == (1, 2)
    assert recent.of(msgspec.Raw(b"[1, 2]"), notes) is not first
    assert recent.of(msgspec.Raw(b"[1, 2]"), notes) == first
    assert notes.all() == ()


def test_what_is_noted_is_noted_for_everybody_who_sends_it() -> None:
    """A value that is worth a note is read each time, so that each request has the note; also where it only counts."""
    recent, raw, notes = Recent(_read_list), msgspec.Raw(b"[null]"), Notes()
    for count in (1, 2):
        assert recent.of(raw, notes) == (None,)
        assert [note.count for note in notes.all()] == [count]
    other = Notes()
    recent.of(raw, other)
    assert [note.code for note in other.all()] == ["null"]


def _spaced(size: int, number: int = 1) -> msgspec.Raw:
    return msgspec.Raw(b"[%d" % number + b" " * (size - 2 - len(str(number))) + b"]")


def test_only_so_much_is_remembered() -> None:
    """Not what is very long, not more than so many bytes, and nothing that was refused."""
    recent, notes, most = Recent(_read_list), Notes(), RECENT_BYTES_MAX // 8
    assert recent.of(_spaced(most + 1), notes) is not recent.of(_spaced(most + 1), notes)
    kept = recent.of(_spaced(most, 0), notes)
    for number in range(1, 8):
        recent.of(_spaced(most, number), notes)
        assert recent.of(_spaced(most, 0), notes) is kept
    recent.of(_spaced(3, 9), notes)
    assert recent.of(_spaced(most, 0), notes) is not kept
    for _ in range(2):
        with pytest.raises(msgspec.DecodeError):
            recent.of(msgspec.Raw(b"[1"), notes)
