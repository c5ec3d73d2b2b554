"""Writing the blocks of an answer: for each kind of item a writer that opens, feeds and closes its blocks.

There is one path: every block goes through the outlet, which writes it as events if the client streams and folds it
into the content either way. A writer knows nothing of the items beside it; that only one block is open at a time is
the business of `encode`.
"""

from typing import Any, Protocol

import msgspec

from treadle.core.events import ArgumentsDelta, ReasoningDelta, RefusalDelta, TextDelta, ToolFinished, ToolStarted
from treadle.core.ids import SERVER_CALL, shown_call_id
from treadle.core.items import (
    AnyPart,
    CallItem,
    Extra,
    FilePart,
    ImagePart,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from treadle.core.json import write_json
from treadle.protocols.decoding.partial_json import PartialObject
from treadle.protocols.field_reader import LIST
from treadle.protocols.item_lanes import Delta, Source
from treadle.protocols.messages.provider_state import INVALID_JSON, PROTOCOL, shown_id, shown_reasoning
from treadle.protocols.sse import write_frame

_BREAK = "\n\n"
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":'
_DELTA_END = b"}}\n\n"
_TEXT = b'"text_delta","text":'
_CITATION = b'"citations_delta","citation":'
_THOUGHT = b'"thinking_delta","thinking":'
_SIGNATURE = b'"signature_delta","signature":'
_INPUT = b'"input_json_delta","partial_json":'
"""How the deltas begin."""


class BlockOutput:
    """Where blocks go: as events to a client that streams, and folded into the content of the message.

    `frames` are those that were not taken yet.
    """

    def __init__(self, *, streams: bool, is_claude_code: bool = False) -> None:
        # Claude Code 2.1.325 hangs up on an input delta of an MCP call, which others want (2026-11-15).
        self.is_claude_code = is_claude_code
        self.content: list[dict[str, Any] | msgspec.Raw] = []
        self.has_refusal = False
        self.has_calls = self.has_cut_call = False
        self.message: dict[str, Any] = {}
        self.streams = streams
        self._is_begun = False
        self._index = 0
        self.frames: list[bytes] = []

    def open(self, block: dict[str, Any] | msgspec.Raw) -> None:
        """Begin a block."""
        self.send("content_block_start", {"index": self._index, "content_block": block})

    def delta(self, kind: bytes, value: Any) -> None:
        """Send more of the open block; `kind` is how its deltas begin, up to the value."""
        if self.streams:
            self.frames.append(b"".join((_DELTA % self._index, kind, write_json(value), _DELTA_END)))

    def close(self, block: dict[str, Any] | msgspec.Raw) -> None:
        """End the open block; `block` is all of it."""
        self.send("content_block_stop", {"index": self._index})
        self.content.append(block)
        self._index += 1

    def abandon(self) -> None:
        """Leave the open block without an end and out of the content: a client that saw it whole would run it."""
        if self.streams:
            self.has_cut_call = True
            self._index += 1

    @property
    def head(self) -> bytes:
        """Return how the deltas of the next block begin."""
        return _DELTA % self._index

    def begin(self) -> None:
        """Send the message itself, before anything of it; only once."""
        if not self._is_begun:
            self._is_begun = True
            self.send("message_start", {"message": self.message})

    def send(self, kind: str, fields: dict[str, Any]) -> None:
        """Send an event."""
        if self.streams:
            self.begin()
            self.frames.append(write_frame(write_json({"type": kind, **fields}), kind))

    def send_frame(self, frame: bytes) -> None:
        """Send a frame that needs no message around it."""
        if self.streams:
            self.frames.append(frame)


class BlockWriter(Protocol):
    """Writes the blocks of one item."""

    def feed(self, delta: Delta) -> None:
        """Send more of the content."""
        ...

    def settle(self, final: Source) -> None:
        """Send what was not streamed, from the finished item."""
        ...

    def close(self) -> None:
        """End the block that is open, if one is; nothing more will come."""
        ...


class TextBlockWriter:
    """Writes a message: a block for each part."""

    def __init__(self, out: BlockOutput) -> None:
        self._out = out
        self._part = -1
        self._head = b""
        self._streamed: list[str] = []
        self._cited: list[msgspec.Raw] = []

    def feed(self, delta: Delta) -> None:
        """Send more text; a refusal is text too, and the reason why the message ends."""
        if type(delta) is TextDelta:
            if delta.part == self._part and self._streamed and delta.text:
                self._streamed.append(delta.text)
                if self._out.streams:
                    self._out.frames.append(b"".join((self._head, write_json(delta.text), _DELTA_END)))
            else:
                self._turn_to(delta.part)
                self._stream(delta.text)
            if delta.extra is not None:
                self._cite(_citations(delta.extra))
        elif type(delta) is RefusalDelta:
            self._turn_to(delta.part)
            self._out.has_refusal = True
            self._stream(delta.text)

    def settle(self, final: Source) -> None:
        """Send the rest of the open part and the parts that were never streamed."""
        if not isinstance(final, MessageItem):
            return
        late: list[str] = []
        for position, part in enumerate(final.content):
            if type(part) is TextPart or type(part) is RefusalPart:
                if position >= self._part:
                    self._complete(position, part)
            elif isinstance(part, ImagePart | FilePart):
                late.append(_named(part))
        if late:
            self._turn_to(len(final.content))
            self._stream("\n".join(late))

    def _complete(self, position: int, part: TextPart | RefusalPart) -> None:
        self._turn_to(position)
        self._out.has_refusal = self._out.has_refusal or type(part) is RefusalPart
        streamed = "".join(self._streamed)
        if part.text.startswith(streamed):
            self._stream(part.text[len(streamed) :])
        if part.extra is not None:
            self._cite(_citations(part.extra)[len(self._cited) :])

    def close(self) -> None:
        """End the block."""
        if self._part < 0 or not (self._streamed or self._cited):
            return
        block: dict[str, Any] = {"type": "text", "text": "".join(self._streamed)}
        if self._cited:
            block["citations"] = self._cited
        self._out.close(block)
        self._streamed, self._cited = [], []

    def _turn_to(self, part: int) -> None:
        if part != self._part:
            self.close()
            self._part = part

    def _stream(self, text: str) -> None:
        if text:
            self._open()
            self._streamed.append(text)
            self._out.delta(_TEXT, text)

    def _cite(self, citations: list[msgspec.Raw]) -> None:
        for citation in citations:
            self._open()
            self._cited.append(citation)
            # It is carried as the upstream's own bytes, whose line breaks would tear the frame.
            self._out.delta(_CITATION, msgspec.Raw(bytes(citation).translate(None, b"\r\n")))

    def _open(self) -> None:
        if not self._streamed and not self._cited:
            self._head = self._out.head + _TEXT
            self._out.open({"type": "text", "text": ""})


class ReasoningBlockWriter:
    """Writes what the model thought, with what only its provider can read as the signature."""

    def __init__(self, out: BlockOutput) -> None:
        self._out = out
        self._streamed: list[str] = []
        self._place: tuple[bool, int] | None = None

    def feed(self, delta: Delta) -> None:
        """Send more thoughts; parts of them are paragraphs of one block."""
        if type(delta) is ReasoningDelta and delta.text:
            place = (delta.is_summary, delta.part)
            self._think((_BREAK if self._place not in (None, place) else "") + delta.text)
            self._place = place

    def settle(self, final: Source) -> None:
        """Send what was not streamed, then the signature."""
        if not isinstance(final, ReasoningItem):
            return
        kind, data = shown_reasoning(final)
        if kind == "redacted_thinking" and not self._streamed:
            block = {"type": kind, "data": data}
            self._out.open(block)
            self._out.close(block)
            return
        whole, streamed = _BREAK.join((*final.summary, *final.text)), "".join(self._streamed)
        self._think(whole[len(streamed) :] if whole.startswith(streamed) else "")
        if not self._streamed and data:
            self._open()
        if data:
            self._out.delta(_SIGNATURE, data)
        self._end(data)

    def close(self) -> None:
        """End the block; thoughts that were cut off are not signed."""
        self._end("")

    def _think(self, text: str) -> None:
        if text:
            if not self._streamed:
                self._open()
            self._streamed.append(text)
            self._out.delta(_THOUGHT, text)

    def _open(self) -> None:
        self._out.open({"type": "thinking", "thinking": "", "signature": ""})

    def _end(self, signature: str) -> None:
        if self._streamed or signature:
            self._out.close({"type": "thinking", "thinking": "".join(self._streamed), "signature": signature})
            self._streamed = []


class CallBlockWriter:
    """Writes a call that the client shall run. Its arguments go out only as far as they are valid JSON."""

    def __init__(self, out: BlockOutput, call: CallItem) -> None:
        out.has_calls = True
        self._out = out
        self._head: dict[str, Any] = {"type": "tool_use", "id": shown_id(call.call_id), "name": call.name}
        if call.extra is not None and call.extra.protocol == PROTOCOL:
            self._head |= call.extra.fields
        self._is_free = call.kind == "custom"
        self._object = PartialObject()
        self._fed: list[str] = []
        self._streamed: list[str] = []
        self._is_open = True
        out.open({**self._head, "input": {}})

    def feed(self, delta: Delta) -> None:
        """Send more arguments; the free text of a custom tool waits until it can be wrapped whole."""
        if type(delta) is ArgumentsDelta:
            self._fed.append(delta.text)
            if not self._is_free:
                self._stream(self._object.feed(delta.text))

    def settle(self, final: Source) -> None:
        """Send the rest of the arguments."""
        if not isinstance(final, CallItem):
            return
        fed = "".join(self._fed)
        if not (fed or self._is_free or not final.arguments.strip()) and not is_object(final.arguments):
            self._end({INVALID_JSON: final.arguments})
            return
        if final.arguments.startswith(fed):
            self.feed(ArgumentsDelta(index=0, text=final.arguments[len(fed) :]))
        if self._is_free:
            self._end({"input": final.arguments})
            return
        self._stream(self._object.finish())
        streamed = "".join(self._streamed)
        if self._object.is_closed:
            self._end(msgspec.Raw(streamed.encode()) if streamed else {})
        elif streamed and self._out.streams:
            # The SDKs make an object of any beginning of one, and a client would run that.
            self.close()
        else:
            self._end({INVALID_JSON: final.arguments} if final.arguments.strip() else {})

    def close(self) -> None:
        """Give up the block of a call that was cut off."""
        if self._is_open:
            self._out.abandon()
            self._is_open = False

    def _stream(self, text: str) -> None:
        if text:
            self._streamed.append(text)
            self._out.delta(_INPUT, text)

    def _end(self, given: Any) -> None:
        """End the block; `given` is sent only if nothing was streamed."""
        if given and not self._streamed:
            self._stream(write_json(given).decode())
        self._out.close({**self._head, "input": given})
        self._is_open = False


class ServerCallBlockWriter:
    """Writes a call that Treadle runs itself, as one of an MCP server: no client looks those up among its own tools."""

    def __init__(self, out: BlockOutput, event: ToolStarted | ToolFinished) -> None:
        call = event.call
        self._out = out
        self._id = _server_call_id(call)
        head: dict[str, Any] = {
            "type": "mcp_tool_use",
            "id": self._id,
            "name": call.name,
            "input": {},
            "server_name": event.source or "treadle",
        }
        given = _whole_input(call.arguments)
        whole = {**head, "input": given}
        out.open(whole if out.is_claude_code else head)
        if given and not out.is_claude_code:
            out.delta(_INPUT, write_json(given).decode())
        out.close(whole)

    def feed(self, delta: Delta) -> None:
        """Take nothing: the arguments were whole when the tool started."""

    def settle(self, final: Source) -> None:
        """Write the result."""
        if isinstance(final, ToolFinished):
            block = {
                "type": "mcp_tool_result",
                "tool_use_id": self._id,
                "is_error": final.result.is_error,
                "content": [{"type": "text", "text": _shown(part)} for part in final.result.output],
            }
            self._out.open(block)
            self._out.close(block)

    def close(self) -> None:
        """Do nothing: both blocks are closed as soon as they are written."""


class OpaqueBlockWriter:
    """Writes a block of a kind that Treadle does not know exactly as its upstream wrote it, once it is whole."""

    def __init__(self, out: BlockOutput) -> None:
        self._out = out

    def feed(self, delta: Delta) -> None:
        """Take nothing: what is not known cannot be streamed."""

    def settle(self, final: Source) -> None:
        """Write the block."""
        if isinstance(final, OpaqueItem):
            self._out.open(final.raw)
            self._out.close(final.raw)

    def close(self) -> None:
        """Do nothing: a block that was cut off is not shown."""


def is_object(text: str) -> bool:
    """Return whether arguments are one whole object."""
    whole = PartialObject()
    whole.feed(text)
    whole.finish()
    return whole.is_closed


def _named(part: ImagePart | FilePart) -> str:
    """Name what an answer of this API cannot show: by its address, or by its type."""
    what = "image" if isinstance(part, ImagePart) else "file"
    url = part.url or part.file_id or ""
    if not url.startswith("data:"):
        return f"[{what}: {url}]"
    return f"[{what} of type {url.removeprefix('data:').partition(',')[0].partition(';')[0] or 'text/plain'}]"


def _citations(extra: Extra) -> list[msgspec.Raw]:
    if extra.protocol != PROTOCOL or "citations" not in extra.fields:
        return []
    return LIST.decode(extra.fields["citations"])


def _whole_input(arguments: str) -> Any:
    """Return complete arguments as the object that the API demands."""
    given = PartialObject()
    text = given.feed(arguments) + given.finish()
    if given.is_closed:
        return msgspec.Raw(text.encode()) if text else {}
    return {INVALID_JSON: arguments} if arguments.strip() else {}


def _server_call_id(call: CallItem) -> str:
    """Return the id a server call is shown under, always the same for the same call."""
    return shown_call_id(call.id.removeprefix(f"{SERVER_CALL}_")) if call.id else shown_id(call.call_id)


def _shown(part: AnyPart) -> str:
    """Return a part of a result as the text that alone has room here; what is not text is named."""
    return part.text if isinstance(part, TextPart | RefusalPart) else f"[{part.__struct_config__.tag}]"
