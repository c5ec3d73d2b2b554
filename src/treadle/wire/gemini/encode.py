"""The events of a run as Gemini's responses: frames for a client that streams, one object for a client that waits.

There is one path: every event becomes parts, the parts are folded into the content, and only then, if the client
streams, written. Calls that Treadle runs itself are not shown: Gemini has no form for them. Every frame has a part,
because clients drop a turn that has an empty one, and there are no comments, because clients read them as JSON.
"""

from typing import Any, assert_never

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
    AnyPart,
    Blob,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ReferenceItem,
    RefusalPart,
    ResultItem,
    TextPart,
)
from treadle.canon.json import write_json
from treadle.canon.request import Request
from treadle.canon.usage import Usage
from treadle.wire.errors import write_error
from treadle.wire.gemini.parts import seal, write_arguments, write_part
from treadle.wire.gemini.spelling import PROTOCOL
from treadle.wire.notes import Notes
from treadle.wire.sse import write_frame

_FINISH_REASONS = {"length": "MAX_TOKENS", "filtered": "SAFETY"}
_CANCELLED = ErrorInfo(code="cancelled", message="The run was cancelled.", status=499)
_UNKNOWN = ErrorInfo(code="upstream_error", message="The run failed.", status=502)
_BREAK = "\n\n"
_EMPTY: dict[str, Any] = {"text": ""}
_SIGNED = "thoughtSignature"


class Encoder:
    """Writes one run as one generated content."""

    def __init__(self, request: Request, ids: IdSource) -> None:
        self._surface = request.surface
        self._tail: dict[str, Any] = {"modelVersion": request.model, "responseId": ""}
        self._tail_json = b""
        self._run_id = ""
        self._fold = _Fold()
        self._sent: dict[int, int] = {}
        self._open: dict[int, AnyItem] = {}
        self._held: set[int] = set()
        self._has_refused = False
        self._finish_reason: str | None = None
        self._ended: RunEnded | None = None
        self._frames: list[bytes] = []
        self._has_begun = False

    def feed(self, event: RunEvent) -> list[bytes]:
        """Return the frames to send; none when the client does not stream, or after the end."""
        if self._ended is not None:
            return []
        self._read(event)
        frames, self._frames = self._frames, []
        return frames if self._surface.stream else []

    def body(self) -> bytes:
        """Return the whole response, or the error envelope of a run that has none. The run must have ended."""
        ended = self._ended
        assert ended is not None, "the run has not ended"
        if self._finish_reason is None:
            return write_error(PROTOCOL, ended.error or (_CANCELLED if ended.status == "cancelled" else _UNKNOWN))
        return write_json(self._last(ended, self._fold.parts() or [_EMPTY]))

    def _read(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self._start(event)
            case ItemAdded():
                self._begin(event.index, event.item)
            case TextDelta():
                self._say(event.index, event.text)
            case RefusalDelta():
                self._has_refused = True
                self._say(event.index, event.text)
            case ReasoningDelta():
                self._think(event.index, event.text)
            case ItemDone():
                self._complete(event.index, event.item)
            case ToolStarted():
                self._tell_status(event.call)
            case KeptAlive():
                self._send(_EMPTY)
            case RunEnded():
                self._end(event)
            case ArgumentsDelta() | RoundStarted() | ToolFinished() | Noted():
                pass
            case _:
                assert_never(event)

    def _start(self, event: RunStarted) -> None:
        self._run_id = event.run_id
        self._tail = {"modelVersion": event.model, "responseId": event.response_id}
        self._tail_json = b"," + write_json(self._tail)[1:]

    def _begin(self, index: int, item: AnyItem) -> None:
        """Open an item; while another of its kind is open it is held, because all texts are one content here."""
        if any(type(other) is type(item) for other in self._open.values()):
            self._held.add(index)
        self._open[index] = item

    def _say(self, index: int, text: str) -> None:
        if text and index not in self._held:
            is_first = index not in self._sent
            self._sent[index] = self._sent.get(index, 0) + len(text)
            self._send({"text": self._broken(text) if is_first else text})

    def _think(self, index: int, text: str) -> None:
        if text and index not in self._held:
            self._sent[index] = self._sent.get(index, 0) + len(text)
            self._send({"text": text, "thought": True})

    def _broken(self, text: str) -> str:
        """Part a text from the one before: those of several rounds are one content here."""
        return _BREAK + text if self._fold.has_text else text

    def _complete(self, index: int, item: AnyItem) -> None:
        """Send what of an item was not streamed."""
        self._open.pop(index, None)
        self._held.discard(index)
        sent = self._sent.get(index, 0)
        match item:
            case MessageItem():
                self._complete_message(index, item, sent)
            case ReasoningItem():
                self._think(index, "".join((*item.summary, *item.text))[sent:])
                self._sign({"text": "", "thought": True}, item.blobs)
            case CallItem():
                if item.side == "client":
                    self._call(item)
            case ResultItem() | OpaqueItem() | ReferenceItem():
                pass
            case _:
                assert_never(item)

    def _complete_message(self, index: int, item: MessageItem, sent: int) -> None:
        declined = any(isinstance(part, RefusalPart) for part in item.content)
        self._has_refused = self._has_refused or declined
        said = "".join(part.text for part in item.content if isinstance(part, TextPart | RefusalPart))
        self._say(index, said[sent:])
        for part in item.content:
            self._show(part)
        self._sign(_EMPTY, item.blobs)

    def _show(self, part: AnyPart) -> None:
        if not isinstance(part, TextPart | RefusalPart):
            written = write_part(part, Notes())
            if written is not None:
                self._send(written)

    def _call(self, call: CallItem) -> None:
        arguments = {"input": call.arguments} if call.kind == "custom" else write_arguments(call.arguments)
        part = {"functionCall": {"id": call.call_id, "name": call.name, "args": arguments}}
        self._send({**part, _SIGNED: seal(call.blobs)} if call.blobs else part)

    def _sign(self, part: dict[str, Any], blobs: tuple[Blob, ...]) -> None:
        if blobs:
            self._send({**part, _SIGNED: seal(blobs)})

    def _tell_status(self, call: CallItem) -> None:
        if self._surface.tool_status:
            self._send({"text": self._broken(f"Calling {call.name}…")})

    def _end(self, event: RunEnded) -> None:
        self._ended = event
        if event.status == "failed":
            self._write(write_error(PROTOCOL, event.error or _UNKNOWN))
        elif event.status != "cancelled":
            reason = _FINISH_REASONS.get(event.stop) if event.status == "incomplete" else None
            self._finish_reason = reason or ("SAFETY" if self._has_refused else "STOP")
            self._write(write_json(self._last(event, [_EMPTY])))
        if self._surface.is_array:
            self._frames.append(b"]" if self._has_begun else b"[]")

    def _last(self, event: RunEnded, parts: list[dict[str, Any]]) -> dict[str, Any]:
        content = {"parts": parts, "role": "model"}
        last: dict[str, Any] = {"candidates": [{"content": content, "finishReason": self._finish_reason, "index": 0}]}
        if event.usage is not None:
            last["usageMetadata"] = _usage(event.usage)
        last |= self._tail
        return {**last, "treadle": {"run_id": self._run_id, "limit": event.limit}} if event.limit else last

    def _send(self, part: dict[str, Any]) -> None:
        self._fold.add(part)
        if self._surface.stream:
            assert self._tail_json, "a run begins with RunStarted"
            head = b'{"candidates":[{"content":{"parts":['
            self._write(head + write_json(part) + b'],"role":"model"},"index":0}]' + self._tail_json)

    def _write(self, data: bytes) -> None:
        """Add one response object: a frame, or an element of the array."""
        if self._surface.is_array:
            self._frames.append((b",\n" if self._has_begun else b"[") + data)
        else:
            self._frames.append(write_frame(data))
        self._has_begun = True


class _Fold:
    """The parts that the frames so far amount to: what a client that does not stream is given."""

    def __init__(self) -> None:
        self.has_text = False
        self._parts: list[dict[str, Any]] = []
        self._texts: list[list[str]] = []

    def add(self, part: dict[str, Any]) -> None:
        """Add one part; texts that follow each other are one text, and a signature ends it."""
        if "text" not in part:
            self._append(part, [])
            return
        is_thought = "thought" in part
        self.has_text = self.has_text or (not is_thought and bool(part["text"]))
        last = self._parts[-1] if self._parts else {}
        if "text" not in last or _SIGNED in last or ("thought" in last) != is_thought:
            self._append({**part}, [part["text"]])
            return
        self._texts[-1].append(part["text"])
        last |= {name: value for name, value in part.items() if name != "text"}

    def parts(self) -> list[dict[str, Any]]:
        """Return the parts; empty texts that say nothing are left out."""
        whole = (
            {**part, "text": "".join(texts)} if "text" in part else part
            for part, texts in zip(self._parts, self._texts, strict=True)
        )
        return [part for part in whole if part.get("text") != "" or _SIGNED in part]

    def _append(self, part: dict[str, Any], texts: list[str]) -> None:
        self._parts.append(part)
        self._texts.append(texts)


def _usage(usage: Usage) -> dict[str, int]:
    counts = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": max(0, usage.output_tokens - usage.reasoning_tokens),
        "totalTokenCount": usage.total_tokens,
    }
    if usage.reasoning_tokens:
        counts["thoughtsTokenCount"] = usage.reasoning_tokens
    if usage.cached_tokens:
        counts["cachedContentTokenCount"] = usage.cached_tokens
    return counts
