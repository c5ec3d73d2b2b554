import pytest

from treadle.core.events import ArgumentsDelta, ItemAdded, ItemDone, Noted, ReasoningDelta, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import Blob, CallItem, ImagePart, MessageItem, ReasoningItem, TextPart
from treadle.protocols.decoding.answer_meter import NOTES_MAX, AnswerBounds
from treadle.protocols.decoding.item_drafts import BlobFactory
from treadle.protocols.gemini.upstream_assembly import CALLS_MAX, CallPiece, GeminiAssembly

SIGNED = (Blob(provider="p", kind="thought_signature", data="s"),)
PICTURE = ImagePart(url="data:image/png;base64,AAAA")


def _assembly(text: int = 1000, arguments: int = 100, taken: frozenset[str] = frozenset()) -> GeminiAssembly:
    bounds = AnswerBounds(text_bytes_max=text, arguments_bytes_max=arguments)
    return GeminiAssembly(CountingIds(), bounds, BlobFactory(), taken)


def _items(assembly: GeminiAssembly) -> list[object]:
    assembly.finish(is_cut=False)
    return [event.item for event in assembly.take() if isinstance(event, ItemDone)]


def test_texts_that_follow_each_other_are_one_message() -> None:
    """Each piece goes out at once; empty ones are nothing."""
    assembly = _assembly()
    for text in ("", "a", "", "b"):
        assembly.add_text(text)
    begun = MessageItem(id="msg_0001", role="assistant")
    assert assembly.take() == [
        ItemAdded(index=0, item=begun),
        TextDelta(index=0, text="a"),
        TextDelta(index=0, text="b"),
    ]
    done = MessageItem(id="msg_0001", role="assistant", content=(TextPart(text="ab"),))
    assembly.finish(is_cut=False)
    assert assembly.take() == [ItemDone(index=0, item=done)]


def test_a_picture_between_texts_is_a_part_of_the_message() -> None:
    """Deltas name the part they belong to."""
    assembly = _assembly()
    assembly.add_text("a")
    assembly.add_part(PICTURE, 5)
    assembly.add_text("b")
    parts = [event.part for event in assembly.events if isinstance(event, TextDelta)]
    assert parts == [0, 2]
    assert _items(assembly) == [
        MessageItem(id="msg_0001", role="assistant", content=(TextPart(text="a"), PICTURE, TextPart(text="b")))
    ]


def test_signatures_stay_with_what_they_sign() -> None:
    """A message keeps its own at its end, thoughts end with theirs, a call has it at once."""
    assembly = _assembly()
    assembly.add_reasoning("hm", SIGNED)
    assembly.add_reasoning("so")
    assembly.add_text("a")
    assembly.sign(SIGNED)
    assembly.add_text("b")
    assembly.add_call(CallPiece(name="f", id="x", blobs=SIGNED))
    assembly.add_reasoning("", SIGNED)
    assert _items(assembly) == [
        ReasoningItem(id="rs_0001", text=("hm",), blobs=SIGNED),
        ReasoningItem(id="rs_0002", text=("so",)),
        MessageItem(id="msg_0003", role="assistant", content=(TextPart(text="ab"),), blobs=SIGNED),
        CallItem(id="fc_0004", call_id="x", name="f", arguments="{}", upstream_id="x", blobs=SIGNED),
        ReasoningItem(id="rs_0005", blobs=SIGNED),
    ]


def test_a_signature_of_nothing_is_dropped_and_noted() -> None:
    """There is no message to keep it."""
    assembly = _assembly()
    assembly.sign(())
    assembly.sign(SIGNED)
    assembly.add_reasoning("", ())
    assert [event.note.code for event in assembly.take() if isinstance(event, Noted)] == ["signature_dropped"]


def test_a_call_is_shown_whole_with_a_delta_of_its_arguments() -> None:
    """Added, arguments, done: at once, so that a tool may start."""
    assembly = _assembly()
    assembly.add_call(CallPiece(name="f", args={"a": 1}))
    begun = CallItem(id="fc_0001", call_id="call_0002", name="f")
    done = CallItem(id="fc_0001", call_id="call_0002", name="f", arguments='{"a":1}')
    assert assembly.take() == [
        ItemAdded(index=0, item=begun),
        ArgumentsDelta(index=0, text='{"a":1}'),
        ItemDone(index=0, item=done),
    ]
    assert assembly.calls_are_complete


@pytest.mark.parametrize(
    ("given", "note"),
    [("taken", "duplicate_call_id"), ("a b", "odd_call_id"), ("x" * 65, "odd_call_id")],
)
def test_an_id_that_cannot_be_used_is_replaced(given: str, note: str) -> None:
    """The provider's own stays beside it."""
    assembly = _assembly(taken=frozenset({"taken"}))
    assembly.add_call(CallPiece(name="f", id=given))
    assert [event.note.code for event in assembly.events if isinstance(event, Noted)] == [note]
    assert _items(assembly) == [
        CallItem(id="fc_0001", call_id="call_0002", name="f", arguments="{}", upstream_id=given)
    ]


def test_a_streamed_call_is_held_and_holds_those_behind_it() -> None:
    """Calls keep their order; what is said meanwhile goes out."""
    assembly = _assembly()
    assembly.add_call(CallPiece(name="f", will_continue=True))
    assembly.add_call(CallPiece(name="g", args={}))
    assembly.add_text("wait")
    assert not any(isinstance(event, ArgumentsDelta) for event in assembly.take())
    assert not assembly.calls_are_complete
    assembly.add_call(CallPiece(partial=[{"jsonPath": "$.a", "stringValue": "x"}]))
    assert [item.name for item in _items(assembly) if isinstance(item, CallItem)] == ["f", "g"]


def test_a_call_whose_arguments_were_cut_is_left_out() -> None:
    """It must not look like a call that somebody meant."""
    assembly = _assembly()
    assembly.add_call(CallPiece(name="f", partial=[{"jsonPath": "$.a", "stringValue": "x"}], will_continue=True))
    assembly.finish(is_cut=True)
    assert not assembly.has_calls
    assert [event.note.code for event in assembly.take() if isinstance(event, Noted)] == ["call_cut"]


def test_what_is_held_is_bounded() -> None:
    """Text, thoughts, pictures, arguments whole and streamed, calls: each says what was too much."""
    text, thought, picture = _assembly(text=3), _assembly(text=3), _assembly(text=3)
    text.add_text("abcd")
    thought.add_reasoning("abcd")
    picture.add_part(PICTURE, 4)
    assert {each.meter.overflow for each in (text, thought, picture)} == {"the answer is over 3 bytes"}
    whole, streamed = _assembly(arguments=9), _assembly(arguments=9)
    whole.add_call(CallPiece(name="f", args={"a": "x" * 9}))
    streamed.add_call(CallPiece(name="f", partial=[{"jsonPath": "$.a", "stringValue": "x" * 9}], will_continue=True))
    assert {each.meter.overflow for each in (whole, streamed)} == {"the arguments of a call are over 9 bytes"}
    many = _assembly(text=1 << 20)
    for _ in range(CALLS_MAX + 1):
        many.add_call(CallPiece(name="f"))
    assert many.meter.overflow == f"more than {CALLS_MAX} calls in one answer"


def test_notes_are_bounded_and_the_rest_is_counted() -> None:
    """A stream that is all wrong is not echoed line by line."""
    assembly = _assembly()
    for _ in range(NOTES_MAX + 3):
        assembly.note("x", "dropped", "x")
    assembly.finish(is_cut=False)
    notes = [event.note for event in assembly.take() if isinstance(event, Noted)]
    assert (len(notes), notes[-1].code, notes[-1].count) == (NOTES_MAX + 1, "more_notes", 3)


def test_a_waiting_half_is_told_at_the_end() -> None:
    """Of a message and of a thought."""
    assembly = _assembly()
    assembly.add_reasoning("a\ud83d")
    assembly.add_text("b\ud83d")
    assembly.finish(is_cut=False)
    said = [event.text for event in assembly.take() if isinstance(event, TextDelta | ReasoningDelta)]
    assert said == ["a", "\ufffd", "b", "\ufffd"]
