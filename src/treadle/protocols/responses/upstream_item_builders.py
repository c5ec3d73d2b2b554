"""Items in the making, one class a kind: what has been said of each, and the item that it amounts to.

A draft knows nothing of the items beside it and emits nothing itself: what may go out it gives to `send`.
"""

import json
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from treadle.core.events import ArgumentsDelta, ModelEvent, ReasoningDelta, RefusalDelta, TextDelta
from treadle.core.items import (
    AnyPart,
    Blob,
    CallItem,
    CallKind,
    Extra,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from treadle.core.json import BadJson, read_json, write_json
from treadle.protocols.decoding.assembly_base import AnswerMeter, Maker
from treadle.protocols.decoding.call_arguments import Arguments, FinalArguments, FreeText
from treadle.protocols.responses.content_parts import PROTOCOL
from treadle.protocols.responses.encrypted_content import SEALED
from treadle.protocols.responses.tools import flat_name
from treadle.protocols.responses.upstream_content_parts import ContentPart, PartKind, PartRow, PartText, Spoken
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
"""The kind of blob that a provider's id of its reasoning is kept as: the sealed form is bound to it."""

Voice = Literal["official", "extended"]
Send = Callable[[ModelEvent], None]
Finals = Callable[[ItemIn], list[list[Spoken]]]

KINDS: dict[str, PartKind] = {
    "output_text": "text",
    "text": "text",
    "input_text": "text",
    "refusal": "refusal",
    "reasoning_text": "raw",
    "summary_text": "summary",
}


class _Draft:
    """What all drafts share. `index` is set once the item has been shown, `announced` is what began it."""

    def __init__(self, item_id: str, send: Send, meter: AnswerMeter) -> None:
        self.item_id = item_id
        self.meter = meter
        self.index = -1
        self.is_closed = False
        self.is_announced = False
        self.announced: ItemIn | None = None
        self._send = send

    @property
    def is_ready(self) -> bool:
        """Tell whether enough is known to show the item."""
        return True

    @property
    def disagrees(self) -> bool:
        """Tell whether the upstream said in the end something else than it streamed."""
        return False

    @property
    def is_respelt(self) -> bool:
        """Tell whether the upstream said the same in the end in another spelling; what was streamed stands."""
        return False

    def learn(self, item: ItemIn) -> None:
        """Take what names the item."""

    def settle(self, item: ItemIn) -> None:
        """Take the item as it is in the end."""

    def close(self) -> None:
        """End the content; where nothing was ever streamed, what began the item says it all."""
        self.is_closed = True
        self.announced = None

    def fits(self, item: ItemIn) -> bool:
        """Tell whether what was streamed is a beginning of this item."""
        return True

    def contradicts(self, item: ItemIn) -> bool:
        """Tell whether an item that has ended is another one than is said now."""
        return False


class SpokenDraft(_Draft):
    """A message or reasoning: texts in parts. `finals` reads them from a whole item, in lists numbered together."""

    def __init__(self, item_id: str, send: Send, meter: AnswerMeter, finals: Finals) -> None:
        super().__init__(item_id, send, meter)
        self.row = PartRow(self._say, meter)
        self._finals = finals
        self._is_settled = False

    @property
    def disagrees(self) -> bool:
        """Tell whether a whole text was another one than the streamed."""
        return self.row.disagrees

    @property
    def is_respelt(self) -> bool:
        """Tell whether a whole text had other white space around it."""
        return self.row.is_respelt

    def settle(self, item: ItemIn) -> None:
        """Take the whole texts."""
        self._is_settled = True
        for finals in self._finals(item):
            self.row.settle(finals)

    def close(self) -> None:
        """Close all parts."""
        if not self.row.parts and self.announced is not None and not self._is_settled:
            self.settle(self.announced)
        self.row.close()
        super().close()

    def fits(self, item: ItemIn) -> bool:
        """Tell whether the first streamed part begins as the item's."""
        finals = [final for group in self._finals(item) for final in group]
        return not self.row.parts or bool(finals and self.row.parts[0].said.begins(finals[0].text))

    def contradicts(self, item: ItemIn) -> bool:
        """Tell whether the item has other texts; one that has none at all takes nothing back."""
        finals = [final for group in self._finals(item) for final in group]
        kinds: set[PartKind] = {final.kind for final in finals}
        for kind in kinds:
            texts = [final.text for final in finals if final.kind == kind]
            if any(texts) and not self.row.is_same(self.row.texts(kind), texts):
                return True
        return False

    def _say(self, part: ContentPart, text: str) -> None:
        tokens = _array(part.take_logprobs()) if part.waiting else None
        match part.kind:
            case "text":
                self._send(TextDelta(index=self.index, part=part.number, text=text, logprobs=tokens))
            case "refusal":
                self._send(RefusalDelta(index=self.index, part=part.number, text=text, logprobs=tokens))
            case "raw" | "summary":
                is_summary = part.kind == "summary"
                self._send(ReasoningDelta(index=self.index, part=part.number, text=text, is_summary=is_summary))


class ResponsesMessageDraft(SpokenDraft):
    """What the model says."""

    def __init__(self, item_id: str, send: Send, meter: AnswerMeter) -> None:
        super().__init__(item_id, send, meter, _message_finals)
        self._phase: str | None = None
        self._others: list[OpaquePart] = []

    def learn(self, item: ItemIn) -> None:
        """Take the phase."""
        self._phase = word_of(item.phase) or self._phase

    def settle(self, item: ItemIn) -> None:
        """Take the whole texts, and parts of kinds that Treadle does not know as they are."""
        super().settle(item)
        parts = [(raw, read(PART, raw)) for raw in list_of(item.content)]
        self._others = [_opaque(raw) for raw, part in parts if part is not None and part.type not in KINDS]

    def begun(self) -> MessageItem:
        """Return the message without content."""
        return MessageItem(id=self.item_id, role="assistant", phase=self._phase)

    def item(self) -> MessageItem:
        """Return the message."""
        spoken: list[AnyPart] = [_part(part) for part in self.row.parts]
        return msgspec.structs.replace(self.begun(), content=(*spoken, *self._others))


class ReasoningDraft(SpokenDraft):
    """What the model thought."""

    def __init__(self, item_id: str, send: Send, meter: AnswerMeter, maker: Maker) -> None:
        super().__init__(item_id, send, meter, _reasoning_finals)
        self._maker = maker
        self._upstream_id = ""
        self._sealed = ""

    def learn(self, item: ItemIn) -> None:
        """Take the provider's id."""
        self._upstream_id = word_of(item.id) or self._upstream_id

    def settle(self, item: ItemIn) -> None:
        """Take the whole texts, and what only the provider can read."""
        super().settle(item)
        self._sealed = word_of(item.encrypted_content) or self._sealed
        self.meter.add(self._sealed)

    def begun(self) -> ReasoningItem:
        """Return the reasoning without content."""
        return ReasoningItem(id=self.item_id)

    def item(self) -> ReasoningItem:
        """Return the reasoning."""
        return ReasoningItem(
            id=self.item_id,
            summary=tuple(part.said.text for part in self.row.parts if part.kind == "summary"),
            text=tuple(part.said.text for part in self.row.parts if part.kind == "raw"),
            blobs=tuple(
                Blob(provider=self._maker.provider, kind=kind, data=data, model=self._maker.model)
                for kind, data in ((SEALED, self._sealed), (ITEM_ID, self._upstream_id))
                if data
            ),
        )


class ResponsesCallDraft(_Draft):
    """A call. `voice` is the family of events that streams its arguments: S2's own repeat the official ones."""

    def __init__(self, item_id: str, send: Send, meter: AnswerMeter, kind: CallKind) -> None:
        super().__init__(item_id, send, meter)
        self.kind: CallKind = kind
        self.voice: Voice | None = None
        self.name = ""
        self.upstream_id = ""
        self.call_id = ""
        self.arguments: Arguments = FreeText() if kind == "custom" else Arguments()
        self.final: FinalArguments | None = None
        self._namespace: str | None = None
        self._extra: dict[str, msgspec.Raw] = {}
        self._said = PartText(meter)
        self._waiting: list[str] = []
        self._disagrees = self._is_respelt = False
        self._is_said = self.is_left_out = False

    @property
    def is_ready(self) -> bool:
        """Tell whether name and id are known."""
        return bool(self.name and self.upstream_id)

    @property
    def disagrees(self) -> bool:
        """Tell whether the whole arguments were others than the streamed ones."""
        return self._disagrees

    @property
    def is_respelt(self) -> bool:
        """Tell whether the whole arguments were the same JSON in another spelling."""
        return self._is_respelt

    @property
    def is_whole(self) -> bool:
        """Tell whether the arguments are a complete object, or none at all."""
        if self.kind == "custom":
            return True
        try:
            return isinstance(read_json(self.arguments.finish().text), dict)
        except BadJson:
            return False

    def learn(self, item: ItemIn) -> None:
        """Take name and ids; what is known already stands."""
        self._namespace = self._namespace or word_of(item.namespace) or None
        name = flat_name(word_of(item.name), self._namespace)
        if not self.name:
            self.name = name
            self.meter.add(self.name)
        elif name and name not in (self.name, flat_name(self.name, self._namespace)):
            self._disagrees = True
        if not self.upstream_id:
            self.upstream_id = word_of(item.call_id)
            self.meter.add(self.upstream_id)

    def feed(self, text: str, voice: Voice) -> None:
        """Add to the arguments; a second voice that says the same again is not listened to."""
        self.voice = self.voice or voice
        if voice == self.voice and not self.is_closed:
            self._argue(self._said.add(text))

    def complete(self, whole: str) -> None:
        """Take the whole arguments: they add what was never streamed."""
        if not whole or self.is_closed:
            return
        is_said_before, self._is_said = self._is_said, True
        if is_said_before:
            # One whole after another: they can only be the same.
            self._disagrees = self._disagrees or not self.has_said(whole)
        elif self._said.begins(whole):
            self._argue(self._said.extend(whole))
        elif self.index >= 0:
            self._disagrees = self._disagrees or not self.has_said(whole)
        else:
            # Nothing of it was shown: the whole arguments are what the upstream means.
            self.arguments = FreeText() if self.kind == "custom" else Arguments()
            self._said, self._waiting = PartText(self.meter), []
            self._argue(self._said.add(whole))

    def settle(self, item: ItemIn) -> None:
        """Take the arguments of the whole item."""
        self.complete(self._whole(item))
        kept = (("caller", item.caller), ("async", item.is_async))
        self._extra = {name: raw.copy() for name, raw in kept if not is_null(raw)}

    def close(self) -> None:
        """End the arguments."""
        if not self._said.chars and self.announced is not None:
            self.complete(self._whole(self.announced))
        self._argue(self._said.end())
        self.final = self.arguments.finish()
        if self.final.rest:
            self._pass(self.final.rest)
        super().close()

    def release(self) -> int:
        """Send what came before the call could be shown, and return how many bytes that was."""
        early, self._waiting = "".join(self._waiting), []
        if early:
            self._pass(early)
        return len(early.encode())

    def begun(self) -> CallItem:
        """Return the call without arguments."""
        return CallItem(
            id=self.item_id,
            call_id=self.call_id,
            name=self.name,
            kind=self.kind,
            namespace=self._namespace,
            upstream_id=self.upstream_id or None,
        )

    def item(self) -> CallItem:
        """Return the call."""
        assert self.final is not None
        extra = Extra(protocol=PROTOCOL, fields=self._extra) if self._extra else None
        return msgspec.structs.replace(self.begun(), arguments=self.final.text, raw=self.final.raw, extra=extra)

    def fits(self, item: ItemIn) -> bool:
        """Tell whether name and arguments begin as the item's."""
        name = flat_name(word_of(item.name), word_of(item.namespace) or None)
        return name == (self.name or name) and self._said.begins(self._whole(item))

    def contradicts(self, item: ItemIn) -> bool:
        """Tell whether the item has another name or other arguments; one without any takes nothing back."""
        name = flat_name(word_of(item.name), word_of(item.namespace) or None)
        return (bool(name) and name != self.name) or not self.has_said(self._whole(item))

    def has_said(self, whole: str) -> bool:
        """Tell whether those are all of the arguments, or the same JSON spelt otherwise, or none are given."""
        if not whole or whole == self._said.text:
            return True
        is_same = self.kind == "function" and _is_same_object(whole, self._said.text)
        self._is_respelt = self._is_respelt or is_same
        return is_same

    def _whole(self, item: ItemIn) -> str:
        return text_of(item.input if self.kind == "custom" else item.arguments)

    def _argue(self, text: str) -> None:
        if text:
            ready = self.arguments.feed(text)
            if ready:
                self._pass(ready)

    def _pass(self, text: str) -> None:
        if self.index < 0:
            self._waiting.append(text)
        else:
            self._send(ArgumentsDelta(index=self.index, text=text))


class OpaqueDraft(_Draft):
    """An item of a kind that Treadle does not know, exactly as its upstream wrote it."""

    def __init__(self, item_id: str, send: Send, meter: AnswerMeter, raw: msgspec.Raw) -> None:
        super().__init__(item_id, send, meter)
        self._raw = raw.copy()

    def replace(self, raw: msgspec.Raw) -> None:
        """Take the item as it is in the end."""
        self.meter.add_raw(raw)
        self._raw = raw.copy()

    def begun(self) -> OpaqueItem:
        """Return the item so far."""
        return OpaqueItem(id=self.item_id, protocol=PROTOCOL, raw=self._raw)

    def item(self) -> OpaqueItem:
        """Return the item."""
        return self.begun()


Draft = ResponsesMessageDraft | ReasoningDraft | ResponsesCallDraft | OpaqueDraft


def final_of(part: PartIn) -> Spoken:
    """Return a part of a known kind as its item says it."""
    kind = KINDS[part.type]
    return Spoken(
        kind=kind,
        text=text_of(part.refusal if kind == "refusal" else part.text),
        annotations=objects_of(part.annotations),
        logprobs=objects_of(part.logprobs),
    )


def objects_of(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the objects of a list, freed of the event around them so that they can be kept."""
    return [] if raw is NULL else [element.copy() for element in list_of(raw) if is_object(element)]


def kind_of(item: ItemIn) -> str:
    """Return the kind of an item; one that does not say it is told by what it has, and else is none."""
    if item.type:
        return item.type
    told = (("function_call", item.arguments), ("custom_tool_call", item.input), ("message", item.content))
    return next((kind for kind, field in told if not is_null(field)), "")


def _is_same_object(one: str, other: str) -> bool:
    """Tell whether two texts are the same JSON object, whatever its spaces and the order of its fields."""
    try:
        values: list[Any] = [read_json(one), read_json(other)]
    except BadJson:
        return False
    # Written again: 1, 1.0 and true are equal to Python, and not to a tool.
    first, second = (json.dumps(value, sort_keys=True) if isinstance(value, dict) else None for value in values)
    return first is not None and first == second


def _message_finals(item: ItemIn) -> list[list[Spoken]]:
    """Return text and refusals."""
    if memoryview(item.content)[0] == 0x22:
        return [[Spoken(kind="text", text=text_of(item.content))]]
    parts = [read(PART, raw) for raw in list_of(item.content)]
    return [[final_of(part) for part in parts if part is not None and KINDS.get(part.type) in ("text", "refusal")]]


def _reasoning_finals(item: ItemIn) -> list[list[Spoken]]:
    """Return summaries and raw texts, each numbered on its own."""
    groups: tuple[tuple[PartKind, msgspec.Raw], ...] = (("summary", item.summary), ("raw", item.content))
    return [
        [Spoken(kind=kind, text=text_of(part.text)) for raw in list_of(texts) if (part := read(PART, raw))]
        for kind, texts in groups
    ]


def _opaque(raw: msgspec.Raw) -> OpaquePart:
    return OpaquePart(protocol=PROTOCOL, raw=raw.copy())


def _part(part: ContentPart) -> AnyPart:
    tokens = _array(part.logprobs) if part.logprobs else None
    if part.kind == "refusal":
        return RefusalPart(text=part.said.text, logprobs=tokens)
    annotations = _array(part.annotations) if part.annotations else None
    return TextPart(text=part.said.text, annotations=annotations, logprobs=tokens)


def _array(values: list[msgspec.Raw]) -> msgspec.Raw | None:
    return msgspec.Raw(write_json(values)) if values else None
