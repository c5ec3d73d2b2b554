"""The stream events of the Responses API as they are written, and the outlet that numbers and frames them.

Events that differ only in `type` share a struct. A field that an event does not have is left unset.
"""

import msgspec
from msgspec import UNSET, UnsetType

from treadle.protocols.responses.client_response_object import ContentPart, OutputItem, ResponseObject
from treadle.protocols.sse import CR, LF, write_frame

_encode = msgspec.json.Encoder().encode


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What every event carries."""

    type: str
    sequence_number: int


class LifecycleEvent(StreamEvent, frozen=True, kw_only=True):
    """response.created, .in_progress, .completed, .incomplete, .failed; S2's response.done.

    The response may be written already: the first two events have the same.
    """

    response: ResponseObject | msgspec.Raw


class ErrorEvent(StreamEvent, frozen=True, kw_only=True):
    """error."""

    code: str
    message: str
    param: str | None


class ItemEvent(StreamEvent, frozen=True, kw_only=True):
    """response.output_item.added and .done."""

    output_index: int
    item: OutputItem
    item_id: str | UnsetType = UNSET


class PartEvent(StreamEvent, frozen=True, kw_only=True):
    """response.content_part.added and .done; response.reasoning_summary_part.added and .done."""

    item_id: str
    output_index: int
    content_index: int | UnsetType = UNSET
    summary_index: int | UnsetType = UNSET
    part: ContentPart


class TextEvent(StreamEvent, frozen=True, kw_only=True):
    """The delta and done events of output text, refusals, raw reasoning and its summaries."""

    item_id: str
    output_index: int
    content_index: int | UnsetType = UNSET
    summary_index: int | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    logprobs: msgspec.Raw | UnsetType = UNSET


class AnnotationEvent(StreamEvent, frozen=True, kw_only=True):
    """response.output_text.annotation.added."""

    item_id: str
    output_index: int
    content_index: int | UnsetType
    annotation_index: int
    annotation: msgspec.Raw


class CallEvent(StreamEvent, frozen=True, kw_only=True):
    """The events of a call: arguments, custom input, the progress of an mcp_call, S2's output_tool_call."""

    item_id: str
    output_index: int
    delta: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    input: str | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class Refrain:
    """The frame of a delta, which is the same every time but for its number and its text."""

    __slots__ = ("before", "between", "end")

    def __init__(self, event: StreamEvent) -> None:
        """Take the frame apart; the event's number is 0 and its delta empty."""
        before, _, rest = _frame(event).partition(b'"sequence_number":0')
        between, _, self.end = rest.partition(b'"delta":""')
        self.before = before + b'"sequence_number":'
        self.between = between + b'"delta":'


class EventOutput:
    """Numbers events from 0 and frames them. When nobody `streams` there is no need to make any.

    `number` is that of the next event; `frames` are those that were not taken yet. One that `is_held` gives all further
    events the same number.
    """

    def __init__(self, *, streams: bool, extended: bool) -> None:
        self.streams = streams
        self.extended = extended
        self.number = 0
        self.is_held = False
        self.frames: list[bytes] = []

    def send(self, event: StreamEvent) -> None:
        """Send the next event."""
        self.number += not self.is_held
        self.frames.append(_frame(event))

    def send_again(self, event: StreamEvent) -> None:
        """Send an event that has the number of an earlier one."""
        self.frames.append(_frame(event))

    def repeat(self, refrain: Refrain, text: str) -> bytes:
        """Return the frame of the next event, which is a delta."""
        number = self.number
        self.number += 1
        return b"%b%d%b%b%b" % (refrain.before, number, refrain.between, _encode(text), refrain.end)

    def end(self) -> None:
        """Send the terminator, which only S2's clients expect on this API."""
        self.frames.append(write_frame(b"[DONE]"))


def _frame(event: StreamEvent) -> bytes:
    data = _encode(event)
    if LF in data or CR in data:
        return write_frame(data, event.type)
    return b"event: %b\ndata: %b\n\n" % (event.type.encode(), data)
