import msgspec

from treadle.canon.items import Extra, MessageItem, ResultItem, TextPart
from treadle.canon.request import Note
from treadle.canon.tools import ToolSpec
from treadle.wire.notes import NOTES_MAX, Notes, note_foreign


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
