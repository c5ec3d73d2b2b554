import msgspec
import pytest

from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    Extra,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ReferenceItem,
    RefusalPart,
    ResultItem,
    TextPart,
    text_message,
    text_result,
)
from treadle.protocols.translation_notes import Notes
from treadle.protocols.turn_grouping import (
    INTERRUPTED,
    GroupedTurn,
    OpenCalls,
    Step,
    TurnText,
    is_continued,
    partners,
    plain_text,
    plain_turns,
    regroup,
    turn_text,
)
from unit.protocols.work import Counted, steps_run

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
        ((USER, SAID), [USER, GroupedTurn(messages=[SAID])]),
        ((SAID, SAID), [GroupedTurn(messages=[SAID]), GroupedTurn(messages=[SAID])]),
        ((SAID, A, B, RA, RB), [GroupedTurn(messages=[SAID], calls=[A, B], results=[RA, RB])]),
        ((A, B, RB, RA), [GroupedTurn(calls=[A, B], results=[RA, RB])]),
        ((A, RA, B, RB), [GroupedTurn(calls=[A], results=[RA]), GroupedTurn(calls=[B], results=[RB])]),
        ((A, USER, RA), [GroupedTurn(calls=[A], results=[RA]), USER]),
        ((RA, A), [GroupedTurn(calls=[A], results=[RA])]),
        ((A, SAID, RA), [GroupedTurn(messages=[SAID], calls=[A], results=[RA])]),
        ((A, RA, SAID), [GroupedTurn(calls=[A], results=[RA]), GroupedTurn(messages=[SAID])]),
        ((THOUGHT, SAID, A, RA), [GroupedTurn(reasoning=[THOUGHT], messages=[SAID], calls=[A], results=[RA])]),
        ((A, THOUGHT, B, RA, RB), [GroupedTurn(reasoning=[THOUGHT], calls=[A, B], results=[RA, RB])]),
        (
            (SAID, THOUGHT, A, RA),
            [GroupedTurn(messages=[SAID]), GroupedTurn(reasoning=[THOUGHT], calls=[A], results=[RA])],
        ),
        (
            (A, RA, THOUGHT, SAID),
            [GroupedTurn(calls=[A], results=[RA]), GroupedTurn(reasoning=[THOUGHT], messages=[SAID])],
        ),
        ((A, RA, A, RB, RA), [GroupedTurn(calls=[A], results=[RA]), GroupedTurn(calls=[A], results=[RA])]),
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
        ((A,), [GroupedTurn(calls=[A], results=[CLOSED])], ["orphan_call"]),
        ((A, USER), [GroupedTurn(calls=[A], results=[CLOSED]), USER], ["orphan_call"]),
        ((RA, USER), [text_message("user", "[result of f without its call] ra"), USER], ["orphan_result"]),
        (
            (ResultItem(call_id="x", output=(TextPart(text="r"),)),),
            [text_message("user", "[result without its call] r")],
            ["orphan_result"],
        ),
        ((A, RA, RA), [GroupedTurn(calls=[A], results=[RA])], ["extra_result"]),
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
    assert _grouped(SAID, opaque, SAID) == ([GroupedTurn(messages=[SAID]), opaque, GroupedTurn(messages=[SAID])], [])


def test_messages_of_one_turn_are_paragraphs() -> None:
    """Text before and behind a call does not run together."""
    parts = MessageItem(role="assistant", content=(TextPart(text="a"), TextPart(text="b")))
    assert turn_text(GroupedTurn(messages=[parts, MessageItem(role="assistant"), SAID])) == "ab\n\ns"


def test_open_calls_are_taken_once_by_id_name_or_age() -> None:
    """The upstream's id is as good as the own one, and what is taken by one is gone for the others."""
    first = CallItem(call_id="a", name="f", upstream_id="u")
    second, third = CallItem(call_id="b", name="f"), CallItem(call_id="c", name="g")
    calls = OpenCalls((first, second, third))
    assert calls.take_id("u") is first
    assert calls.take_id("a") is None
    assert calls.take_name("f") is second
    assert calls.take_name("f") is None
    assert calls.take_oldest() is third
    assert calls.take_oldest() is None


def test_open_calls_of_one_id_are_taken_in_their_order() -> None:
    """Some clients use an id again; equal calls are still two."""
    calls = OpenCalls([A, msgspec.structs.replace(A)])
    assert [calls.take_id("a"), calls.take_id("a"), calls.take_id("a")] == [A, A, None]


def test_taking_open_calls_compares_nothing_twice() -> None:
    """Thousands of calls that are answered from the last to the first cost as much as in order."""
    made = [CallItem(call_id=Counted(f"c{number}"), name=Counted(f"f{number}")) for number in range(500)]
    calls = OpenCalls(made)
    Counted.compared = 0
    for call in reversed(made[250:]):
        assert calls.take_id(Counted(call.call_id)) is call
    for call in reversed(made[:250]):
        assert calls.take_name(Counted(call.name)) is call
    assert Counted.compared < 5 * len(made)


def test_taking_the_oldest_passes_each_place_once() -> None:
    """What other queues have taken is skipped once, not again for every call."""

    def work(count: int) -> int:
        made = [CallItem(call_id=f"c{number}", name="f") for number in range(count)]
        calls = OpenCalls(made)
        for call in made[: count // 2]:
            calls.take_id(call.call_id)
        return steps_run(lambda: [calls.take_oldest() for _ in made])

    assert work(800) < 3 * work(400)


@pytest.mark.parametrize(
    ("items", "is_behind"),
    [
        ((), False),
        ((CallItem(call_id="a", name="f", side="server"), ResultItem(call_id="a")), True),
        ((CallItem(call_id="a", name="f"), ResultItem(call_id="a")), False),
        ((ResultItem(call_id="a"),), False),
        ((CallItem(call_id="a", name="f", side="server"), ResultItem(call_id="a"), text_message("user", "x")), False),
    ],
)
def test_a_later_round_stands_behind_a_result_of_our_own(items: tuple[AnyItem, ...], is_behind: bool) -> None:
    """A client's result begins a request, which may make a choice of its own."""
    assert is_continued(items) == is_behind


EXTRA = Extra(protocol="chat", fields={"x": msgspec.Raw(b"1")})


@pytest.mark.parametrize(
    "odd",
    [
        MessageItem(role="user"),
        MessageItem(role="user", content=(TextPart(text="a"), TextPart(text="b"))),
        MessageItem(role="user", content=(RefusalPart(text="a"),)),
        MessageItem(role="user", content=(TextPart(text="a", extra=EXTRA),)),
        MessageItem(role="user", content=(TextPart(text="a", annotations=msgspec.Raw(b"[1]")),)),
        MessageItem(role="user", content=(TextPart(text="a"),), extra=EXTRA),
        MessageItem(role="user", content=(TextPart(text="a"),), name="Ann"),
        MessageItem(role="assistant", content=(TextPart(text="a"),), phase="commentary"),
        MessageItem(role="assistant", content=(TextPart(text="a"),), blobs=(Blob(provider="p", kind="k", data="d"),)),
    ],
)
def test_a_plain_text_is_nothing_but_a_text(odd: MessageItem) -> None:
    """Whatever a writer might have to say more about is none; one such item makes the history none of plain texts."""
    assert plain_text(odd) is None
    assert plain_turns((USER, odd, SAID)) is None
    assert (plain_text(USER), plain_text(SAID)) == ("u", "s")
    assert plain_turns((USER, SAID)) == [TurnText("user", "u"), TurnText("assistant", "s")]
    assert plain_turns((USER, A)) is None
    assert plain_turns(()) == []


def test_partners_are_found_by_the_id_of_the_call() -> None:
    """The first result of a call is the next to be taken, so it is last."""
    second = text_result(A, "again")
    called, results = partners((USER, A, RA, B, second, RB, THOUGHT))
    assert called == {"a", "b"}
    assert results == {"a": [second, RA], "b": [RB]}


def test_calls_of_one_id_are_taken_oldest_first() -> None:
    """Also when some of them were taken by name, by age, or by the id their upstream gave."""
    calls = [CallItem(call_id="a", name=f"n{number}") for number in range(5)]
    known = OpenCalls(calls[:4])
    assert known.take_name("n1") is calls[1]
    known.add(calls[4])
    assert [known.take_id("a") for _ in range(3)] == [calls[0], calls[2], calls[3]]
    assert known.take_oldest() is calls[4]
    assert (known.take_id("a"), known.take_oldest(), known.take_name("n0"), known.take_id("z")) == (None,) * 4
    renamed = CallItem(call_id="b", name="f", upstream_id="up")
    known.add(renamed)
    assert known.take_id("up") is renamed
    assert known.take_id("b") is None
