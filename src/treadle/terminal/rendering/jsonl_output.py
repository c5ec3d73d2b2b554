"""The events of `treadle run --output jsonl`: one small, documented JSON object a line.

They are for programs that follow a turn. `treadle export` prints everything that a run stores.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from treadle.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.items import text_of
from treadle.core.json import BadJson, read_json

DOCUMENTED: dict[str, str] = {
    "session.started": "`session` (its id, or null where nothing is kept), `name`, `model`",
    "turn.started": "`run`, `model`",
    "text.delta": "`text`: more of the answer",
    "text.withdrawn": "`chars`: so many characters at the end of the answer do not count: the model call was cut off "
    "when its process died, and answers differently now",
    "reasoning.delta": "`text`: more of what the model thinks, where it shows that",
    "tool.started": "`id`, `name`, `args`: a tool begins to run",
    "tool.output.delta": "`text`: what a tool says of its progress",
    "approval.requested": "`id`, `name`, `args`, `reasons`: a call waits",
    "approval.resolved": "`id`, `name`, `status` (approved, denied, expired, cancelled), `by`, `reason`",
    "tool.finished": "`id`, `name`, `ok`, `code`, `ms`, `bytes`, `truncated`, `output` (what the model read), "
    "`envelope` (the result in the one shape of all tools)",
    "note": "`message`: something was repaired, or could not be carried",
    "turn.finished": "`status`, `limit`, `usage`, `cost` (null: unknown), `ms`, `rounds`, `calls`",
    "error": "`code`, `message`, `hint`",
}
"""Each event and its fields."""


def _args(arguments: str) -> Any:
    try:
        return read_json(arguments) if arguments.strip() else {}
    except BadJson:
        return arguments


def _finished(event: ToolFinished) -> dict[str, Any]:
    return {
        "type": "tool.finished",
        "id": event.call.call_id,
        "name": event.call.name,
        "ok": not event.result.is_error,
        "code": event.result.rc,
        "ms": round(event.duration_s * 1000),
        "bytes": event.output_bytes,
        "truncated": event.truncated,
        "output": text_of(event.result.output),
        "envelope": event.envelope,
    }


def _resolved(event: ApprovalDecided) -> dict[str, Any]:
    about = {"id": event.approval_id, "name": event.call.name, "status": event.status}
    return {"type": "approval.resolved", **about, "by": event.by, "reason": event.reason}


_WRITERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    RunStarted: lambda event: {"type": "turn.started", "run": event.run_id, "model": event.model},
    TextDelta: lambda event: {"type": "text.delta", "text": event.text},
    RefusalDelta: lambda event: {"type": "text.delta", "text": event.text},
    ReasoningDelta: lambda event: {"type": "reasoning.delta", "text": event.text},
    ToolStarted: lambda event: {
        "type": "tool.started",
        "id": event.call.call_id,
        "name": event.call.name,
        "args": _args(event.call.arguments),
    },
    ApprovalRequested: lambda event: {
        "type": "approval.requested",
        "id": event.approval_id,
        "name": event.call.name,
        "args": _args(event.call.arguments),
        "reasons": event.reasons,
    },
    ApprovalDecided: _resolved,
    ToolFinished: _finished,
    Noted: lambda event: {"type": "note", "message": event.note.message},
}


def line_of(event: object) -> dict[str, Any] | None:
    """Return an event as an object; None for events that are not printed."""
    write = _WRITERS.get(type(event))
    return None if write is None else write(event)


def finished_line(ended: RunEnded, cost: float | None, seconds: float) -> dict[str, Any]:
    """Return the end of a turn as an object."""
    usage = None if ended.usage is None else msgspec.to_builtins(ended.usage)
    return {
        "type": "turn.finished",
        "status": ended.status,
        "limit": ended.limit,
        "usage": usage,
        "cost": cost,
        "ms": round(seconds * 1000),
        "rounds": ended.rounds,
        "calls": ended.calls,
    }
