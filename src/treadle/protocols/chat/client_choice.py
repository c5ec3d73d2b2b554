"""The events of one run as one choice of a Chat completion.

There is one path: every event becomes deltas, the deltas are folded into the message, and, if the client streams,
written as chunks. Calls that Treadle runs itself are not shown: Chat has no form for them. What a chunk says beside
its choice, usage and the end of the stream are the encoder's.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    KeptAlive,
    ReasoningDelta,
    RefusalDelta,
    RoundStarted,
    RunEnded,
    RunEvent,
    TextDelta,
    ToolStarted,
)
from treadle.core.items import (
    Blob,
    CallItem,
    ImagePart,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from treadle.core.json import read_json, write_json
from treadle.core.request import Surface
from treadle.protocols.chat.client_fold import MessageFold
from treadle.protocols.chat.content_parts import nested_annotation, write_image
from treadle.protocols.chat.provider_state import CALL_STATE, MESSAGE_STATE, THOUGHT_STATE, show
from treadle.protocols.decoding.json_values import as_list, as_object
from treadle.protocols.field_reader import LIST
from treadle.protocols.responses.hosted_calls import spell_out
from treadle.protocols.translation_notes import Notes

_FINISH_REASONS = {"length": "length", "filtered": "content_filter"}
_BREAK = "\n\n"
_OPEN_END = b',"finish_reason":null}'
_TEXT_HEADS = {name: b'{"%b":' % name.encode() for name in ("content", "refusal", "reasoning_content")}
_TEXT_END = b"}" + _OPEN_END
_FIELDS: dict[type, str] = {
    MessageItem: "content",
    ReasoningItem: "reasoning_content",
    TextPart: "content",
    RefusalPart: "refusal",
}


class _Shown(msgspec.Struct):
    """An item that the client sees: how much of it was `sent`, and of its refusal; its place among the calls.

    `head` is how the deltas of a call begin. `start` is the first piece of the content that is its own; `tokens`
    counts the logprobs sent of each field. One that `is_held` is sent whole when it is done. Once a text is sent as it
    comes, more of it goes to these `pieces` of the content. `thought` is the part of reasoning that was sent last.
    """

    place: int = -1
    is_held: bool = False
    head: bytes = b""
    start: int = -1
    sent: int = 0
    declined: int = 0
    tokens: dict[str, int] | None = None
    pieces: list[str] | None = None
    thought: tuple[bool, int] | None = None


class Choice:
    """One choice in the making. `late` fields are known in full only at the end and sent once.

    It `is_open` when the client has seen anything of it; once its run has `ended`, the client sees no more.
    """

    run_id: str = ""
    finish_reason: str | None = None
    _head: bytes = b""
    _suffix: bytes = b""
    _images: int = 0
    _annotations: tuple[Any, ...] = ()

    def __init__(self, index: int, surface: Surface) -> None:
        self.index = index
        self.surface = surface
        self.is_open = False
        self.ended: RunEnded | None = None
        self._text_head = b""
        self._text_end = b""
        self._calls = 0
        self._frames: list[bytes] = []
        self._fold = MessageFold()
        self._shown: dict[int, _Shown] = {}
        self._open: list[str] = []
        self._late: dict[str, Any] = {}

    def begin(self, prefix: bytes, suffix: bytes) -> None:
        """Set what stands around the choice in each of its chunks; must come before any event."""
        self._head = prefix + b'{"index":%d,"delta":' % self.index
        self._suffix = suffix
        self._text_head = self._head + _TEXT_HEADS["content"]
        self._text_end = _TEXT_END + suffix

    def feed(self, event: RunEvent) -> list[bytes]:
        """Return the chunks to send for an event of the run; none without a stream or after the end."""
        if self.ended is not None:
            return []
        if type(event) is TextDelta:
            shown, text = self._shown.get(event.index), event.text
            if shown is not None and shown.pieces is not None and text and event.logprobs is None:
                # Nearly every event: more of a text that is sent as it comes.
                shown.sent += len(text)
                shown.pieces.append(text)
                return [self._text_head + write_json(text) + self._text_end]
            if shown is not None:
                self._send_text(shown, "content", text, event.logprobs)
        elif (read := self.readers.get(type(event))) is not None:
            read(self, event)
        if not self._frames:
            return []
        frames, self._frames = self._frames, []
        return frames

    @property
    def has_cut_call(self) -> bool:
        """Return whether the client has seen the beginning of a call that never ended."""
        return self.surface.stream and self._calls > len(self._fold.ended)

    def take(self) -> list[bytes]:
        """Return the chunks since the last time."""
        frames, self._frames = self._frames, []
        return frames

    def open(self) -> None:
        """Send the start of the choice, though it has no content yet."""
        if not self.is_open:
            self._send({})

    def finish(self, ended: RunEnded) -> None:
        """End the choice of a run that ended well."""
        reason = _FINISH_REASONS.get(ended.stop) if ended.status == "incomplete" else None
        if reason is None and self._calls:
            reason = "function_call" if self.surface.legacy_functions else "tool_calls"
        self.finish_reason = reason or "stop"
        if self._annotations:
            self._late["annotations"] = self._annotations
        if self._late:
            self._send(self._late)
        if self.surface.stream:
            self._write(b"{}", end=b',"finish_reason":%b}' % write_json(self.finish_reason))

    def whole(self) -> dict[str, Any]:
        """Return the choice of a client that waits."""
        fold = self._fold
        return {
            "index": self.index,
            "message": fold.message(),
            "logprobs": fold.logprobs() if fold.tokens else None,
            "finish_reason": self.finish_reason,
        }

    def _show(self, event: ItemAdded | ItemDone) -> _Shown | None:
        """Open an item, if the client sees it."""
        item = event.item
        if type(item) is CallItem:
            return self._show_call(event.index, item)
        field = _FIELDS.get(type(item))
        if field is None:
            return None
        # While another text is open this one is held, because all texts are one content here.
        shown = self._shown[event.index] = _Shown(is_held=field in self._open)
        self._open.append(field)
        return shown

    def _argue(self, event: ArgumentsDelta) -> None:
        shown = self._shown.get(event.index)
        if shown is not None and event.text:
            self._send_arguments(shown, event.text)

    def _think(self, event: ReasoningDelta) -> None:
        shown = self._shown.get(event.index)
        if shown is not None and event.text:
            # Parts of one thought are paragraphs here.
            part = (event.is_summary, event.part)
            self._send_text(
                shown, "reasoning_content", _BREAK + event.text if shown.thought not in (None, part) else event.text
            )
            shown.thought = part

    def _decline(self, event: RefusalDelta) -> None:
        shown = self._shown.get(event.index)
        if shown is not None:
            self._send_text(shown, "refusal", event.text, event.logprobs)

    def _complete(self, event: ItemDone) -> None:
        """Send what of an item was not streamed."""
        item = event.item
        if type(item) is OpaqueItem:
            messages = [each for each in spell_out((item,), Notes()) if isinstance(each, MessageItem)]
            for image in [part for each in messages for part in each.content if isinstance(part, ImagePart)]:
                self._send_image(image)
            return
        shown = self._shown.get(event.index) or self._show(event)
        if shown is None:
            return
        shown.is_held = False
        if type(item) is CallItem:
            self._complete_call(item, shown)
            return
        field = _FIELDS.get(type(item))
        if field in self._open:
            self._open.remove(field)
        if type(item) is MessageItem:
            self._complete_message(item, shown)
        elif type(item) is ReasoningItem:
            thought = _BREAK.join(filter(None, (*item.summary, *item.text)))
            self._send_text(shown, "reasoning_content", thought[shown.sent :])
            self._keep_state(item.blobs)

    def _send_status(self, event: ToolStarted) -> None:
        if self.surface.tool_status:
            text = f"Calling {event.call.name}…"
            self._send({"content": _BREAK + text if self._fold.texts.get("content") else text})

    def _keep_alive(self, _: KeptAlive) -> None:
        self._send({})

    def _start_round(self, _: RoundStarted) -> None:
        # What a model thought in an earlier round is of no use to the next one without its calls.
        self._late.pop(THOUGHT_STATE, None)

    readers: ClassVar[dict[type, Callable[[Any, Any], object]]] = {
        ArgumentsDelta: _argue,
        ReasoningDelta: _think,
        RefusalDelta: _decline,
        ItemAdded: _show,
        ItemDone: _complete,
        ToolStarted: _send_status,
        KeptAlive: _keep_alive,
        RoundStarted: _start_round,
    }
    """What is done with an event; of others a choice shows nothing."""

    def _show_call(self, index: int, call: CallItem) -> _Shown | None:
        # A legacy answer has room for one call.
        if call.side == "server" or (self.surface.legacy_functions and self._calls):
            return None
        shown = self._shown[index] = _Shown(self._calls)
        self._calls += 1
        if self.surface.legacy_functions:
            self._send({"function_call": {"name": call.name, "arguments": ""}})
            return shown
        kind, field = ("custom", "input") if call.kind == "custom" else ("function", "arguments")
        shown.head = b'{"tool_calls":[{"index":%d,"%b":{"%b":' % (shown.place, kind.encode(), field.encode())
        body = {"name": call.name, field: ""}
        self._send({"tool_calls": [{"index": shown.place, "id": call.call_id, "type": kind, kind: body}]})
        return shown

    def _send_text(self, shown: _Shown, field: str, text: str, logprobs: msgspec.Raw | None = None) -> None:
        if shown.is_held or not text:
            return
        pieces = self._fold.texts.get(field)
        if pieces is None:
            pieces = self._fold.texts[field] = []
        if field == "refusal":
            shown.declined += len(text)
        elif shown.sent:
            shown.sent += len(text)
        else:
            # All texts are one here: each is parted from the one before it.
            shown.sent, shown.start = len(text), len(pieces)
            text = _BREAK + text if pieces else text
        pieces.append(text)
        tokens = None if logprobs is None else LIST.decode(logprobs)
        if tokens:
            self._send_tokens(shown, field, tokens, _TEXT_HEADS[field] + write_json(text) + b"}")
        elif self.is_open:
            self._frames.append(b"".join((self._head, _TEXT_HEADS[field], write_json(text), _TEXT_END, self._suffix)))
        elif self.surface.stream:
            self._write(_TEXT_HEADS[field] + write_json(text) + b"}")
        if self.is_open and field == "content":
            shown.pieces = pieces

    def _send_tokens(self, shown: _Shown, field: str, tokens: list[msgspec.Raw], delta: bytes = b"{}") -> None:
        """Send logprobs as the client is given them, with the text they belong to."""
        if not tokens:
            return
        shown.tokens = shown.tokens or {}
        shown.tokens[field] = shown.tokens.get(field, 0) + len(tokens)
        self._fold.add_tokens(field, tokens)
        if self.surface.stream:
            written = write_json({"content": None, "refusal": None, field: tokens})
            # An upstream may have written its tokens over several lines, and a line break would tear the frame.
            self._write(delta, b',"logprobs":' + written.translate(None, b"\r\n"))

    def _send_arguments(self, shown: _Shown, text: str, more: dict[str, Any] | None = None) -> None:
        if shown.place < 0:
            return
        shown.sent += len(text)
        if self.surface.legacy_functions:
            self._send({"function_call": {"arguments": text}})
            return
        self._fold.add_arguments(shown.place, text, more)
        if self.surface.stream:
            end = b"," + write_json(more)[1:] if more else b"}"
            self._write(b"".join((shown.head, write_json(text), b"}", end, b"]}")))

    def _complete_message(self, item: MessageItem, shown: _Shown) -> None:
        first = item.content[0] if len(item.content) == 1 else None
        if type(first) is TextPart and first.logprobs is None and first.annotations is None:
            # What nearly every message is: one text.
            self._send_text(shown, "content", first.text[shown.sent :])
        else:
            self._complete_parts(item, shown)
        if item.blobs:
            self._keep_state(item.blobs)

    def _complete_parts(self, item: MessageItem, shown: _Shown) -> None:
        texts = {"content": "", "refusal": ""}
        tokens: dict[str, list[msgspec.Raw]] = {}
        for part in item.content:
            if type(part) is TextPart or type(part) is RefusalPart:
                field = _FIELDS[type(part)]
                texts[field] += part.text
                if part.logprobs is not None:
                    tokens.setdefault(field, []).extend(LIST.decode(part.logprobs))
        self._send_text(shown, "content", texts["content"][shown.sent :])
        self._send_text(shown, "refusal", texts["refusal"][shown.declined :])
        for field in filter(tokens.__contains__, texts):
            # Those that came with no text.
            self._send_tokens(shown, field, tokens[field][(shown.tokens or {}).get(field, 0) :])
        for part in item.content:
            if type(part) is TextPart and part.annotations is not None:
                self._annotate(shown, as_list(read_json(bytes(part.annotations))))
            elif type(part) is ImagePart:
                self._send_image(part)

    def _complete_call(self, item: CallItem, shown: _Shown) -> None:
        self._fold.ended.add(shown.place)
        rest, more = item.arguments[shown.sent :], None
        for blob in item.blobs:
            if blob.kind == CALL_STATE:
                more = {CALL_STATE: show(blob)}
                break
        if rest or more:
            self._send_arguments(shown, rest, more)
        self._keep_state(item.blobs)

    def _annotate(self, shown: _Shown, entries: list[Any]) -> None:
        """Store annotations of an item's text until the end, at its place in the content."""
        before = self._fold.texts.get("content", [])[: max(0, shown.start)]
        start = sum(map(len, before)) + (len(_BREAK) if before else 0)
        self._annotations += tuple(nested_annotation(as_object(entry), start) for entry in entries)

    def _send_image(self, image: ImagePart) -> None:
        if image.url:
            self._send({"images": [write_image(image, self._images)]})
            self._images += 1

    def _keep_state(self, blobs: tuple[Blob, ...]) -> None:
        for blob in blobs:
            if blob.kind == MESSAGE_STATE:
                self._late |= as_object(read_json(blob.data))
            elif blob.kind == THOUGHT_STATE:
                self._late[THOUGHT_STATE] = [*self._late.get(THOUGHT_STATE, ()), *show(blob)]

    def _send(self, delta: dict[str, Any]) -> None:
        self._fold.add(delta)
        if self.surface.stream:
            self._write(write_json(delta))

    def _write(self, delta: bytes, logprobs: bytes = b"", end: bytes = _OPEN_END) -> None:
        assert self._head, "a run begins with RunStarted"
        if not self.is_open:
            self.is_open = True
            delta = b'{"role":"assistant"' + (b"," + delta[1:] if len(delta) > 2 else b"}")
        self._frames.append(b"".join((self._head, delta, logprobs, end, self._suffix)))
