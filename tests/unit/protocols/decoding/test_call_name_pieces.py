"""Names of calls that come in pieces: joined where the offered tools prove it, else left as they are."""

import json
from typing import Any

import pytest

from treadle.core.events import ArgumentsDelta, ItemAdded, ItemDone, ModelEvent, Noted, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem, text_message
from treadle.core.plan import Plan
from treadle.core.tool_definitions import ToolSpec
from treadle.providers.provider_model import open_call


def piece(name: str | None, arguments: str = "", call_id: str | None = None, index: int = 0) -> dict[str, Any]:
    """Return one entry of `tool_calls` in a chunk of Chat."""
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return {"index": index, "function": function} | ({} if call_id is None else {"id": call_id, "type": "function"})


def answered(*deltas: dict[str, Any], tools: tuple[str, ...] = ("get_time", "set_alarm")) -> list[ModelEvent]:
    """Return the events of a streamed answer of a Chat upstream that was offered these tools."""
    specs = tuple(ToolSpec(name=name) for name in tools)
    plan = Plan(items=(text_message("user", "go"),), model="m", tools=specs)
    decoder = open_call("chat", plan, CountingIds(), "p").decoder
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    return decoder.feed(body) + decoder.finish()


def calls(events: list[ModelEvent]) -> list[tuple[str, str]]:
    """Return names and arguments of the calls, each of which must have begun under the same name, id and index."""
    added = {event.index: event.item for event in events if isinstance(event, ItemAdded)}
    done = [(event.index, event.item) for event in events if isinstance(event, ItemDone)]
    found: list[tuple[str, str]] = []
    for index, item in done:
        begun = added.pop(index)
        assert isinstance(item, CallItem)
        assert isinstance(begun, CallItem)
        assert (begun.name, begun.id, begun.call_id) == (item.name, item.id, item.call_id)
        found.append((item.name, item.arguments))
    assert not added
    return found


def is_joined(events: list[ModelEvent]) -> bool:
    """Tell whether the answer has the note on joined names."""
    return any(isinstance(event, Noted) and event.note.code == "name_joined" for event in events)


@pytest.mark.parametrize(
    "names",
    [("get", "get_time"), ("get_", "time"), ("g", "get", "get_time"), ("get", "_", "time"), ("ge", "get_ti", "me")],
)
@pytest.mark.parametrize("call_id", ["a", None], ids=["id", "no-id"])
def test_a_name_in_pieces_is_one_call(names: tuple[str, ...], call_id: str | None) -> None:
    """However its pieces are cut, grown or continued; it has the first id."""
    deltas = [{"tool_calls": [piece(name, "", call_id)]} for name in names]
    events = answered(*deltas, {"tool_calls": [piece(None, '{"z":')]}, {"tool_calls": [piece(None, "1}")]})
    assert calls(events) == [("get_time", '{"z":1}')]
    assert is_joined(events)
    (call,) = [event.item for event in events if isinstance(event, ItemDone)]
    assert isinstance(call, CallItem)
    assert call_id in (None, call.call_id)


def test_a_joined_call_without_arguments_is_called_with_none() -> None:
    """And once."""
    events = answered({"tool_calls": [piece("get_", "", "a")]}, {"tool_calls": [piece("time")]})
    assert calls(events) == [("get_time", "{}")]


def test_calls_beside_a_joined_one_are_their_own() -> None:
    """Before it and behind it."""
    events = answered(
        {"tool_calls": [piece("set_alarm", "{}", "a", 0)]},
        {"tool_calls": [piece("get_", "", "b", 1)]},
        {"tool_calls": [piece("time", '{"z":1}', None, 1)]},
        {"tool_calls": [piece("set_alarm", '{"t":2}', "c", 2)]},
    )
    assert calls(events) == [("set_alarm", "{}"), ("get_time", '{"z":1}'), ("set_alarm", '{"t":2}')]


@pytest.mark.parametrize(
    ("tools", "deltas", "expected"),
    [
        # Both names are tools: two calls of one index.
        (("get", "get_time"), [("get", "", None), ("get_time", "{}", None)], [("get", "{}"), ("get_time", "{}")]),
        # Another id is another call.
        (("get_time",), [("get", "", "a"), ("get_time", "{}", "b")], [("get", "{}"), ("get_time", "{}")]),
        # What has arguments is not the beginning of a name.
        (("get_time",), [("get", '{"a":1}', "a"), ("get_time", "{}", "a")], [("get", '{"a":1}'), ("get_time", "{}")]),
        # No tool is called what they make.
        (("get_time",), [("get_", "", None), ("date", "{}", None)], [("get_", "{}"), ("date", "{}")]),
        # The rest never came.
        (("get_time",), [("get_", "", "a")], [("get_", "{}")]),
        # Nothing was offered.
        ((), [("get", "", "a"), ("get_time", "{}", "a")], [("get", "{}"), ("get_time", "{}")]),
    ],
    ids=["both-tools", "other-id", "has-arguments", "no-tool", "cut", "no-tools"],
)
def test_what_the_tools_do_not_prove_stays_as_it_is(tools: Any, deltas: Any, expected: list[tuple[str, str]]) -> None:
    """Two names are two calls."""
    events = answered(*({"tool_calls": [piece(*delta)]} for delta in deltas), tools=tools)
    assert calls(events) == expected
    assert not is_joined(events)


def test_text_behind_a_piece_comes_behind_its_call() -> None:
    """A held call goes out before anything else does."""
    events = answered({"tool_calls": [piece("get_", "", "a")]}, {"content": "so"})
    kinds = [type(event) for event in events if isinstance(event, ItemAdded | TextDelta)]
    assert kinds == [ItemAdded, ItemAdded, TextDelta]


def test_arguments_of_an_earlier_piece_are_the_call_s_too() -> None:
    """A server that repeats the first index for what the second began loses nothing."""
    events = answered(
        {"tool_calls": [piece("get_", index=0)]},
        {"tool_calls": [piece("time", index=1)]},
        {"tool_calls": [piece(None, '{"zone":', index=0)]},
        {"tool_calls": [piece(None, '"CET"}', index=0)]},
    )
    assert calls(events) == [("get_time", '{"zone":"CET"}')]
    assert is_joined(events)
    told = [event.text for event in events if isinstance(event, ArgumentsDelta)]
    assert "".join(told) == '{"zone":"CET"}'


def test_an_empty_object_in_the_middle_of_arguments_is_kept() -> None:
    """Only a piece that says nothing else is taken to have none."""
    events = answered(
        {"tool_calls": [piece("get_", index=0)]},
        {"tool_calls": [piece("time", index=1)]},
        {"tool_calls": [piece(None, '{"zone":', index=1)]},
        {"tool_calls": [piece(None, "{}", index=1)]},
        {"tool_calls": [piece(None, "}", index=1)]},
    )
    assert calls(events) == [("get_time", '{"zone":{}}')]
