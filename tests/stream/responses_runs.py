"""Builders of runs, and of the items a client sees of them, for the tests of the Responses encoder."""

from typing import Any

import msgspec

from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    RoundStarted,
    RunEvent,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.items import (
    CallItem,
    MessageItem,
    TextPart,
    text_result,
)

START = ["created", "in_progress"]
TEXT = [
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
]
CALL = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
SERVER = [
    "output_item.added",
    "mcp_call.in_progress",
    "mcp_call_arguments.delta",
    "mcp_call_arguments.done",
    "mcp_call.completed",
    "output_item.done",
]


def said(text: str, item_id: str = "msg_1") -> MessageItem:
    """Return a message of the model with this text."""
    return MessageItem(id=item_id, role="assistant", content=(TextPart(text=text),) if text else ())


def call(arguments: str = "", n: int = 1, name: str = "f", **fields: Any) -> CallItem:
    """Return a call; its ids carry `n`."""
    return CallItem(id=f"fc_{n}", call_id=f"call_{n}", name=name, arguments=arguments, **fields)


def message(index: int, *pieces: str, item_id: str = "msg_1") -> list[RunEvent]:
    """Return the events of a message that streams in these pieces."""
    deltas = [TextDelta(index=index, text=piece) for piece in pieces]
    begin = ItemAdded(index=index, item=said("", item_id))
    return [begin, *deltas, ItemDone(index=index, item=said("".join(pieces), item_id))]


def called(index: int, item: CallItem, *pieces: str) -> list[RunEvent]:
    """Return the events of a call whose arguments stream in these pieces."""
    begin = ItemAdded(index=index, item=msgspec.structs.replace(item, arguments=""))
    deltas = [ArgumentsDelta(index=index, text=piece) for piece in pieces]
    return [begin, *deltas, ItemDone(index=index, item=item)]


def tool_started(index: int, item: CallItem) -> ToolStarted:
    """Return the start of a server call."""
    return ToolStarted(index=index, call=item, source="python")


def tool_finished(index: int, item: CallItem, text: str = "ok", *, is_error: bool = False) -> ToolFinished:
    """Return the end of a server call."""
    result = text_result(item, text, is_error=is_error, rc="failed" if is_error else "ok")
    return ToolFinished(index=index, call=item, result=result, source="python")


def round_started(number: int) -> RoundStarted:
    """Return the start of a round."""
    return RoundStarted(round=number, fingerprint="0")


def function_call(arguments: str, n: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a call as the client sees it."""
    plain = {"type": "function_call", "id": f"fc_{n}", "status": "completed", "call_id": f"call_{n}", "name": "f"}
    return {**plain, "arguments": arguments, **fields}


def message_item(text: str, status: str = "completed", item_id: str = "msg_1") -> dict[str, Any]:
    """Return a message as the client sees it."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": item_id, "status": status, "role": "assistant", "content": [part]}


def server_call(n: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a server call as the client sees it."""
    plain: dict[str, Any] = {"type": "mcp_call", "id": f"mcp_{n}", "status": "completed", "server_label": "python"}
    rest = {"name": "g", "arguments": "{}", "output": "ok", "error": None, "approval_request_id": None}
    return {**plain, **rest, **fields}
