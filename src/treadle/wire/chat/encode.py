"""The events of a run as one Chat completion: chunks for a client that streams, one object for a client that waits.

There is one path: every event becomes deltas, the deltas are folded into the message, and only then, if the client
streams, written. Calls that Treadle runs itself are not shown: Chat has no form for them. Nothing is sent before
there is something to say, so that a run that fails at once can still be answered with a status.
"""

from typing import Any, assert_never

from treadle.canon import ids as prefixes
from treadle.canon.errors import ErrorInfo
from treadle.canon.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    KeptAlive,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.canon.ids import IdSource
from treadle.canon.items import (
    AnyItem,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ReferenceItem,
    RefusalPart,
    ResultItem,
    text_of,
)
from treadle.canon.json import write_json
from treadle.canon.request import Request
from treadle.canon.usage import Usage
from treadle.wire.chat.fold import MessageFold
from treadle.wire.errors import openai_error, write_error
from treadle.wire.sse import write_frame

DONE_FRAME = b"data: [DONE]\n\n"

_FINISH_REASONS = {"length": "length", "filtered": "content_filter"}
_CANCELLED = ErrorInfo(code="cancelled", message="The run was cancelled.", status=499)
_UNKNOWN = ErrorInfo(code="upstream_error", message="The run failed.", status=502)
_BREAK = "\n\n"


class _Shown:
    """An item that the client sees: how much of each field was sent, and for a call its place among the calls."""

    __slots__ = ("place", "sent")

    def __init__(self, place: int = -1) -> None:
        self.place = place
        self.sent = {"content": 0, "refusal": 0, "reasoning_content": 0, "arguments": 0}


class Encoder:
    """Writes one run as one Chat completion."""

    def __init__(self, request: Request, ids: IdSource, *, tool_status: bool = False) -> None:
        self._surface = request.surface
        self._tool_status = tool_status
        self._ids = ids
        self._head: dict[str, Any] = {"id": "", "object": "chat.completion.chunk", "created": 0, "model": request.model}
        self._run_id = ""
        self._prefix = b""
        self._fold = MessageFold()
        self._shown: dict[int, _Shown] = {}
        self._calls = 0
        self._has_role = False
        self._breaks = {"content": False, "reasoning_content": False}
        self._ended: RunEnded | None = None
        self._finish_reason: str | None = None
        self._frames: list[bytes] = []

    def feed(self, event: RunEvent) -> list[bytes]:
        """Return the frames to send; none when the client does not stream, or after the end."""
        if self._ended is not None:
            return []
        self._read(event)
        frames, self._frames = self._frames, []
        return frames if self._surface.stream else []

    def body(self) -> bytes:
        """Return the whole completion, or the error envelope of a run that has none. The run must have ended."""
        ended = self._ended
        assert ended is not None, "the run has not ended"
        if self._finish_reason is None:
            return write_error("chat", ended.error or _CANCELLED)
        choice = {
            "index": 0,
            "message": self._fold.message(),
            "logprobs": None,
            "finish_reason": self._finish_reason,
        }
        usage = None if ended.usage is None else _usage(ended.usage)
        head = {**self._head, "object": "chat.completion"}
        return write_json({**head, "choices": [choice], "usage": usage, **self._limit(ended)})

    def _read(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self._start(event)
            case ItemAdded():
                self._show(event.index, event.item)
            case TextDelta():
                self._say(event.index, "content", event.text)
            case RefusalDelta():
                self._say(event.index, "refusal", event.text)
            case ReasoningDelta():
                self._say(event.index, "reasoning_content", event.text)
            case ArgumentsDelta():
                self._argue(event.index, event.text)
            case ItemDone():
                self._complete(event.index, event.item)
            case ToolStarted():
                self._tell_status(event.call)
            case KeptAlive():
                self._send({})
            case RunEnded():
                self._end(event)
            case RoundStarted() | ToolFinished() | Noted():
                pass
            case _:
                assert_never(event)

    def _start(self, event: RunStarted) -> None:
        is_ours = event.response_id.startswith(prefixes.COMPLETION)
        self._run_id = event.run_id
        self._head["id"] = event.response_id if is_ours else self._ids.new(prefixes.COMPLETION)
        self._head["created"] = int(event.created_at)
        self._head["model"] = event.model
        self._prefix = write_json(self._head)[:-1] + b',"choices":[{"index":0,"delta":'

    def _show(self, index: int, item: AnyItem) -> None:
        match item:
            case MessageItem():
                self._shown[index] = _Shown()
                self._break("content")
            case ReasoningItem():
                self._shown[index] = _Shown()
                self._break("reasoning_content")
            case CallItem():
                self._show_call(index, item)
            case ResultItem() | OpaqueItem() | ReferenceItem():
                pass

    def _show_call(self, index: int, call: CallItem) -> None:
        # A legacy answer has room for one call.
        if call.side == "server" or (self._surface.legacy_functions and self._calls):
            return
        place, self._calls = self._calls, self._calls + 1
        self._shown[index] = _Shown(place)
        if self._surface.legacy_functions:
            self._send({"function_call": {"name": call.name, "arguments": ""}})
            return
        words = ("custom", "input") if call.kind == "custom" else ("function", "arguments")
        body = {"name": call.name, words[1]: ""}
        self._send({"tool_calls": [{"index": place, "id": call.call_id, "type": words[0], words[0]: body}]})

    def _say(self, index: int, field: str, text: str) -> None:
        shown = self._shown.get(index)
        if shown is None or not text:
            return
        shown.sent[field] += len(text)
        if self._breaks.get(field):
            self._breaks[field] = False
            text = _BREAK + text
        self._send({field: text})

    def _argue(self, index: int, text: str) -> None:
        shown = self._shown.get(index)
        if shown is None or shown.place < 0 or not text:
            return
        shown.sent["arguments"] += len(text)
        if self._surface.legacy_functions:
            self._send({"function_call": {"arguments": text}})
        elif self._fold.is_custom(shown.place):
            self._send({"tool_calls": [{"index": shown.place, "custom": {"input": text}}]})
        else:
            self._send({"tool_calls": [{"index": shown.place, "function": {"arguments": text}}]})

    def _complete(self, index: int, item: AnyItem) -> None:
        """Send what of an item was not streamed."""
        if index not in self._shown:
            self._show(index, item)
        shown = self._shown.get(index)
        if shown is None:
            return
        match item:
            case MessageItem():
                self._say(index, "content", text_of(item.content)[shown.sent["content"] :])
                declined = "".join(part.text for part in item.content if isinstance(part, RefusalPart))
                self._say(index, "refusal", declined[shown.sent["refusal"] :])
            case ReasoningItem():
                thought = "".join((*item.summary, *item.text))
                self._say(index, "reasoning_content", thought[shown.sent["reasoning_content"] :])
            case CallItem():
                self._argue(index, item.arguments[shown.sent["arguments"] :])
            case ResultItem() | OpaqueItem() | ReferenceItem():
                pass

    def _tell_status(self, call: CallItem) -> None:
        if self._tool_status:
            self._break("content")
            text = f"Calling {call.name}…"
            self._send({"content": (_BREAK if self._breaks["content"] else "") + text})
            self._breaks["content"] = True

    def _break(self, field: str) -> None:
        """Part what follows from what stands there: the texts of several rounds are one content here."""
        self._breaks[field] = self._fold.has(field)

    def _end(self, event: RunEnded) -> None:
        self._ended = event
        if event.status == "failed":
            self._frames.append(write_frame(write_json({"error": openai_error(event.error or _UNKNOWN)})))
        elif event.status != "cancelled":
            self._finish(event)
        self._frames.append(DONE_FRAME)

    def _finish(self, event: RunEnded) -> None:
        reason = _FINISH_REASONS.get(event.stop) if event.status == "incomplete" else None
        if reason is None and self._calls:
            reason = "function_call" if self._surface.legacy_functions else "tool_calls"
        self._finish_reason = reason or "stop"
        self._send({}, self._finish_reason, self._limit(event))
        if self._surface.include_usage and event.usage is not None:
            chunk: dict[str, Any] = {**self._head, "choices": [], "usage": _usage(event.usage)}
            self._frames.append(write_frame(write_json(chunk)))

    def _limit(self, event: RunEnded) -> dict[str, Any]:
        return {"treadle": {"run_id": self._run_id, "limit": event.limit}} if event.limit else {}

    def _send(self, delta: dict[str, Any], reason: str | None = None, extra: dict[str, Any] | None = None) -> None:
        if not self._has_role:
            self._has_role = True
            delta = {"role": "assistant", **delta}
        self._fold.add(delta)
        if not self._surface.stream:
            return
        assert self._prefix, "a run begins with RunStarted"
        tail = {"finish_reason": reason}
        chunk = self._prefix + write_json(delta) + b"," + write_json(tail)[1:] + b"]"
        if self._surface.include_usage:
            chunk += b',"usage":null'
        if extra:
            chunk += b"," + write_json(extra)[1:-1]
        self._frames.append(write_frame(chunk + b"}"))


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
