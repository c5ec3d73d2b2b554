"""A request respelled for upstreams that know only the legacy functions of the Chat API.

They have one call in a message and no ids: several calls of a turn become as many pairs of call and result, in
order, and results name their function. Custom tools have no such form and stay as they are.
"""

from typing import Any, cast

from treadle.canon.json import read_json, write_json
from treadle.wire.chat.chunk import as_list, as_object


def legacy_body(body: bytes) -> bytes:
    """Return the body that `write_request` wrote, spelled with `functions` and `function_call`."""
    fields = as_object(read_json(body))
    messages = [as_object(message) for message in as_list(fields.get("messages"))]
    fields["messages"] = _respell(messages)
    tools = [as_object(tool) for tool in as_list(fields.pop("tools", None))]
    functions = [tool["function"] for tool in tools if "function" in tool]
    others = [tool for tool in tools if "function" not in tool]
    choice = fields.pop("tool_choice", None)
    fields.pop("parallel_tool_calls", None)
    if functions:
        fields["functions"] = [_function(as_object(function)) for function in functions]
        fields |= _choice(choice)
    if others:
        fields["tools"] = others
    return write_json(fields)


def _function(function: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in function.items() if name != "strict"}


def _choice(choice: Any) -> dict[str, Any]:
    """Return the choice; a legacy upstream cannot be told that it must call something."""
    if isinstance(choice, dict):
        named = as_object(cast("dict[str, Any]", choice).get("function"))
        return {"function_call": named} if named else {}
    return {"function_call": "none"} if choice == "none" else {}


def _respell(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    spelled: list[dict[str, Any]] = []
    rest = iter(messages)
    for message in rest:
        calls = as_list(message.pop("tool_calls", None)) if message.get("role") == "assistant" else []
        if not calls:
            spelled.append(message)
        for place, call in enumerate(calls):
            opening = message if place == 0 else {"role": "assistant", "content": None}
            function = as_object(as_object(call).get("function"))
            # Every call has its result behind the message, in the order of the calls.
            result = as_object(next(rest, None))
            spelled.append({**opening, "function_call": function})
            spelled.append({"role": "function", "name": function.get("name"), "content": result.get("content")})
    return spelled
