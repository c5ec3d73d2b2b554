from typing import Any

import pytest

from treadle.canon.items import CallItem, text_message, text_result
from treadle.canon.json import read_json
from treadle.canon.plan import Plan
from treadle.canon.request import Options
from treadle.canon.tools import NONE, ToolChoice, ToolSpec
from treadle.wire.chat import write_request
from treadle.wire.chat.legacy import legacy_body

A = CallItem(call_id="a", name="f", arguments='{"x":1}')
B = CallItem(call_id="b", name="g", arguments="{}")
TOOLS = (ToolSpec(name="f", strict=True), ToolSpec(name="g"))


def _legacy(*items: Any, **fields: Any) -> dict[str, Any]:
    return read_json(legacy_body(write_request(Plan(items=items, model="m", **fields)).body))


def test_a_turn_becomes_pairs_of_call_and_result() -> None:
    """One call in a message, no ids, results by name."""
    items = (
        text_message("user", "hi"),
        text_message("assistant", "look"),
        A,
        B,
        text_result(B, "rb"),
        text_result(A, "ra"),
    )
    assert _legacy(*items)["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "look", "function_call": {"name": "f", "arguments": '{"x":1}'}},
        {"role": "function", "name": "f", "content": "ra"},
        {"role": "assistant", "content": None, "function_call": {"name": "g", "arguments": "{}"}},
        {"role": "function", "name": "g", "content": "rb"},
    ]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice(), None),
        (NONE, "none"),
        (ToolChoice(mode="required"), None),
        (ToolChoice(mode="named", name="f"), {"name": "f"}),
    ],
)
def test_tools_and_choices_become_functions(choice: ToolChoice, expected: Any) -> None:
    """Without strict and the parallel flag, which are younger."""
    body = _legacy(
        text_message("user", "hi"), tools=TOOLS, tool_choice=choice, options=Options(parallel_tool_calls=True)
    )
    schema = {"type": "object", "properties": {}}
    assert body["functions"] == [{"name": "f", "parameters": schema}, {"name": "g", "parameters": schema}]
    assert body.get("function_call") == expected
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()


def test_a_request_without_tools_is_left_alone() -> None:
    """Custom tools have no legacy form."""
    plain = Plan(items=(text_message("user", "hi"),), model="m")
    assert legacy_body(write_request(plain).body) == write_request(plain).body
    custom = _legacy(text_message("user", "hi"), tools=(ToolSpec(name="p", kind="custom"),))
    assert custom["tools"] == [{"type": "custom", "custom": {"name": "p"}}]
    assert "functions" not in custom
