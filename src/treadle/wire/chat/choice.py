"""The events of one run as one choice of a Chat completion.

There is one path: every event becomes deltas, the deltas are folded into the message, and only then, if the client
streams, written as entries of a chunk's `choices`. Calls that Treadle runs itself are not shown: Chat has no form
for them. Ids, frames, usage and the end of the stream are the encoder's.
"""

from typing import Any, assert_never

import msgspec

from treadle.canon.events import (
    ApprovalDecided,
    ApprovalRequested,
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    KeptAlive,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    RoundStarted,
    RunEnded,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.canon.items import (
    AnyItem,
    AnyPart,
    Blob,
    CallItem,
    ImagePart,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ReferenceItem,
    RefusalPart,
    ResultItem,
    TextPart,
    text_of,
)
from treadle.canon.json import read_json, write_json
from treadle.canon.request import Surface
from treadle.wire.chat.chunk import as_list, as_object
from treadle.wire.chat.fold import MessageFold
from treadle.wire.chat.parts import nested_annotation, write_image
from treadle.wire.chat.state import CALL_STATE, MESSAGE_STATE, THOUGHT_STATE, show
from treadle.wire.fields import LIST
from treadle.wire.notes import Notes
from treadle.wire.responses.hosted import spell_out

ChoiceEvent = (
    RoundStarted
    | ItemAdded
    | TextDelta
    | RefusalDelta
    | ReasoningDelta
    | ArgumentsDelta
    | ItemDone
    | Noted
    | ToolStarted
    | ToolFinished
    | ApprovalRequested
    | ApprovalDecided
    | KeptAlive
)

_FINISH_REASONS = {"length": "length", "filtered": "content_filter"}
_BREAK = "\n\n"
_OPEN_END = b',"finish_reason":null}'
_TEXT_HEADS = {name: b'{"%b":' % name.encode() for name in ("content", "refusal", "reasoning_content")}


class _Shown:
    """An item that the client sees: how much of each field was sent, where its text begins, its place among the calls.

    `tokens` counts the logprobs sent of each field. One that `is_held` is sent whole when it is done.
    """

    __slots__ = ("is_held", "place", "sent", "start", "tokens")

    def __init__(self, place: int = -1, *, is_held: bool = False) -> None:
        self.is_held = is_held
        self.place = place
        self.start = -1
        self.sent = {"content": 0, "refusal": 0, "reasoning_content": 0, "arguments": 0}
        self.tokens = {"content": 0, "refusal": 0}


class Choice:
    """One choice in the making: `entries` are those that were not taken yet.

    `late` fields are known in full only at the end and sent once.
    """

    def __init__(self, index: int, surface: Surface) -> None:
        self.finish_reason: str | None = None
        self._index = index
        self._surface = surface
        self._head = b'{"index":%d,"delta":' % index
        self.entries: list[bytes] = []
        self._fold = MessageFold()
        self._shown: dict[int, _Shown] = {}
        self._calls = 0
        self._images = 0
        self._content_chars = 0
        self._has_role = False
        self._open = {"content": 0, "reasoning_content": 0}
        self._late: dict[str, Any] = {}
        self._annotations: list[Any] = []

    @property
    def is_open(self) -> bool:
        """Tell whether the client has seen anything of this choice."""
        return self._has_role

    def take(self) -> list[bytes]:
        """Return the entries since the last time."""
        entries, self.entries = self.entries, []
        return entries

    def open(self) -> None:
        """Show the choice, though there is nothing to say yet."""
        if not self._has_role:
            self._send({})

    def feed(self, event: ChoiceEvent) -> None:
        """Take one event of the run."""
        match event:
            case TextDelta():
                self._say(event.index, "content", event.text, event.logprobs)
            case ArgumentsDelta():
                self._argue(event.index, event.text)
            case ReasoningDelta():
                self._say(event.index, "reasoning_content", event.text)
            case RefusalDelta():
                self._say(event.index, "refusal", event.text, event.logprobs)
            case ItemAdded():
                self._show(event.index, event.item)
            case ItemDone():
                self._complete(event.index, event.item)
            case ToolStarted():
                self._tell_status(event.call)
            case KeptAlive():
                self._send({})
            case RoundStarted():
                # What a model thought in an earlier round is of no use to the next one without its calls.
                self._late.pop(THOUGHT_STATE, None)
            case ToolFinished() | Noted() | ApprovalRequested() | ApprovalDecided():
                pass
            case _:
                assert_never(event)

    def finish(self, ended: RunEnded) -> None:
        """End the choice of a run that ended well."""
        reason = _FINISH_REASONS.get(ended.stop) if ended.status == "incomplete" else None
        if reason is None and self._calls:
            reason = "function_call" if self._surface.legacy_functions else "tool_calls"
        self.finish_reason = reason or "stop"
        if self._annotations:
            self._late["annotations"] = self._annotations
        if self._late:
            self._send(self._late)
        self._send({}, self.finish_reason)

    def whole(self) -> dict[str, Any]:
        """Return the choice of a client that waits."""
        return {
            "index": self._index,
            "message": self._fold.message(),
            "logprobs": self._fold.logprobs(),
            "finish_reason": self.finish_reason,
        }

    def _show(self, index: int, item: AnyItem) -> None:
        match item:
            case MessageItem():
                self._show_text(index, "content")
            case ReasoningItem():
                self._show_text(index, "reasoning_content")
            case CallItem():
                self._show_call(index, item)
            case ResultItem() | OpaqueItem() | ReferenceItem():
                pass

    def _show_text(self, index: int, field: str) -> None:
        """Open a text; while another one is open it is held, because all texts are one content here."""
        self._shown[index] = _Shown(is_held=self._open[field] > 0)
        self._open[field] += 1

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

    def _say(self, index: int, field: str, text: str, logprobs: msgspec.Raw | None = None) -> None:
        shown = self._shown.get(index)
        if shown is None or shown.is_held or not text:
            return
        is_first = not shown.sent[field]
        shown.sent[field] += len(text)
        if is_first and field in self._open and self._fold.has(field):
            text = _BREAK + text
        if field == "content":
            self._content_chars += len(text)
            if shown.start < 0:
                shown.start = self._content_chars - shown.sent[field]
        self._fold.add_text(field, text)
        delta = _TEXT_HEADS[field] + write_json(text) + b"}"
        if logprobs is not None or not self._has_role:
            self._write(delta, b"" if logprobs is None else self._tokens(shown, field, LIST.decode(logprobs)))
        elif self._surface.stream:
            self.entries.append(self._head + delta + _OPEN_END)

    def _tokens(self, shown: _Shown, field: str, tokens: list[msgspec.Raw]) -> bytes:
        """Return the logprobs of an entry as its client is given them."""
        if not tokens:
            return b""
        shown.tokens[field] += len(tokens)
        self._fold.add_tokens(field, tokens)
        told = write_json({"content": None, "refusal": None, field: tokens})
        # An upstream may have written its tokens over several lines, and a line break would tear the frame.
        return b',"logprobs":' + told.translate(None, b"\r\n")

    def _argue(self, index: int, text: str, more: dict[str, Any] | None = None) -> None:
        shown = self._shown.get(index)
        if shown is None or shown.place < 0 or not (text or more):
            return
        shown.sent["arguments"] += len(text)
        if self._surface.legacy_functions:
            self._send({"function_call": {"arguments": text}})
            return
        body = {"custom": {"input": text}} if self._fold.is_custom(shown.place) else {"function": {"arguments": text}}
        self._send({"tool_calls": [{"index": shown.place, **body, **(more or {})}]})

    def _complete(self, index: int, item: AnyItem) -> None:
        """Send what of an item was not streamed."""
        if isinstance(item, OpaqueItem):
            for told in spell_out((item,), Notes()):
                self._send_images(told.content if isinstance(told, MessageItem) else ())
            return
        if index not in self._shown:
            self._show(index, item)
        shown = self._shown.get(index)
        if shown is None:
            return
        shown.is_held = False
        match item:
            case MessageItem():
                self._open["content"] -= 1
                self._complete_message(index, item, shown)
            case ReasoningItem():
                self._open["reasoning_content"] -= 1
                thought = "".join((*item.summary, *item.text))
                self._say(index, "reasoning_content", thought[shown.sent["reasoning_content"] :])
                self._keep_state(item.blobs)
            case CallItem():
                state = next((blob for blob in item.blobs if blob.kind == CALL_STATE), None)
                more = None if state is None else {CALL_STATE: show(state)}
                self._argue(index, item.arguments[shown.sent["arguments"] :], more)
                self._keep_state(item.blobs)
            case ResultItem() | ReferenceItem():
                pass

    def _complete_message(self, index: int, item: MessageItem, shown: _Shown) -> None:
        self._say(index, "content", text_of(item.content)[shown.sent["content"] :])
        declined = "".join(part.text for part in item.content if isinstance(part, RefusalPart))
        self._say(index, "refusal", declined[shown.sent["refusal"] :])
        self._complete_tokens(item, shown)
        for part in item.content:
            if isinstance(part, TextPart) and part.annotations is not None:
                entries = as_list(read_json(bytes(part.annotations)))
                self._annotations += [nested_annotation(as_object(entry), max(0, shown.start)) for entry in entries]
        self._send_images(item.content)
        self._keep_state(item.blobs)

    def _send_images(self, parts: tuple[AnyPart, ...]) -> None:
        for part in parts:
            if isinstance(part, ImagePart) and part.url:
                self._send({"images": [write_image(part, self._images)]})
                self._images += 1

    def _complete_tokens(self, item: MessageItem, shown: _Shown) -> None:
        """Send the logprobs that came with no text."""
        for field, kind in (("content", TextPart), ("refusal", RefusalPart)):
            raws = [part.logprobs for part in item.content if isinstance(part, kind) and part.logprobs is not None]
            tokens = [token for raw in raws for token in LIST.decode(raw)]
            rest = self._tokens(shown, field, tokens[shown.tokens[field] :])
            if rest:
                self._write(b"{}", rest)

    def _keep_state(self, blobs: tuple[Blob, ...]) -> None:
        for blob in blobs:
            if blob.kind == MESSAGE_STATE:
                self._late |= as_object(read_json(blob.data))
            elif blob.kind == THOUGHT_STATE:
                self._late[THOUGHT_STATE] = [*self._late.get(THOUGHT_STATE, ()), *show(blob)]

    def _tell_status(self, call: CallItem) -> None:
        if self._surface.tool_status:
            text = f"Calling {call.name}…"
            text = _BREAK + text if self._fold.has("content") else text
            self._content_chars += len(text)
            self._send({"content": text})

    def _send(self, delta: dict[str, Any], reason: str | None = None) -> None:
        self._fold.add(delta)
        self._write(write_json(delta), reason=reason)

    def _write(self, delta: bytes, logprobs: bytes = b"", reason: str | None = None) -> None:
        if not self._has_role:
            self._has_role = True
            delta = b'{"role":"assistant"' + (b"," + delta[1:] if len(delta) > 2 else b"}")
        if self._surface.stream:
            end = _OPEN_END if reason is None else b',"finish_reason":%b}' % write_json(reason)
            self.entries.append(self._head + delta + logprobs + end)
