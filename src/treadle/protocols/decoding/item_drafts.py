"""Items while they are being built: a message, reasoning, a call, an item of an unknown kind.

A draft holds content and turns it into an item. It emits no events and does not know the items beside it.
"""

from collections.abc import Hashable
from typing import Any

import msgspec

from treadle.core.items import (
    AnyItem,
    AnyPart,
    Blob,
    CallItem,
    CallKind,
    Extra,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from treadle.protocols.decoding.call_arguments import Arguments, FinalArguments, FreeText, is_object
from treadle.protocols.decoding.json_values import Growth
from treadle.protocols.surrogates import HalfJoiner, write_halves


class BlobFactory(msgspec.Struct, frozen=True, kw_only=True):
    """Makes blobs in the name of the provider and model that answer: only they can read their opaque state again."""

    provider: str = ""
    model: str = ""

    def from_text(self, kind: str, data: str) -> Blob:
        """Return a text as opaque state."""
        return Blob(provider=self.provider, kind=kind, data=data, model=self.model)

    def from_value(self, kind: str, value: Any) -> Blob:
        """Return a value, written as JSON, as opaque state."""
        return self.from_text(kind, write_halves(value).decode())

    def from_state(self, state: dict[str, Growth]) -> tuple[Blob, ...]:
        """Return what has grown under each kind as opaque state."""
        return tuple(self.from_value(kind, growth.value()) for kind, growth in state.items())


class ItemDraft:
    """What every draft has: `index` is set when the item is announced; one that `is_left_out` is never done."""

    item_id: str = ""
    index: int = -1
    is_closed: bool = False
    is_left_out: bool = False
    blobs: tuple[Blob, ...] = ()

    def item(self) -> AnyItem:
        """Return the item as far as it is known."""
        raise NotImplementedError


class PartDraft(msgspec.Struct):
    """A text or a refusal: `waiting` are the logprobs of tokens whose text has not come yet."""

    is_refusal: bool = False
    pieces: list[str] = []
    logprobs: list[Any] = []
    waiting: list[Any] = []

    def part(self) -> AnyPart | None:
        """Return the part as far as it is known; None while it is empty."""
        if not (self.pieces or self.logprobs):
            return None
        text = "".join(self.pieces)
        logprobs = write_array(self.logprobs) if self.logprobs else None
        return RefusalPart(text=text, logprobs=logprobs) if self.is_refusal else TextPart(text=text, logprobs=logprobs)

    def add_logprobs(self, tokens: list[Any]) -> None:
        """Add logprobs, which leave with the next text."""
        self.logprobs += tokens
        self.waiting += tokens

    def take_logprobs(self) -> msgspec.Raw:
        """Return the logprobs that wait, and wait for others."""
        tokens, self.waiting = self.waiting, []
        return write_array(tokens)


class MessageDraft(ItemDraft):
    """A message: `parts` in the order they came, `attached` parts behind all of them.

    `annotations` belong to the first text.
    """

    extra: Extra | None = None

    def __init__(self, item_id: str) -> None:
        self.item_id = item_id
        self.joiner = HalfJoiner()
        self.parts: list[PartDraft | AnyPart] = []
        self.attached: list[AnyPart] = []
        self.annotations: list[Any] = []

    @property
    def is_refusing(self) -> bool:
        """Whether the last part is a refusal."""
        part = self.parts[-1] if self.parts else None
        return isinstance(part, PartDraft) and part.is_refusal

    def open_part(self, *, is_refusal: bool = False) -> PartDraft:
        """Return the part that text goes to: the last one, or a new one where that is of another kind."""
        part = self.parts[-1] if self.parts else None
        if not isinstance(part, PartDraft) or part.is_refusal != is_refusal:
            part = PartDraft(is_refusal)
            self.parts.append(part)
        return part

    def item(self) -> MessageItem:
        """Return the message as far as it is known."""
        content: list[AnyPart] = []
        for part in self.parts:
            whole = part.part() if isinstance(part, PartDraft) else part
            if whole is not None:
                content.append(whole)
        if self.annotations:
            texts = [number for number, part in enumerate(content) if isinstance(part, TextPart)]
            for number in texts[:1]:
                annotated = msgspec.structs.replace(content[number], annotations=write_array(self.annotations))
                content[number] = annotated
        return MessageItem(
            id=self.item_id,
            role="assistant",
            content=(*content, *self.attached),
            blobs=self.blobs,
            extra=self.extra,
        )


class ReasoningDraft(ItemDraft):
    """Reasoning that is one text; `state` becomes its blobs when it is closed."""

    def __init__(self, item_id: str) -> None:
        self.item_id = item_id
        self.joiner = HalfJoiner()
        self.texts: list[str] = []
        self.state: dict[str, Growth] = {}

    def item(self) -> ReasoningItem:
        """Return the reasoning as far as it is known."""
        text = "".join(self.texts)
        return ReasoningItem(id=self.item_id, text=(text,) if text else (), blobs=self.blobs)


class CallDraft(ItemDraft):
    """A call: `waiting` are arguments that came before it was announced, `final` is set when they are complete.

    `position` is where the provider says the call stands.
    """

    call_id: str = ""
    namespace: str | None = None
    extra: Extra | None = None
    final: FinalArguments | None = None

    def __init__(
        self, upstream_id: str = "", name: str = "", position: Hashable = None, kind: CallKind = "function"
    ) -> None:
        self.upstream_id = upstream_id
        self.name = name
        self.position = position
        self.kind: CallKind = kind
        self.arguments: Arguments = FreeText() if kind == "custom" else Arguments()
        self.joiner = HalfJoiner()
        self.waiting: list[str] = []

    @property
    def size(self) -> int:
        """How many bytes of arguments came."""
        return self.arguments.size

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are a complete object, or none at all."""
        return self.kind == "custom" or is_object(self.arguments.finish().text)

    def item(self) -> CallItem:
        """Return the call, with arguments and blobs once they are complete."""
        final = self.final
        return CallItem(
            id=self.item_id,
            call_id=self.call_id,
            name=self.name,
            arguments=final.text if final else "",
            kind=self.kind,
            namespace=self.namespace,
            raw=final.raw if final else None,
            upstream_id=self.upstream_id or None,
            blobs=self.blobs if final else (),
            extra=self.extra,
        )


class OpaqueDraft(ItemDraft):
    """An item of a kind that Treadle does not know, as its provider wrote it."""

    def __init__(self, item_id: str, protocol: str, raw: msgspec.Raw) -> None:
        self.item_id = item_id
        self.protocol = protocol
        # A view of the frame would keep all of that in memory.
        self.raw = raw.copy()

    def item(self) -> OpaqueItem:
        """Return the item as far as it is known."""
        return OpaqueItem(id=self.item_id, protocol=self.protocol, raw=self.raw)


def write_array(values: list[Any]) -> msgspec.Raw:
    """Write values as a JSON array."""
    return msgspec.Raw(write_halves(values))
