import msgspec
import pytest

from treadle.core.events import ArgumentsDelta, ItemAdded, ItemDone, Noted, RefusalDelta, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    ImagePart,
    MessageItem,
    ReasoningItem,
    RefusalPart,
    TextPart,
    text_message,
)
from treadle.core.request import Note
from treadle.protocols.chat.upstream_assembly import CALLS_MAX, ChatAssembly
from treadle.protocols.decoding.answer_meter import NOTES_MAX, AnswerBounds
from treadle.protocols.decoding.call_correlation import Piece
from treadle.protocols.decoding.item_drafts import BlobFactory


def _assembly(
    text_bytes_max: int = 100_000,
    arguments_bytes_max: int = 100_000,
    taken: frozenset[str] = frozenset(),
    blobs: BlobFactory | None = None,
) -> ChatAssembly:
    bounds = AnswerBounds(text_bytes_max=text_bytes_max, arguments_bytes_max=arguments_bytes_max)
    return ChatAssembly(CountingIds(), bounds, blobs or BlobFactory(), taken)


def _done(assembly: ChatAssembly) -> list[AnyItem]:
    assembly.finish()
    return [event.item for event in assembly.take() if isinstance(event, ItemDone)]


def test_text_is_emitted_at_once_and_closed_by_a_call() -> None:
    """A message ends where a call begins; later text is a new message; done comes in order."""
    assembly = _assembly()
    assembly.add_text("a")
    message = MessageItem(id="msg_0001", role="assistant")
    said = MessageItem(id="msg_0001", role="assistant", content=(TextPart(text="a"),))
    assert assembly.take() == [ItemAdded(index=0, item=message), TextDelta(index=0, text="a")]
    assembly.add_call(Piece(id="c", name="f", text='{"x"'))
    call = CallItem(id="fc_0002", call_id="c", name="f", upstream_id="c")
    assert assembly.take() == [
        ItemDone(index=0, item=said),
        ItemAdded(index=1, item=call),
        ArgumentsDelta(index=1, text='{"x"'),
    ]
    assembly.add_text("b")
    later = MessageItem(id="msg_0003", role="assistant")
    assert assembly.take() == [ItemAdded(index=2, item=later), TextDelta(index=2, text="b")]
    assembly.add_call(Piece(id="c", text=":1}"))
    assembly.finish()
    assert assembly.take() == [
        ArgumentsDelta(index=1, text=":1}"),
        ItemDone(index=1, item=CallItem(id="fc_0002", call_id="c", name="f", arguments='{"x":1}', upstream_id="c")),
        ItemDone(index=2, item=MessageItem(id="msg_0003", role="assistant", content=(TextPart(text="b"),))),
    ]


def test_text_and_refusal_are_parts_of_one_message() -> None:
    """Each switch begins a new part; a half left waiting is closed in its own part."""
    assembly = _assembly()
    assembly.add_message_text("a\ud83d")
    assembly.add_message_text("no", is_refusal=True)
    assembly.finish()
    events = assembly.take()
    assert events[1:] == [
        TextDelta(index=0, text="a"),
        TextDelta(index=0, text="\ufffd"),
        RefusalDelta(index=0, text="no", part=1),
        ItemDone(
            index=0,
            item=MessageItem(
                id="msg_0001", role="assistant", content=(TextPart(text="a\ufffd"), RefusalPart(text="no"))
            ),
        ),
    ]


def test_arguments_wait_for_the_name_and_say_how_many() -> None:
    """Begin, delta, end: the order that every client expects."""
    assembly = _assembly()
    assembly.add_call(Piece(index=0, text='{"é"'))
    assert assembly.take() == []
    assembly.add_call(Piece(index=0, id="c", name="f", text=":1}"))
    note = Note(code="arguments_before_name", action="buffered", message="5 argument bytes came before the name")
    assert assembly.take() == [
        ItemAdded(index=0, item=CallItem(id="fc_0001", call_id="c", name="f", upstream_id="c")),
        Noted(note=note),
        ArgumentsDelta(index=0, text='{"é"'),
        ArgumentsDelta(index=0, text=":1}"),
    ]


@pytest.mark.parametrize(
    ("given", "taken", "call_id", "code"),
    [
        ("call_a", frozenset[str](), "call_a", None),
        ("functions.f:0", frozenset[str](), "functions.f:0", None),
        ("", frozenset[str](), "call_0002", "call_without_id"),
        ("call_a", frozenset({"call_a"}), "call_0002", "duplicate_call_id"),
        ("a b", frozenset[str](), "call_0002", "odd_call_id"),
        ("x" * 65, frozenset[str](), "call_0002", "odd_call_id"),
    ],
)
def test_call_ids_are_usable_and_unique_in_the_conversation(
    given: str, taken: frozenset[str], call_id: str, code: str | None
) -> None:
    """The upstream's own id is used where it can be, and kept beside where it cannot."""
    assembly = _assembly(taken=taken)
    assembly.add_call(Piece(id=given, name="f"))
    assembly.finish()
    events = assembly.take()
    codes = [event.note.code for event in events if isinstance(event, Noted)]
    assert codes == ([code] if code else [])
    assert events[-1] == ItemDone(
        index=0,
        item=CallItem(id="fc_0001", call_id=call_id, name="f", arguments="{}", upstream_id=given or None),
    )


def test_blobs_of_a_call_are_kept_on_the_whole_item() -> None:
    """A thought signature may come with any piece."""
    blob = Blob(provider="p", kind="sealed", data='{"a":1}', model="m")
    assembly = _assembly(blobs=BlobFactory(provider="p", model="m"))
    assembly.add_call(Piece(id="c", name="f"), ("sealed", {"a": 1}))
    assembly.add_call(Piece(id="c", text="{}"))
    assembly.finish()
    last = assembly.take()[-1]
    assert isinstance(last, ItemDone)
    assert isinstance(last.item, CallItem)
    assert last.item.blobs == (blob,)


@pytest.mark.parametrize(
    ("pieces", "complete"),
    [
        ([Piece(name="f", text='{"a":1}')], True),
        ([Piece(name="f")], True),
        ([Piece(name="f", text='{"a":')], False),
        ([Piece(name="f", text="{a:1}")], False),
        ([Piece(name="f", text="[1]")], False),
        ([Piece(text="{}")], False),
        ([Piece(name="p", text="anything", kind="custom")], True),
        ([Piece(id="a", name="f", text="{}"), Piece(id="b", name="f", text="{")], False),
    ],
)
def test_complete_calls_are_named_and_parse(pieces: list[Piece], complete: bool) -> None:
    """What decides whether `[DONE]` alone may end a turn."""
    assembly = _assembly()
    for piece in pieces:
        assembly.start_call_delta()
        assembly.add_call(piece)
    assert assembly.has_calls
    assert assembly.calls_are_complete is complete


def test_bounds_are_in_bytes_and_stop_the_flow() -> None:
    """What is over a bound is not emitted, and the reason is said."""
    assembly = _assembly(text_bytes_max=4)
    assembly.add_text("éé")
    assert assembly.meter.overflow is None
    assembly.take()
    assembly.add_text("x")
    assert assembly.take() == []
    assert assembly.meter.overflow == "the answer is over 4 bytes"
    assembly = _assembly(arguments_bytes_max=4)
    assembly.add_call(Piece(id="a", name="f", text="{   "))
    assert assembly.meter.overflow is None
    assembly.add_call(Piece(id="a", text=" "))
    assert assembly.meter.overflow == "the arguments of a call are over 4 bytes"


def test_the_number_of_calls_is_bounded() -> None:
    """A stream of nothing but new calls ends."""
    assembly = _assembly()
    for number in range(CALLS_MAX):
        assembly.add_call(Piece(id=str(number), name="f"))
    assert assembly.meter.overflow is None
    assembly.add_call(Piece(id="more", name="f"))
    assert assembly.meter.overflow == f"more than {CALLS_MAX} calls in one answer"


def test_notes_are_bounded_and_the_rest_is_counted() -> None:
    """A stream that is all wrong is not echoed line by line."""
    assembly = _assembly()
    for _ in range(NOTES_MAX + 5):
        assembly.note("bad", "dropped", "x")
    assembly.finish()
    events = assembly.take()
    assert len(events) == NOTES_MAX + 1
    assert events[-1] == Noted(
        note=Note(code="more_notes", action="dropped", message="further notes of this answer", count=5)
    )


def _blob(kind: str, data: str) -> Blob:
    return Blob(provider="", kind=kind, data=data)


def test_state_of_the_reasoning_stays_on_the_open_reasoning() -> None:
    """It opens one where nothing was said yet, and is merged over its pieces."""
    assembly = _assembly()
    assembly.add_reasoning_state("sealed", [{"index": 0, "type": "t", "text": "a"}])
    assembly.add_reasoning_state("sealed", [{"index": 0, "type": "t", "text": "b"}])
    assembly.add_text("Hi")
    sealed = _blob("sealed", '[{"index":0,"type":"t","text":"ab"}]')
    assert _done(assembly) == [
        ReasoningItem(id="rs_0001", blobs=(sealed,)),
        text_message("assistant", "Hi", "msg_0002"),
    ]


def test_late_state_goes_to_what_is_open_at_the_end() -> None:
    """To a call before a message; a message is never split for it, and one is made where there is nothing."""
    late = _blob("sealed", "[1]")
    speaking = _assembly()
    speaking.add_text("a")
    speaking.add_reasoning_state("sealed", [1])
    speaking.add_text("b")
    parts = (TextPart(text="ab"),)
    assert _done(speaking) == [MessageItem(id="msg_0001", role="assistant", content=parts, blobs=(late,))]
    calling = _assembly()
    calling.add_text("a")
    calling.add_call(Piece(id="c", name="f"))
    calling.add_reasoning_state("sealed", [1])
    call = CallItem(id="fc_0002", call_id="c", name="f", arguments="{}", upstream_id="c", blobs=(late,))
    assert _done(calling) == [text_message("assistant", "a", "msg_0001"), call]
    silent = _assembly()
    silent.add_state("sealed", [1])
    assert _done(silent) == [MessageItem(id="msg_0001", role="assistant", blobs=(late,))]


def test_logprobs_travel_with_the_text_they_belong_to() -> None:
    """Those of a token without text wait for the next text; the part has all of them."""
    assembly = _assembly()
    assembly.add_message_text("a", tokens=[{"token": "a"}])
    assembly.add_message_text("", tokens=[{"token": "?"}])
    assembly.add_message_text("b", tokens=[{"token": "b"}])
    assembly.add_message_text("", tokens=[{"token": "end"}])
    assert assembly.take()[1:] == [
        TextDelta(index=0, text="a", logprobs=msgspec.Raw(b'[{"token":"a"}]')),
        TextDelta(index=0, text="b", logprobs=msgspec.Raw(b'[{"token":"?"},{"token":"b"}]')),
    ]
    all_tokens = b'[{"token":"a"},{"token":"?"},{"token":"b"},{"token":"end"}]'
    part = TextPart(text="ab", logprobs=msgspec.Raw(all_tokens))
    assert _done(assembly) == [MessageItem(id="msg_0001", role="assistant", content=(part,))]


def test_attachments_and_annotations_join_the_message() -> None:
    """Parts that are not text stand behind the text; annotations on it."""
    assembly = _assembly()
    assembly.add_text("a")
    assembly.annotate([{"type": "t"}])
    assembly.add_part(ImagePart(url="data:x"), 6)
    assembly.add_text("b")
    parts = (TextPart(text="ab", annotations=msgspec.Raw(b'[{"type":"t"}]')), ImagePart(url="data:x"))
    assert _done(assembly) == [MessageItem(id="msg_0001", role="assistant", content=parts)]


def test_what_is_only_kept_counts_against_the_bound() -> None:
    """State, logprobs, parts and annotations cannot grow without end."""
    for add in (
        lambda assembly: assembly.add_state("s", "x" * 20),
        lambda assembly: assembly.add_reasoning_state("s", ["x" * 20]),
        lambda assembly: assembly.add_message_text("", tokens=["x" * 20]),
        lambda assembly: assembly.add_part(ImagePart(url="x" * 20), 20),
        lambda assembly: assembly.add_call(Piece(id="a", name="f"), ("s", "x" * 20)),
    ):
        assembly = _assembly(text_bytes_max=10)
        add(assembly)
        assert assembly.meter.overflow == "the answer is over 10 bytes"
