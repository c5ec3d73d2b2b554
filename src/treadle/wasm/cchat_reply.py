"""Encodes the result of a send for a guest: a Chat Completions object or an error, and the metrics."""

from typing import Any

import msgspec

from treadle.core.items import AnyItem, CallItem, MessageItem, RefusalPart, ResultItem, text_of
from treadle.core.json import write_json
from treadle.wasm.execution.thread_messages import Sent

_FINISH = {
    "done": "stop",
    "stop_sequence": "stop",
    "calls": "tool_calls",
    "length": "length",
    "filtered": "content_filter",
}


def write_reply(sent: Sent) -> bytes:
    """Return the body that `cchat_recv` copies out."""
    if sent.error is not None:
        error = {"message": sent.error.message, "code": sent.error.code, "param": sent.error.param}
        return write_json({"error": error, "treadle": _about(sent)})
    choice = {"index": 0, "message": _message(sent.items), "finish_reason": _FINISH.get(sent.stop, "stop")}
    return write_json(
        {
            "id": sent.response_id,
            "object": "chat.completion",
            "created": int(sent.created_at),
            "model": sent.model,
            "choices": [choice],
            "usage": _usage(sent),
            "treadle": _about(sent),
        }
    )


def write_metrics(sent: Sent) -> bytes:
    """Return the body of GET_METRICS: usage summed over the rounds of the send."""
    return write_json({**(_usage(sent) or {}), "iterations": sent.rounds, "tool_calls": sent.calls})


def last_turn(items: tuple[AnyItem, ...]) -> tuple[AnyItem, ...]:
    """Return the items after the last tool result."""
    last = max((place for place, item in enumerate(items) if isinstance(item, ResultItem)), default=-1)
    return items[last + 1 :]


def _message(items: tuple[AnyItem, ...]) -> dict[str, Any]:
    turn = last_turn(items)
    messages = [item for item in turn if isinstance(item, MessageItem)]
    text = "".join(text_of(message.content) for message in messages)
    refusals = [part.text for message in messages for part in message.content if isinstance(part, RefusalPart)]
    calls = [_call(item) for item in turn if isinstance(item, CallItem)]
    written: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    if refusals:
        written["refusal"] = "".join(refusals)
    return {**written, "tool_calls": calls} if calls else written


def _call(call: CallItem) -> dict[str, Any]:
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _usage(sent: Sent) -> dict[str, int] | None:
    if sent.usage is None:
        return None
    usage = sent.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }


def _about(sent: Sent) -> dict[str, Any]:
    """Return the run's id and status, and the limit that ended it."""
    about = {"run_id": sent.run_id, "status": sent.status, "limit": sent.limit}
    return {name: value for name, value in about.items() if value}


def as_history(items: tuple[AnyItem, ...]) -> tuple[AnyItem, ...]:
    """Return the items as history for the next send, without their journal ids."""
    return tuple(msgspec.structs.replace(item, id="") for item in items)
