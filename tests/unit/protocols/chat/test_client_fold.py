from typing import Any

import pytest

from treadle.protocols.chat.client_fold import MessageFold


def _folded(*deltas: dict[str, Any]) -> dict[str, Any]:
    fold = MessageFold()
    for delta in deltas:
        fold.add(delta)
    fold.ended.add(0)
    return fold.message()


def _call(index: int, id: str, name: str) -> dict[str, Any]:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}


@pytest.mark.parametrize(
    ("deltas", "message"),
    [
        (({"content": ""},), {"role": "assistant", "content": "", "refusal": None}),
        (
            ({"role": "assistant", "content": "a"}, {"content": "b"}),
            {"role": "assistant", "content": "ab", "refusal": None},
        ),
        (({"refusal": "n"}, {"refusal": "o"}), {"role": "assistant", "content": None, "refusal": "no"}),
        (
            ({"reasoning_content": "h"}, {"content": "a"}),
            {"role": "assistant", "content": "a", "refusal": None, "reasoning_content": "h"},
        ),
        (
            ({"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": "{}"}}),
            {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "function_call": {"name": "f", "arguments": "{}"},
            },
        ),
    ],
)
def test_deltas_add_up_to_a_message(deltas: tuple[dict[str, Any], ...], message: dict[str, Any]) -> None:
    """Content is null only where something else stands in its place."""
    assert _folded(*deltas) == message


def test_interleaved_calls_are_put_together_by_index() -> None:
    """Functions and custom tools keep their own words; those that have not ended are left out."""
    custom = {"index": 1, "id": "b", "type": "custom", "custom": {"name": "p", "input": ""}}
    fold = MessageFold()
    fold.add({"tool_calls": [_call(0, "a", "f"), custom]})
    fold.add_arguments(1, "x")
    fold.add_arguments(0, "{}", {"more": 1})
    assert "tool_calls" not in fold.message()
    fold.ended |= {0, 1}
    message = fold.message()
    assert message == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}, "more": 1},
            {"id": "b", "type": "custom", "custom": {"name": "p", "input": "x"}},
        ],
    }
