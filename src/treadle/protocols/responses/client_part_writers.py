"""Writing the parts of an item: each is opened, fed and closed before the next one begins.

Text, refusals, raw reasoning and summaries go the same way and differ only in a row of the table. What a
decoder never streamed but has at the end is sent as one last delta, so that the deltas always add up.
"""

import re
from collections.abc import Callable
from typing import assert_never

import msgspec
from msgspec import UNSET, UnsetType

from treadle.core.events import TextDelta
from treadle.core.items import AnyPart, FilePart, ImagePart, OpaquePart, RefusalPart, TextPart
from treadle.core.json import write_json
from treadle.protocols.field_reader import LIST
from treadle.protocols.responses.client_events import AnnotationEvent, EventOutput, PartEvent, Refrain, TextEvent
from treadle.protocols.responses.client_response_object import (
    EMPTY,
    ContentPart,
    OutputText,
    ReasoningText,
    Refusal,
    SummaryText,
)

_PICTURE = re.compile(r"data:image/(?P<format>[\w.+-]+);base64,(?P<data>.+)", re.DOTALL)


class PartPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where an item stands in the stream, and the key that its events have."""

    item_id: str
    output_index: int
    index: int


class Finality(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the finished item."""

    kind: "PartKind"
    text: str
    annotations: msgspec.Raw = EMPTY
    logprobs: msgspec.Raw = EMPTY


class PartKind(msgspec.Struct, frozen=True, kw_only=True):
    """How a kind of part is spelled: the prefix of its part events and of its text events, and its body."""

    part: str
    text: str
    body: Callable[[str, Finality | None], ContentPart]
    is_summary: bool = False
    is_refusal: bool = False
    has_logprobs: bool = False


def _text_body(text: str, final: Finality | None) -> ContentPart:
    if final is None:
        return OutputText(text=text)
    return OutputText(text=text, annotations=final.annotations, logprobs=final.logprobs)


def _refusal_body(text: str, _: Finality | None) -> ContentPart:
    return Refusal(refusal=text)


def _reasoning_body(text: str, _: Finality | None) -> ContentPart:
    return ReasoningText(text=text)


def _summary_body(text: str, _: Finality | None) -> ContentPart:
    return SummaryText(text=text)


TEXT = PartKind(part="response.content_part", text="response.output_text", body=_text_body, has_logprobs=True)
REFUSAL = PartKind(part="response.content_part", text="response.refusal", body=_refusal_body, is_refusal=True)
REASONING = PartKind(part="response.content_part", text="response.reasoning_text", body=_reasoning_body)
SUMMARY = PartKind(
    part="response.reasoning_summary_part",
    text="response.reasoning_summary_text",
    body=_summary_body,
    is_summary=True,
)


def finalities(content: tuple[AnyPart, ...]) -> list[Finality]:
    """Return the parts of a message as this protocol can show them in an answer.

    Behind text and refusals come links to files and images; what holds an image itself is an item of its own.
    """
    shown: list[Finality] = []
    links: list[Finality] = []
    for part in content:
        match part:
            case TextPart():
                noted, tokens = part.annotations or EMPTY, part.logprobs or EMPTY
                shown.append(Finality(kind=TEXT, text=part.text, annotations=noted, logprobs=tokens))
            case RefusalPart():
                shown.append(Finality(kind=REFUSAL, text=part.text))
            case ImagePart() if picture_of(part) is None:
                links.append(Finality(kind=TEXT, text=f"![image]({part.url or part.file_id})"))
            case FilePart():
                links.append(Finality(kind=TEXT, text=_file_link(part)))
            case ImagePart() | OpaquePart():
                continue
            case _:
                assert_never(part)
    return shown + links


def picture_of(part: ImagePart) -> tuple[str, str] | None:
    """Return the format and the base64 of an image that is given whole; None for one that stands elsewhere."""
    found = _PICTURE.fullmatch(part.url or "")
    return None if found is None else (found["format"], found["data"])


def _file_link(part: FilePart) -> str:
    name = part.filename or part.file_id or "file"
    return f"[{name}]({part.url})" if part.url and not part.url.startswith("data:") else f"[{name}]"


class ClientPartRow:
    """The parts of one item that share an index: opened in order, one at a time."""

    def __init__(self, out: EventOutput, place: PartPosition) -> None:
        self._out = out
        self._place = place
        self._open: OpenPart | None = None
        self._bodies: list[ContentPart] = []

    @property
    def bodies(self) -> tuple[ContentPart, ...]:
        """Return the closed parts, whole."""
        return tuple(self._bodies)

    def feed(self, kind: PartKind, part: int, text: str, logprobs: msgspec.Raw | None = None) -> "OpenPart":
        """Send more text of a part, opening it first if it is new."""
        open_part = self._open
        if open_part is None or open_part.kind is not kind or open_part.part != part:
            if open_part is not None:
                self.close()
            open_part = self._start(kind, part)
        open_part.feed(text, logprobs)
        return open_part

    def settle(self, finals: list[Finality]) -> None:
        """Close all parts as the finished item has them; a part that was never opened is sent whole."""
        if self._open is not None:
            mine = len(self._bodies)
            final = finals[mine] if mine < len(finals) and finals[mine].kind is self._open.kind else None
            self.close(final)
        for index in range(len(self._bodies), len(finals)):
            self._start(finals[index].kind, index)
            self.close(finals[index])

    def close(self, final: Finality | None = None) -> None:
        """Close the open part, if there is one."""
        if self._open is not None:
            self._bodies.append(self._open.close(final))
            self._open = None

    def _start(self, kind: PartKind, part: int) -> "OpenPart":
        self._open = OpenPart(self._out, self._place, kind, part, len(self._bodies))
        return self._open


class OpenPart:
    """A part that grows."""

    def __init__(self, out: EventOutput, place: PartPosition, kind: PartKind, part: int, index: int) -> None:
        self.kind = kind
        self.part = part
        self._out = out
        self._place = place
        self._content_index = UNSET if kind.is_summary else index
        self._summary_index = index if kind.is_summary else UNSET
        self._streamed: list[str] = []
        self._delta: Refrain | None = None
        self._send_part("added", kind.body("", None))

    def grow(self, delta: TextDelta) -> list[bytes] | None:
        """Return the frames of more text; None where it is another's, or more than text."""
        if delta.index != self._place.index or delta.part != self.part or delta.logprobs is not None:
            return None
        text = delta.text
        if not text:
            return []
        self._streamed.append(text)
        out, refrain = self._out, self._delta
        if refrain is None or not out.streams:
            return [out.repeat(self._refrain(), text)] if out.streams else []
        number, out.number = out.number, out.number + 1
        return [b"".join((refrain.before, write_json(number), refrain.between, write_json(text), refrain.end))]

    def feed(self, text: str, logprobs: msgspec.Raw | None = None) -> None:
        """Send more of the text."""
        if not text:
            return
        self._streamed.append(text)
        if not self._out.streams:
            return
        if logprobs is None:
            self._out.frames.append(self._out.repeat(self._delta or self._refrain(), text))
        else:
            self._out.send(self._text_event(self._out.number, logprobs, delta=text))

    def close(self, final: Finality | None) -> ContentPart:
        """Send the rest of the text and that the part is done, and return it whole."""
        streamed = "".join(self._streamed)
        text = streamed if final is None else final.text
        if len(text) > len(streamed) and text.startswith(streamed):
            self.feed(text[len(streamed) :])
        body = self.kind.body(text, final)
        if self._out.streams:
            annotations, logprobs = (EMPTY, EMPTY) if final is None else (final.annotations, final.logprobs)
            if annotations is not EMPTY:
                self._annotate(annotations)
            self._out.send(self._text_event(self._out.number, logprobs, whole=text))
            self._send_part("done", body)
        return body

    def _annotate(self, annotations: msgspec.Raw) -> None:
        """Send the annotations of the text, which are known when the text is."""
        for index, annotation in enumerate(LIST.decode(annotations)):
            event = AnnotationEvent(
                type=f"{self.kind.text}.annotation.added",
                sequence_number=self._out.number,
                item_id=self._place.item_id,
                output_index=self._place.output_index,
                content_index=self._content_index,
                annotation_index=index,
                annotation=annotation,
            )
            self._out.send(event)

    def _refrain(self) -> Refrain:
        self._delta = Refrain(self._text_event(0, EMPTY, delta=""))
        return self._delta

    def _text_event(
        self, number: int, logprobs: msgspec.Raw, *, delta: str | UnsetType = UNSET, whole: str | UnsetType = UNSET
    ) -> TextEvent:
        return TextEvent(
            type=f"{self.kind.text}.{'done' if delta is UNSET else 'delta'}",
            sequence_number=number,
            item_id=self._place.item_id,
            output_index=self._place.output_index,
            content_index=self._content_index,
            summary_index=self._summary_index,
            delta=delta,
            text=UNSET if self.kind.is_refusal else whole,
            refusal=whole if self.kind.is_refusal else UNSET,
            logprobs=logprobs if self.kind.has_logprobs else UNSET,
        )

    def _send_part(self, step: str, body: ContentPart) -> None:
        if not self._out.streams:
            return
        event = PartEvent(
            type=f"{self.kind.part}.{step}",
            sequence_number=self._out.number,
            item_id=self._place.item_id,
            output_index=self._place.output_index,
            content_index=self._content_index,
            summary_index=self._summary_index,
            part=body,
        )
        self._out.send(event)
