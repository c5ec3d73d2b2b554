import msgspec
import pytest

from treadle.canon.items import (
    AnyItem,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ReferenceItem,
    ResultItem,
    TextPart,
    text_message,
    text_result,
)
from treadle.wire.notes import Notes
from treadle.wire.turns import INTERRUPTED, Step, Turn, regroup, turn_text

USER = text_message("user", "u")
SAID = text_message("assistant", "s")
A = CallItem(call_id="a", name="f", arguments="{}")
B = CallItem(call_id="b", name="g", arguments="{}")
RA, RB = text_result(A, "ra"), text_result(B, "rb")
THOUGHT = ReasoningItem(text=("t",))
CLOSED = text_result(A, INTERRUPTED, is_error=True, rc="interrupted")


def _grouped(*items: AnyItem) -> tuple[list[Step], list[str]]:
    notes = Notes()
    return regroup(items, notes), [note.code for note in notes.all()]


@pytest.mark.parametrize(
    ("items", "steps"),
    [
        ((USER, SAID), [USER, Turn(messages=[SAID])]),
        ((SAID, SAID), [Turn(messages=[SAID]), Turn(messages=[SAID])]),
        ((SAID, A, B, RA, RB), [Turn(messages=[SAID], calls=[A, B], results=[RA, RB])]),
        ((A, B, RB, RA), [Turn(calls=[A, B], results=[RA, RB])]),
        ((A, RA, B, RB), [Turn(calls=[A], results=[RA]), Turn(calls=[B], results=[RB])]),
        ((A, USER, RA), [Turn(calls=[A], results=[RA]), USER]),
        ((RA, A), [Turn(calls=[A], results=[RA])]),
        ((A, SAID, RA), [Turn(messages=[SAID], calls=[A], results=[RA])]),
        ((A, RA, SAID), [Turn(calls=[A], results=[RA]), Turn(messages=[SAID])]),
        ((THOUGHT, SAID, A, RA), [Turn(reasoning=[THOUGHT], messages=[SAID], calls=[A], results=[RA])]),
        ((A, THOUGHT, B, RA, RB), [Turn(reasoning=[THOUGHT], calls=[A, B], results=[RA, RB])]),
        ((SAID, THOUGHT, A, RA), [Turn(messages=[SAID]), Turn(reasoning=[THOUGHT], calls=[A], results=[RA])]),
        ((A, RA, THOUGHT, SAID), [Turn(calls=[A], results=[RA]), Turn(reasoning=[THOUGHT], messages=[SAID])]),
        ((A, RA, A, RB, RA), [Turn(calls=[A], results=[RA]), Turn(calls=[A], results=[RA])]),
    ],
)
def test_calls_and_results_become_turns(items: tuple[AnyItem, ...], steps: list[Step]) -> None:
    """One turn for what the model did at once, its results in call order, whatever order they came in."""
    notes = Notes()
    known = tuple(item for item in items if item != RB or B in items)
    assert regroup(known, notes) == steps
    assert notes.all() == ()


@pytest.mark.parametrize(
    ("items", "steps", "codes"),
    [
        ((A,), [Turn(calls=[A], results=[CLOSED])], ["orphan_call"]),
        ((A, USER), [Turn(calls=[A], results=[CLOSED]), USER], ["orphan_call"]),
        ((RA, USER), [text_message("user", "[result of f without its call] ra"), USER], ["orphan_result"]),
        (
            (ResultItem(call_id="x", output=(TextPart(text="r"),)),),
            [text_message("user", "[result without its call] r")],
            ["orphan_result"],
        ),
        ((A, RA, RA), [Turn(calls=[A], results=[RA])], ["extra_result"]),
        ((THOUGHT, USER), [USER], ["reasoning_dropped"]),
        ((ReferenceItem(id="msg_1"), USER), [USER], ["reference_dropped"]),
    ],
)
def test_what_has_no_partner_is_repaired_and_noted(
    items: tuple[AnyItem, ...], steps: list[Step], codes: list[str]
) -> None:
    """An upstream never sees a half-answered turn."""
    assert _grouped(*items) == (steps, codes)


def test_an_opaque_item_ends_the_turn() -> None:
    """It is somebody's message of a kind we do not know."""
    opaque = OpaqueItem(protocol="chat", raw=msgspec.Raw(b"{}"))
    assert _grouped(SAID, opaque, SAID) == ([Turn(messages=[SAID]), opaque, Turn(messages=[SAID])], [])


def test_messages_of_one_turn_are_paragraphs() -> None:
    """Text before and behind a call does not run together."""
    parts = MessageItem(role="assistant", content=(TextPart(text="a"), TextPart(text="b")))
    assert turn_text(Turn(messages=[parts, MessageItem(role="assistant"), SAID])) == "ab\n\ns"
