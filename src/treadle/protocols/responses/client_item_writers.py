"""Writing output items: for each kind a writer that opens the item, feeds it, settles its content and closes it.

A writer keeps what it has sent, so the item in the last event is always the sum of the deltas before it. It knows
nothing of the items beside it; that only one is open at a time is the business of `lanes`.
"""

from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from treadle.core.events import (
    ApprovalRequested,
    ArgumentsDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.items import (
    AnyPart,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    TextPart,
    text_of,
)
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.item_lanes import Delta, Source
from treadle.protocols.responses.client_events import CallEvent, EventOutput, ItemEvent, Refrain
from treadle.protocols.responses.client_part_writers import (
    REASONING,
    REFUSAL,
    SUMMARY,
    TEXT,
    ClientPartRow,
    Finality,
    OpenPart,
    PartPosition,
    finalities,
)
from treadle.protocols.responses.client_response_object import (
    ApprovalRequest,
    CustomCall,
    ErrorText,
    ExecutionError,
    FunctionCall,
    ImageCall,
    Message,
    OutputItem,
    Reasoning,
    ServerCall,
)
from treadle.protocols.responses.encrypted_content import seal
from treadle.protocols.responses.hosted_calls import OWN_LABEL
from treadle.protocols.responses.tools import bare_name


class ItemWriter(Protocol):
    """Writes one item; one that `is_run` may be a call that clients run once it is sent as done."""

    is_run: bool

    def feed(self, delta: Delta) -> OpenPart | None:
        """Send more of the content; return what takes more text by itself."""
        ...

    def settle(self, final: Source) -> None:
        """Close the content, from the finished item."""
        ...

    def close(self, status: str) -> OutputItem:
        """Send that the item is done and return it whole."""
        ...


class _Writer:
    """What all writers share: their place, and the events at both ends of an item."""

    is_run = False

    def __init__(self, out: EventOutput, place: PartPosition) -> None:
        self.out = out
        self.place = place

    def announce(self, step: str, item: OutputItem) -> OutputItem:
        """Send response.output_item.added or .done."""
        if not self.out.streams:
            return item
        event = ItemEvent(
            type=f"response.output_item.{step}",
            sequence_number=self.out.number,
            output_index=self.place.output_index,
            item=item,
            item_id=self.place.item_id if self.out.extended else UNSET,
        )
        self.out.send(event)
        return item

    def send(self, kind: str, **fields: str) -> None:
        """Send an event of a call."""
        if not self.out.streams:
            return
        event = CallEvent(
            type=kind,
            sequence_number=self.out.number,
            item_id=self.place.item_id,
            output_index=self.place.output_index,
            **fields,
        )
        self.out.send(event)


class MessageWriter(_Writer):
    """Writes what the model says: output_text and refusal parts."""

    def __init__(self, out: EventOutput, place: PartPosition, item: MessageItem) -> None:
        super().__init__(out, place)
        self._phase = UNSET if item.phase is None else item.phase
        self._row = ClientPartRow(out, place)
        self.announce("added", self._item("in_progress"))

    def feed(self, delta: Delta) -> OpenPart | None:
        """Send more text, or more of a refusal."""
        if type(delta) is TextDelta:
            return self._row.feed(TEXT, delta.part, delta.text, delta.logprobs)
        if type(delta) is RefusalDelta:
            self._row.feed(REFUSAL, delta.part, delta.text, delta.logprobs)
        return None

    def settle(self, final: Source) -> None:
        """Close the parts."""
        if isinstance(final, MessageItem):
            self._row.settle(finalities(final.content))
            self._phase = self._phase if final.phase is None else final.phase

    def close(self, status: str) -> OutputItem:
        """Send that the message is done."""
        self._row.close()
        return self.announce("done", self._item(status))

    def _item(self, status: str) -> Message:
        return Message(id=self.place.item_id, status=status, content=self._row.bodies, phase=self._phase)


class ReasoningWriter(_Writer):
    """Writes what the model thought: summaries and raw text, each with an index of its own."""

    def __init__(self, out: EventOutput, place: PartPosition) -> None:
        super().__init__(out, place)
        self._summary = ClientPartRow(out, place)
        self._raw = ClientPartRow(out, place)
        self._sealed: str | UnsetType = UNSET
        self.announce("added", self._item("in_progress"))

    def feed(self, delta: Delta) -> None:
        """Send more of a summary or of the raw text; the two never stay open together."""
        if not isinstance(delta, ReasoningDelta):
            return
        row, other, kind = (
            (self._summary, self._raw, SUMMARY) if delta.is_summary else (self._raw, self._summary, REASONING)
        )
        other.close()
        row.feed(kind, delta.part, delta.text)

    def settle(self, final: Source) -> None:
        """Close the parts, and keep what only the provider can read."""
        if isinstance(final, ReasoningItem):
            self._summary.settle([Finality(kind=SUMMARY, text=text) for text in final.summary])
            self._raw.settle([Finality(kind=REASONING, text=text) for text in final.text])
            self._sealed = seal(final.blobs) or UNSET

    def close(self, status: str) -> OutputItem:
        """Send that the reasoning is done."""
        self._summary.close()
        self._raw.close()
        return self.announce("done", self._item(status))

    def _item(self, status: str) -> Reasoning:
        return Reasoning(
            id=self.place.item_id,
            status=status,
            summary=self._summary.bodies,
            content=self._raw.bodies or UNSET,
            encrypted_content=self._sealed,
        )


class CallWriter(_Writer):
    """Writes a call that the client shall run, under the name and in the kind that the client gave its tool."""

    is_run = True

    def __init__(self, out: EventOutput, place: PartPosition, item: CallItem, spec: ToolSpec | None) -> None:
        super().__init__(out, place)
        self._call_id = item.call_id
        self._name = bare_name(spec or item)
        self._namespace: str | UnsetType = (spec.namespace if spec else item.namespace) or UNSET
        self._is_custom = item.kind == "custom" or (spec is not None and spec.kind == "custom")
        # An upstream without custom tools was given a function with one string `input`.
        self._is_wrapped = self._is_custom and item.kind == "function"
        self._family = "response.custom_tool_call_input" if self._is_custom else "response.function_call_arguments"
        self._delta: Refrain | None = None
        self._said: list[str] = []
        self.announce("added", self._item("in_progress", ""))
        self._extend("begin", call_id=self._call_id, name=self._name)

    def feed(self, delta: Delta) -> None:
        """Send more arguments; those of a wrapped custom call wait until they can be unwrapped whole."""
        if isinstance(delta, ArgumentsDelta) and not self._is_wrapped:
            self._say(delta.text)

    def settle(self, final: Source) -> None:
        """Send the arguments that were never streamed, then that they are done."""
        if not isinstance(final, CallItem):
            return
        text = unwrapped(final.arguments) if self._is_wrapped else final.arguments
        if not text and not self._is_custom:
            text = "{}"
        said = "".join(self._said)
        if text.startswith(said):
            self._say(text[len(said) :])
        self._said = [text]
        if self._is_custom:
            self.send(f"{self._family}.done", input=text)
        else:
            self.send(f"{self._family}.done", arguments=text)
        self._extend("end", name=self._name, arguments=text)

    def close(self, status: str) -> OutputItem:
        """Send that the call is done."""
        return self.announce("done", self._item(status, "".join(self._said)))

    def _say(self, text: str) -> None:
        if not text:
            return
        self._said.append(text)
        if self.out.streams:
            self.out.frames.append(self.out.repeat(self._delta or self._refrain(), text))
            self._extend("delta", delta=text)

    def _refrain(self) -> Refrain:
        place = self.place
        event = CallEvent(
            type=f"{self._family}.delta",
            sequence_number=0,
            item_id=place.item_id,
            output_index=place.output_index,
            delta="",
        )
        self._delta = Refrain(event)
        return self._delta

    def _item(self, status: str, text: str) -> OutputItem:
        if self._is_custom:
            return CustomCall(
                id=self.place.item_id,
                status=status,
                call_id=self._call_id,
                name=self._name,
                input=text,
                namespace=self._namespace,
            )
        return FunctionCall(
            id=self.place.item_id,
            status=status,
            call_id=self._call_id,
            name=self._name,
            arguments=text,
            namespace=self._namespace,
        )

    def _extend(self, step: str, **fields: str) -> None:
        if self.out.extended:
            self.send(f"response.output_tool_call.{step}", **fields)


class ServerCallWriter(_Writer):
    """Writes a call that Treadle runs itself, as an mcp_call: no client looks those up among its own tools."""

    def __init__(
        self, out: EventOutput, place: PartPosition, event: ToolStarted | ToolFinished, approval_id: str = ""
    ) -> None:
        super().__init__(out, place)
        self._item = ServerCall(
            id=place.item_id,
            status="in_progress",
            server_label=event.source or OWN_LABEL,
            name=event.call.name,
            approval_request_id=approval_id or None,
        )
        self.announce("added", self._item)
        self.send("response.mcp_call.in_progress")
        arguments = event.call.arguments or "{}"
        self.send("response.mcp_call_arguments.delta", delta=arguments)
        self.send("response.mcp_call_arguments.done", arguments=arguments)
        self._item = msgspec.structs.replace(self._item, arguments=arguments)

    def feed(self, delta: Delta) -> None:
        """Take nothing: the arguments were whole when the tool started."""

    def settle(self, final: Source) -> None:
        """Send how the tool ended."""
        if not isinstance(final, ToolFinished):
            return
        text = shown_output(final.result.output)
        failed = final.result.is_error
        self._item = msgspec.structs.replace(
            self._item,
            status="failed" if failed else "completed",
            output=None if failed else text,
            error=ExecutionError(content=(ErrorText(text=text),)) if failed else None,
        )
        self.send(f"response.mcp_call.{self._item.status}")

    def close(self, status: str) -> OutputItem:
        """Send that the call is done; one that never got a result is incomplete."""
        if self._item.status == "in_progress":
            self._item = msgspec.structs.replace(self._item, status="incomplete")
        return self.announce("done", self._item)


class QuestionWriter(_Writer):
    """Writes that a call waits for a person: an item that is whole at once."""

    def __init__(self, out: EventOutput, place: PartPosition, event: ApprovalRequested) -> None:
        super().__init__(out, place)
        self._item = ApprovalRequest(
            id=place.item_id,
            server_label=event.source or OWN_LABEL,
            name=event.call.name,
            arguments=event.call.arguments or "{}",
        )
        self.announce("added", self._item)

    def feed(self, delta: Delta) -> None:
        """Take nothing: a question comes whole."""

    def settle(self, final: Source) -> None:
        """Take nothing: a question comes whole."""

    def close(self, status: str) -> OutputItem:
        """Send that the question is put."""
        return self.announce("done", self._item)


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """An image of a message, which this API shows as an item of its own; `index` is its lane."""

    index: int
    id: str
    format: str
    data: str


class PictureWriter(_Writer):
    """Writes an image of an answer as the image that a call of the API's own tool gives."""

    def __init__(self, out: EventOutput, place: PartPosition, picture: Picture) -> None:
        super().__init__(out, place)
        self._item = ImageCall(id=place.item_id, status="in_progress")
        self.announce("added", self._item)
        self.send("response.image_generation_call.in_progress")
        self.send("response.image_generation_call.completed")
        self._item = ImageCall(id=place.item_id, status="completed", result=picture.data, output_format=picture.format)

    def feed(self, delta: Delta) -> None:
        """Take nothing: an image comes whole."""

    def settle(self, final: Source) -> None:
        """Take nothing: an image comes whole."""

    def close(self, status: str) -> OutputItem:
        """Send that the image is done."""
        return self.announce("done", self._item)


class OpaqueWriter(_Writer):
    """Writes an item of a kind that Treadle does not know exactly as its upstream wrote it."""

    is_run = True

    def __init__(self, out: EventOutput, place: PartPosition, item: OpaqueItem) -> None:
        super().__init__(out, place)
        self._raw = item.raw
        self.announce("added", item.raw)

    def feed(self, delta: Delta) -> None:
        """Take nothing: what is not known cannot be streamed."""

    def settle(self, final: Source) -> None:
        """Keep the item as it came in the end."""
        if isinstance(final, OpaqueItem):
            self._raw = final.raw

    def close(self, status: str) -> OutputItem:
        """Send that the item is done."""
        return self.announce("done", self._raw)


class _Wrapped(msgspec.Struct, kw_only=True):
    input: str


_wrapped = msgspec.json.Decoder(_Wrapped)


def unwrapped(arguments: str) -> str:
    """Return the free text inside the arguments of a custom tool that was offered as a function."""
    try:
        return _wrapped.decode(arguments).input
    except (msgspec.DecodeError, UnicodeError):
        return arguments


def shown_output(parts: tuple[AnyPart, ...]) -> str:
    """Return a result as the one text an mcp_call has room for; what is not text is named."""
    if all(isinstance(part, TextPart) for part in parts):
        return text_of(parts)
    return "\n".join(part.text if isinstance(part, TextPart) else f"[{_tag(part)}]" for part in parts)


def _tag(part: AnyPart) -> str:
    return str(part.__struct_config__.tag)
