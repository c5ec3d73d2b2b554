"""Items of a Responses answer while they are built: streamed pieces are checked against the whole item at the end.

A draft does not know the items beside it. Texts that may be emitted go to `send`, arguments to the assembly.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from treadle.core.events import ModelEvent, ReasoningDelta, RefusalDelta, TextDelta
from treadle.core.items import (
    AnyPart,
    CallItem,
    CallKind,
    Extra,
    MessageItem,
    OpaquePart,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from treadle.core.json import BadJson, read_json, write_json
from treadle.protocols.decoding.answer_meter import AnswerMeter
from treadle.protocols.decoding.call_arguments import Arguments, FreeText
from treadle.protocols.decoding.item_drafts import BlobFactory, CallDraft, ItemDraft, OpaqueDraft
from treadle.protocols.responses.content_parts import PROTOCOL
from treadle.protocols.responses.encrypted_content import SEALED
from treadle.protocols.responses.tools import flat_name
from treadle.protocols.responses.upstream_content_parts import ContentPart, PartKind, PartRow, PartText, TextPiece
from treadle.protocols.responses.upstream_event import (
    NULL,
    PART,
    ItemIn,
    PartIn,
    is_null,
    is_object,
    list_of,
    read,
    text_of,
    word_of,
)

ITEM_ID = "item_id"
"""The kind of blob for a provider's id of its reasoning: the encrypted form is bound to it."""

Family = Literal["message", "reasoning", "call", "opaque"]
ArgumentEvents = Literal["official", "extended"]
Send = Callable[[ModelEvent], None]
Finals = Callable[[ItemIn], list[list[TextPiece]]]

KINDS: dict[str, PartKind] = {
    "output_text": "text",
    "text": "text",
    "input_text": "text",
    "refusal": "refusal",
    "reasoning_text": "raw",
    "summary_text": "summary",
}


class _Draft(ItemDraft):
    """What all drafts share: `announced` is the item as it was when it started, until it is closed."""

    family: Family
    announced: ItemIn | None = None

    @property
    def is_ready(self) -> bool:
        """Whether enough is known to open the item."""
        return True

    @property
    def disagrees(self) -> bool:
        """Whether the whole item was another one than was streamed."""
        return False

    @property
    def is_respelt(self) -> bool:
        """Whether the whole item was the same in another spelling; what was streamed stands."""
        return False

    def add_names(self, item: ItemIn) -> None:
        """Add what names the item."""

    def settle(self, item: ItemIn) -> None:
        """Add what the whole item has beyond what was streamed."""

    def fits(self, item: ItemIn) -> bool:
        """Whether what was streamed is a beginning of this item."""
        return True

    def contradicts(self, item: ItemIn) -> bool:
        """Whether a closed item is another one than this whole item."""
        return False


class TextDraft(_Draft):
    """A message or reasoning: texts in parts. `finals` reads them from a whole item, in lists numbered together."""

    _is_settled = False

    def __init__(self, item_id: str, send: Send, meter: AnswerMeter, finals: Finals) -> None:
        self.item_id = item_id
        self.row = PartRow(self._send_text, meter)
        self._send = send
        self._finals = finals

    @property
    def disagrees(self) -> bool:
        """Whether a whole text was another one than the streamed."""
        return self.row.disagrees

    @property
    def is_respelt(self) -> bool:
        """Whether a whole text had other white space around it."""
        return self.row.is_respelt

    def settle(self, item: ItemIn) -> None:
        """Add what the whole texts have beyond the streamed ones."""
        self._is_settled = True
        for finals in self._finals(item):
            self.row.settle(finals)

    def close(self) -> None:
        """Close all parts; where nothing was ever streamed, the start of the item has it all."""
        if not self.row.parts and self.announced is not None and not self._is_settled:
            self.settle(self.announced)
        self.row.close()

    def fits(self, item: ItemIn) -> bool:
        """Whether the first streamed part begins as the item's."""
        finals = [final for group in self._finals(item) for final in group]
        return not self.row.parts or bool(finals and self.row.parts[0].content.begins(finals[0].text))

    def contradicts(self, item: ItemIn) -> bool:
        """Whether the item has other texts; one that has none at all takes nothing back."""
        finals = [final for group in self._finals(item) for final in group]
        kinds: set[PartKind] = {final.kind for final in finals}
        for kind in kinds:
            texts = [final.text for final in finals if final.kind == kind]
            if any(texts) and not self.row.is_same(self.row.texts(kind), texts):
                return True
        return False

    def _send_text(self, part: ContentPart, text: str) -> None:
        tokens = _array(part.take_logprobs()) if part.waiting else None
        match part.kind:
            case "text":
                self._send(TextDelta(index=self.index, part=part.number, text=text, logprobs=tokens))
            case "refusal":
                self._send(RefusalDelta(index=self.index, part=part.number, text=text, logprobs=tokens))
            case "raw" | "summary":
                is_summary = part.kind == "summary"
                self._send(ReasoningDelta(index=self.index, part=part.number, text=text, is_summary=is_summary))


class ResponsesMessageDraft(TextDraft):
    """A message."""

    family: Family = "message"
    _phase: str | None = None
    _others: Sequence[OpaquePart] = ()

    def __init__(self, item_id: str, send: Send, meter: AnswerMeter) -> None:
        super().__init__(item_id, send, meter, _message_finals)

    def add_names(self, item: ItemIn) -> None:
        """Add the phase."""
        self._phase = word_of(item.phase) or self._phase

    def settle(self, item: ItemIn) -> None:
        """Add the whole texts, and parts of kinds that Treadle does not know as they are."""
        super().settle(item)
        parts = [(raw, read(PART, raw)) for raw in list_of(item.content)]
        self._others = [_opaque(raw) for raw, part in parts if part is not None and part.type not in KINDS]

    def item(self) -> MessageItem:
        """Return the message as far as it is known."""
        texts: list[AnyPart] = [_part(part) for part in self.row.parts]
        return MessageItem(id=self.item_id, role="assistant", phase=self._phase, content=(*texts, *self._others))


class ResponsesReasoningDraft(TextDraft):
    """Reasoning, in texts and summaries."""

    family: Family = "reasoning"
    _upstream_id = ""
    _encrypted = ""

    def __init__(self, item_id: str, send: Send, meter: AnswerMeter, blobs: BlobFactory) -> None:
        super().__init__(item_id, send, meter, _reasoning_finals)
        self._meter = meter
        self._blobs = blobs

    def add_names(self, item: ItemIn) -> None:
        """Add the provider's id."""
        self._upstream_id = word_of(item.id) or self._upstream_id

    def settle(self, item: ItemIn) -> None:
        """Add the whole texts, and what only the provider can read."""
        super().settle(item)
        self._encrypted = word_of(item.encrypted_content) or self._encrypted
        self._meter.add(self._encrypted)

    def item(self) -> ReasoningItem:
        """Return the reasoning as far as it is known, with its blobs once it is closed."""
        blobs = ((SEALED, self._encrypted), (ITEM_ID, self._upstream_id)) if self.is_closed else ()
        return ReasoningItem(
            id=self.item_id,
            summary=tuple(part.content.text for part in self.row.parts if part.kind == "summary"),
            text=tuple(part.content.text for part in self.row.parts if part.kind == "raw"),
            blobs=tuple(self._blobs.from_text(kind, data) for kind, data in blobs if data),
        )


class ResponsesCallDraft(_Draft, CallDraft):
    """A call. `source` is the family of events that streams its arguments: S2's own events repeat the official ones.

    What adds to the arguments returns the text that is new, for the assembly to append.
    """

    family: Family = "call"
    source: ArgumentEvents | None = None
    _extra: Extra | None = None
    _disagrees = _is_respelt = _has_whole = False

    def __init__(self, item_id: str, meter: AnswerMeter, kind: CallKind) -> None:
        super().__init__(kind=kind)
        self.item_id = item_id
        self.streamed = PartText()
        self._meter = meter

    @property
    def is_ready(self) -> bool:
        """Whether name and id are known."""
        return bool(self.name and self.upstream_id)

    @property
    def disagrees(self) -> bool:
        """Whether the whole arguments were others than the streamed ones."""
        return self._disagrees

    @property
    def is_respelt(self) -> bool:
        """Whether the whole arguments were the same JSON in another spelling."""
        return self._is_respelt

    def add_names(self, item: ItemIn) -> None:
        """Add name and ids; what is known already stands."""
        self.namespace = self.namespace or word_of(item.namespace) or None
        name = flat_name(word_of(item.name), self.namespace)
        if not self.name:
            self.name = name
            self._meter.add(self.name)
        elif name and name not in (self.name, flat_name(self.name, self.namespace)):
            self._disagrees = True
        if not self.upstream_id:
            self.upstream_id = word_of(item.call_id)
            self._meter.add(self.upstream_id)

    def feed(self, text: str, source: ArgumentEvents) -> str:
        """Add a piece of the arguments; a second source only repeats the first, and is ignored."""
        self.source = self.source or source
        return self.streamed.add(text) if source == self.source else ""

    def complete(self, whole: str) -> str:
        """Add what the whole arguments have beyond the streamed ones."""
        if not whole or self.is_closed:
            return ""
        had_whole, self._has_whole = self._has_whole, True
        # One whole after another can only be the same, and what was shown cannot be taken back.
        if had_whole or (self.index >= 0 and not self.streamed.begins(whole)):
            self._disagrees = self._disagrees or not self.is_same(whole)
            return ""
        if self.streamed.begins(whole):
            return self.streamed.extend(whole)
        # Nothing of it was shown: the whole arguments are what the upstream means.
        self.arguments = FreeText() if self.kind == "custom" else Arguments()
        self.streamed, self.waiting = PartText(), []
        return self.streamed.add(whole)

    def settle(self, item: ItemIn) -> None:
        """Add fields that only this protocol has."""
        fields = (("caller", item.caller), ("async", item.is_async))
        extra = {name: raw.copy() for name, raw in fields if not is_null(raw)}
        self._extra = Extra(protocol=PROTOCOL, fields=extra) if extra else None

    def item(self) -> CallItem:
        """Return the call, with arguments and fields of this protocol once they are complete."""
        item = super().item()
        return item if self.final is None else msgspec.structs.replace(item, extra=self._extra)

    def fits(self, item: ItemIn) -> bool:
        """Whether name and arguments begin as the item's."""
        name = flat_name(word_of(item.name), word_of(item.namespace) or None)
        return name == (self.name or name) and self.streamed.begins(self.arguments_of(item))

    def contradicts(self, item: ItemIn) -> bool:
        """Whether the item has another name or other arguments; one without any takes nothing back."""
        name = flat_name(word_of(item.name), word_of(item.namespace) or None)
        return (bool(name) and name != self.name) or not self.is_same(self.arguments_of(item))

    def is_same(self, whole: str) -> bool:
        """Whether those are all of the arguments, or the same JSON spelt otherwise, or none are given."""
        if not whole or whole == self.streamed.text:
            return True
        is_same = self.kind == "function" and _is_same_object(whole, self.streamed.text)
        self._is_respelt = self._is_respelt or is_same
        return is_same

    def arguments_of(self, item: ItemIn) -> str:
        """Return the arguments of a whole item."""
        return text_of(item.input if self.kind == "custom" else item.arguments)


class ResponsesOpaqueDraft(_Draft, OpaqueDraft):
    """An item of a kind that Treadle does not know, exactly as its upstream wrote it."""

    family: Family = "opaque"


Draft = ResponsesMessageDraft | ResponsesReasoningDraft | ResponsesCallDraft | ResponsesOpaqueDraft


def final_of(part: PartIn) -> TextPiece:
    """Return a part of a known kind as its item has it."""
    kind = KINDS[part.type]
    return TextPiece(
        kind=kind,
        text=text_of(part.refusal if kind == "refusal" else part.text),
        annotations=objects_of(part.annotations),
        logprobs=objects_of(part.logprobs),
    )


def objects_of(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the objects of a list, copied out of the event around them so that they can be stored."""
    return [] if raw is NULL else [element.copy() for element in list_of(raw) if is_object(element)]


def kind_of(item: ItemIn) -> str:
    """Return the type of an item; one without a type is recognized by its fields, if it can be."""
    if item.type:
        return item.type
    fields = (("function_call", item.arguments), ("custom_tool_call", item.input), ("message", item.content))
    return next((kind for kind, field in fields if not is_null(field)), "")


def _is_same_object(one: str, other: str) -> bool:
    """Whether two texts are the same JSON object, whatever its spaces and the order of its fields."""
    try:
        values: list[Any] = [read_json(one), read_json(other)]
    except BadJson:
        return False
    # Written again: 1, 1.0 and true are equal to Python, and not to a tool.
    first, second = (json.dumps(value, sort_keys=True) if isinstance(value, dict) else None for value in values)
    return first is not None and first == second


def _message_finals(item: ItemIn) -> list[list[TextPiece]]:
    """Return text and refusals."""
    if memoryview(item.content)[0] == 0x22:
        return [[TextPiece(kind="text", text=text_of(item.content))]]
    parts = [read(PART, raw) for raw in list_of(item.content)]
    return [[final_of(part) for part in parts if part is not None and KINDS.get(part.type) in ("text", "refusal")]]


def _reasoning_finals(item: ItemIn) -> list[list[TextPiece]]:
    """Return summaries and raw texts, each numbered on its own."""
    groups: tuple[tuple[PartKind, msgspec.Raw], ...] = (("summary", item.summary), ("raw", item.content))
    return [
        [TextPiece(kind=kind, text=text_of(part.text)) for raw in list_of(texts) if (part := read(PART, raw))]
        for kind, texts in groups
    ]


def _opaque(raw: msgspec.Raw) -> OpaquePart:
    return OpaquePart(protocol=PROTOCOL, raw=raw.copy())


def _part(part: ContentPart) -> AnyPart:
    tokens = _array(part.logprobs) if part.logprobs else None
    if part.kind == "refusal":
        return RefusalPart(text=part.content.text, logprobs=tokens)
    annotations = _array(part.annotations) if part.annotations else None
    return TextPart(text=part.content.text, annotations=annotations, logprobs=tokens)


def _array(values: list[msgspec.Raw]) -> msgspec.Raw | None:
    return msgspec.Raw(write_json(values)) if values else None
