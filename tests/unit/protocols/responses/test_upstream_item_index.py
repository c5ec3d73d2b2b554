from typing import Any

import pytest

from treadle.protocols.decoding.answer_meter import AnswerMeter
from treadle.protocols.responses.upstream_event import ItemIn
from treadle.protocols.responses.upstream_item_drafts import Draft, ResponsesCallDraft, ResponsesMessageDraft
from treadle.protocols.responses.upstream_item_index import ItemPosition, Named, Register


def _ignore(event: Any) -> None:
    del event


def call(call_id: str = "", name: str = "f") -> ResponsesCallDraft:
    """Return a call by these names."""
    draft = ResponsesCallDraft("fc", AnswerMeter(100), "function")
    draft.upstream_id, draft.name = call_id, name
    return draft


def message() -> ResponsesMessageDraft:
    """Return a message."""
    return ResponsesMessageDraft("msg", _ignore, AnswerMeter(100))


def at(item_id: str = "", index: int | None = None) -> ItemPosition:
    """Return a place."""
    return ItemPosition(item_id=item_id, output_index=index)


def register(*drafts: tuple[ItemPosition, Draft]) -> Register:
    """Return a register of these drafts."""
    book = Register()
    for place, draft in drafts:
        book.add("call" if isinstance(draft, ResponsesCallDraft) else "message", place, draft)
    return book


def test_an_id_with_its_place_is_believed_before_the_id_and_the_id_before_the_place() -> None:
    """Items that share one of the two are told apart by the other."""
    a, b = message(), message()
    same_id = register((at("x", 0), a), (at("x", 1), b))
    assert same_id.of_piece("message", at("x", 0)) is a
    assert same_id.of_piece("message", at("x", 1)) is b
    same_index = register((at("x", 0), a), (at("y", 0), b))
    assert same_index.of_piece("message", at("x", 0)) is a
    assert same_index.of_piece("message", at("x", 7)) is a
    assert same_index.of_piece("message", at("new", 0)) is b
    assert same_index.of_piece("message", at("new", 3)) is None


def test_kinds_of_items_do_not_meet() -> None:
    """Text is never looked for in a call, even at the same place."""
    book = register((at("x", 0), call()))
    assert book.of_piece("message", at("x", 0)) is None


def test_a_piece_without_a_place_belongs_to_the_latest_open_item() -> None:
    """And to none once that is closed."""
    a, b = message(), message()
    book = register((at("x", 0), a), (at("y", 1), b))
    assert book.of_piece("message", at()) is b
    b.is_closed = True
    assert book.of_piece("message", at()) is None


def test_a_closed_item_is_found_by_id_and_not_by_place() -> None:
    """A late piece is recognised as late, while a new item at the same place is new."""
    a = message()
    a.is_closed = True
    book = register((at("x", 0), a))
    assert book.of_piece("message", at("x", 0)) is a
    assert book.of_piece("message", at("y", 0)) is None
    nameless = register((at("", 0), a))
    assert nameless.of_piece("message", at("", 0)) is None


def test_an_announcement_is_new_unless_it_repeats_or_was_begun_by_its_pieces() -> None:
    """The same place again is the same item; a call by another name is another one."""
    draft = call("c1")
    draft.announced = ItemIn(type="message")
    book = register((at("x", 0), draft))
    assert book.of_added("call", at("x", 0), Named(call_id="c1")) is draft
    assert book.of_added("call", at("x", 0), Named(call_id="c2")) is None
    assert book.of_added("call", at("y", 0), Named(call_id="c1")) is None
    assert book.of_added("call", at(), Named(call_id="c1")) is None
    early = register((at("", 0), call("", "")))
    assert early.of_added("call", at("x", 0), Named(call_id="c1", name="f")) is not None


@pytest.mark.parametrize(
    ("place", "named", "found"),
    [
        (at("x", 0), Named(call_id="c1"), True),
        (at("x", 9), Named(call_id="c1"), True),
        (at("new", 9), Named(call_id="c1"), True),
        (at("new", 0), Named(name="f"), True),
        (at(), Named(call_id="c1"), True),
        (at(), Named(name="f"), True),
        (at("x", 0), Named(call_id="c2"), False),
        (at("new", 0), Named(name="g"), False),
        (at("new", 9), Named(name="f"), False),
        (at(), Named(name="g"), False),
    ],
)
def test_a_whole_item_ends_the_one_it_can_be(place: ItemPosition, named: Named, found: bool) -> None:
    """By both names, by its id, by its call id, by its place, in this order, and never against its own names."""
    draft = call("c1")
    assert (register((at("x", 0), draft)).of_done("call", place, named) is draft) is found


def test_an_ended_item_ends_again_only_at_its_own_place() -> None:
    """A repeated end is recognised; the same id elsewhere is another item."""
    draft = message()
    draft.is_closed = True
    book = register((at("x", 0), draft))
    assert book.of_done("message", at("x", 0), Named()) is draft
    assert book.of_done("message", at("x"), Named()) is draft
    assert book.of_done("message", at("x", 1), Named()) is None


def test_the_final_output_knows_ids_alone() -> None:
    """Positions in it need not be the places of the stream."""
    a, b = message(), call("c1")
    book = register((at("x", 4), a), (at("y", 5), b))
    assert book.of_output("message", "x", "") is a
    assert book.of_output("call", "gone", "c1") is b
    assert book.of_output("message", "gone", "c1") is None
    assert book.at("message", 4) is a
    assert book.at("message", 0) is None
