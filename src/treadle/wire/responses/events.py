"""The stream events of the Responses API as they are written, and the outlet that numbers and frames them.

Events that differ only in `type` share a struct. A field that an event does not have is left unset.
"""

import msgspec
from msgspec import UNSET, UnsetType

from treadle.wire.responses.response import ContentPart, OutputItem, ResponseObject
from treadle.wire.sse import write_frame

_encode = msgspec.json.Encoder().encode


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What every event carries."""

    type: str
    sequence_number: int


class LifecycleEvent(StreamEvent, frozen=True, kw_only=True):
    """response.created, .in_progress, .completed, .incomplete, .failed; S2's response.done."""

    response: ResponseObject


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


class Outlet:
    """Numbers events from 0 and frames them; when nobody streams it only counts."""

    def __init__(self, *, streams: bool, extended: bool) -> None:
        self.extended = extended
        self._streams = streams
        self._count = 0
        self._frames: list[bytes] = []

    def number(self) -> int:
        """Return the next sequence number."""
        number = self._count
        self._count += 1
        return number

    @property
    def last(self) -> int:
        """Return the last sequence number."""
        return max(0, self._count - 1)

    def renumber(self, number: int) -> None:
        """Count on from that number."""
        self._count = number

    def send(self, event: StreamEvent) -> None:
        """Frame an event."""
        if self._streams:
            self._frames.append(write_frame(_encode(event), event.type))

    def end(self) -> None:
        """Frame the terminator, which only S2's clients expect on this API."""
        if self._streams:
            self._frames.append(write_frame(b"[DONE]"))

    def take(self) -> list[bytes]:
        """Return the frames since the last time."""
        frames, self._frames = self._frames, []
        return frames
