from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.items import Blob, CallItem, ReasoningItem, ResultItem, text_message, text_result
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.core.request import Request
from treadle.journal.journal_interface import RunRow, Store
from treadle.runs.conversation_history import (
    INTERRUPTED,
    ConversationHistory,
    _matches_turn,
    close_orphans,
    input_entries,
    read_history,
    rejoin,
)
from unit.core import strategies

USER = text_message("user", "go")
SERVER = CallItem(call_id="s1", name="ours", side="server")
CLIENT = CallItem(call_id="c1", name="theirs")
LATER = CallItem(call_id="s2", name="ours", side="server")
TURN = [SERVER, CLIENT, LATER, text_result(SERVER, "one"), text_result(LATER, "three")]
TURNS = {"s1": TURN, "c1": TURN, "s2": TURN}


def test_a_mixed_turn_is_joined_in_call_order():
    """The client sends its half; the model sees all calls, then all results in the order of the calls."""
    sent = [USER, CLIENT, text_result(CLIENT, "two")]
    assert rejoin(sent, TURNS) == [
        USER,
        SERVER,
        CLIENT,
        LATER,
        text_result(SERVER, "one"),
        text_result(CLIENT, "two"),
        text_result(LATER, "three"),
    ]


def test_what_the_client_sends_of_the_servers_half_is_not_doubled():
    """A client that replays server calls too gets the same conversation."""
    sent = [USER, SERVER, text_result(SERVER, "one"), CLIENT, text_result(CLIENT, "two"), LATER]
    assert rejoin(sent, TURNS) == rejoin([USER, CLIENT, text_result(CLIENT, "two")], TURNS)


def test_ordinary_calls_are_left_alone():
    """Without a remembered turn nothing changes."""
    sent = [USER, CLIENT, text_result(CLIENT, "two")]
    assert rejoin(sent, {}) == sent


def test_a_call_without_a_result_is_closed_after_its_group():
    """Providers refuse an open call: it reads as interrupted, and its siblings stay together."""
    other = CallItem(call_id="c2", name="theirs")
    items = [USER, CLIENT, other, text_result(other, "two"), USER]
    closing = text_result(CLIENT, INTERRUPTED, is_error=True, rc="interrupted")
    assert close_orphans(items) == [USER, CLIENT, other, closing, text_result(other, "two"), USER]


def test_an_open_call_at_the_end_is_closed():
    """Also when nothing follows it."""
    assert close_orphans([CLIENT]) == [CLIENT, text_result(CLIENT, INTERRUPTED, is_error=True, rc="interrupted")]


def test_a_result_that_comes_late_still_counts():
    """Input may hold calls first and results later, in any order."""
    items = [CLIENT, USER, text_result(CLIENT, "two")]
    assert close_orphans(items) == items


def test_a_call_proves_its_turn_by_name_and_arguments_however_spelled():
    """Upstreams reuse ids: another call of the same id must not bring another conversation's turn in."""
    call = CallItem(call_id="c1", name="theirs", arguments='{"a": 1, "b": 2}')
    turn = [SERVER, call, text_result(SERVER, "one")]
    respelled = msgspec.structs.replace(call, arguments='{"b":2,"a":1}')
    assert _matches_turn(turn, {"c1": respelled})
    assert not _matches_turn(turn, {"c1": msgspec.structs.replace(call, arguments='{"a":1}')})
    assert not _matches_turn(turn, {"c1": msgspec.structs.replace(call, name="other")})
    assert not _matches_turn(turn, {"c2": call})


def test_a_turn_is_only_brought_in_for_all_its_calls():
    """A conversation that has one of its two calls is another one: nothing was left open in it."""
    first, second = CallItem(call_id="c1", name="theirs"), CallItem(call_id="c2", name="theirs")
    assert not _matches_turn([first, second], {"c1": first})
    assert _matches_turn([first, second], {"c1": first, "c2": second, "c3": first})


THOUGHT = ReasoningItem(text=("hm",), blobs=(Blob(provider="p", kind="signature", data="x"),))


def test_reasoning_that_only_its_provider_can_read_comes_back():
    """A client that cannot carry it gets it joined again; one that sends it back does not double it."""
    turn = [THOUGHT, CLIENT]
    said = text_message("assistant", "One moment.")
    expected = [USER, said, THOUGHT, CLIENT, text_result(CLIENT, "two")]
    assert rejoin([USER, said, CLIENT, text_result(CLIENT, "two")], {"c1": turn}) == expected
    assert rejoin([USER, THOUGHT, said, CLIENT, text_result(CLIENT, "two")], {"c1": turn}) == expected


@pytest.mark.parametrize("sent", [(), ("thoughts",)], ids=["not sent", "sent back"])
def test_reasoning_comes_back_where_it_stood(sent: tuple[str, ...]) -> None:
    """Before the text that followed it: some providers refuse a turn that does not begin with its thoughts."""
    first, second, again = (
        text_message("assistant", "A"),
        text_message("assistant", "B"),
        text_message("assistant", "0"),
    )
    deeper = msgspec.structs.replace(THOUGHT, text=("still",))
    turn = [THOUGHT, first, deeper, second, CLIENT]
    thoughts = [THOUGHT, deeper] if sent else []
    result = text_result(CLIENT, "two")
    expected = [USER, *turn, result]
    assert rejoin([USER, *thoughts[:1], first, *thoughts[1:], second, CLIENT, result], {"c1": turn}) == expected
    before = [USER, again, *turn, result]
    assert rejoin([USER, again, *thoughts, first, second, CLIENT, result], {"c1": turn}) == before
    joined = text_message("assistant", "A B")
    assert rejoin([USER, *thoughts, joined, CLIENT, result], {"c1": turn}) == [
        USER,
        THOUGHT,
        joined,
        deeper,
        CLIENT,
        result,
    ]


@given(st.lists(strategies.items, max_size=12))
def test_every_call_has_a_result_afterwards_and_nothing_is_lost(items):
    """Whatever comes in, closing only adds results, and adds none twice."""
    closed = close_orphans(items)
    results = {item.call_id for item in closed if isinstance(item, ResultItem)}
    assert all(item.call_id in results for item in closed if isinstance(item, CallItem))
    kept = [item for item in closed if not (isinstance(item, ResultItem) and item.rc == "interrupted")]
    assert kept == [item for item in items if not (isinstance(item, ResultItem) and item.rc == "interrupted")]
    assert close_orphans(closed) == closed


@pytest.mark.parametrize("protocol", ["chat", "messages", "gemini", "responses", "treadle"])
async def test_an_item_is_named_where_a_client_can_refer_to_it(protocol: Any) -> None:
    """Whatever is stored can be gone on with by the Responses; nothing else needs an id, one that is there stays."""
    items = (text_message("user", "hello"), text_message("user", "again", "msg_7"))
    joined = await ConversationHistory(cast("Store", None)).join(
        Request(protocol=protocol, model="m", items=items), key_id=""
    )
    assert joined.added == items
    row = RunRow(id="run_1f", response_id="r", conversation_id="c", protocol=protocol, model="m", created_at=1.0)
    assert [entry.item_id for entry in input_entries(items, row)] == ["msg_1f_1", "msg_7"]
    forgotten = input_entries(items, msgspec.structs.replace(row, store=False))
    assert [entry.item_id for entry in forgotten] == [None, "msg_7"]


class Kept:
    """A store with one history."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries

    async def history(self, run_id: str, *, for_next: bool = False) -> list[Entry]:
        return self._entries


async def test_what_has_no_id_is_read_by_its_place() -> None:
    """So that whoever goes on with such a conversation by another API can list it and take something back."""
    call = CallItem(call_id="c", name="look")
    items = [
        text_message("user", "one"),
        call,
        text_message("assistant", "two", "msg_a"),
        text_message("user", "three"),
    ]
    void = Entry(kind="void", at=1.0, data=msgspec.Raw(b'{"items":["msg_1"]}'))
    kept = [entry_of_item(item, at=1.0) for item in items]
    whole = await read_history(cast("Store", Kept(kept)), "run_1")
    assert [item.id for item in whole] == ["msg_1", "fc_2", "msg_a", "msg_4"]
    assert [msgspec.structs.replace(item, id=own.id) for item, own in zip(whole, items, strict=True)] == items
    rest = await read_history(cast("Store", Kept([*kept[:3], void, kept[3]])), "run_1")
    assert [item.id for item in rest] == ["fc_2", "msg_a", "msg_5"]
