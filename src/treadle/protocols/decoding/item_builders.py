"""The items of an answer in the making: a message, a thought, a call. They hold text and say what it amounts to."""

from typing import Any, final

import msgspec

from treadle.core.items import (
    AnyPart,
    Blob,
    CallItem,
    MessageItem,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from treadle.protocols.decoding.call_arguments import FinalArguments
from treadle.protocols.decoding.call_correlation import Slot
from treadle.protocols.decoding.json_growth import Growth
from treadle.protocols.surrogates import HalfJoiner, write_halves


class _Part(msgspec.Struct):
    """Text or a refusal: `waiting` are the logprobs of tokens whose text has not come yet."""

    is_refusal: bool
    pieces: list[str]
    tokens: list[Any] = []
    waiting: list[Any] = []

    def part(self) -> AnyPart:
        """Return all of it."""
        text = "".join(self.pieces)
        tokens = _array(self.tokens) if self.tokens else None
        return RefusalPart(text=text, logprobs=tokens) if self.is_refusal else TextPart(text=text, logprobs=tokens)


@final
class MessageDraft(msgspec.Struct):
    """What the model says: texts and refusals as they come, images and parts of other kinds behind them.

    It `is_refusing` while the last part is a refusal, and `has_tokens` while logprobs wait to be told. `part` is the
    number of the last part, `texts` are its pieces where it is text.
    """

    index: int
    id: str
    joiner: HalfJoiner
    is_closed: bool = False
    is_refusing: bool = False
    has_tokens: bool = False
    blobs: tuple[Blob, ...] = ()
    texts: list[str] | None = None
    part: int = -1
    parts: list[_Part] = []
    attached: list[AnyPart] = []
    annotations: list[Any] = []

    def add(self, text: str, *, is_refusal: bool) -> None:
        """Add text: texts and refusals are parts of their own."""
        if not self.parts or self.is_refusing != is_refusal:
            self.begin(is_refusal=is_refusal)
        self.parts[-1].pieces.append(text)

    def add_tokens(self, tokens: list[Any], *, is_refusal: bool) -> None:
        """Add logprobs, which belong to the text that comes next."""
        if not self.parts or self.is_refusing != is_refusal:
            self.begin(is_refusal=is_refusal)
        self.parts[-1].tokens += tokens
        self.parts[-1].waiting += tokens
        self.has_tokens = True

    def add_late_tokens(self, tokens: list[Any], *, is_refusal: bool) -> None:
        """Add logprobs of a token without text to the last part of its kind."""
        part = next((part for part in reversed(self.parts) if part.is_refusal == is_refusal), None)
        if part is None:
            self.add_tokens(tokens, is_refusal=is_refusal)
        else:
            part.tokens += tokens
            part.waiting += tokens
            self.has_tokens = True

    def take_tokens(self) -> msgspec.Raw | None:
        """Return the logprobs that came since the last time."""
        self.has_tokens = False
        part = self.parts[-1]
        if not part.waiting:
            return None
        tokens, part.waiting = part.waiting, []
        return _array(tokens)

    def begin(self, *, is_refusal: bool) -> list[str]:
        """Begin a part and return its pieces, of which there are none yet."""
        pieces: list[str] = []
        self.parts.append(_Part(is_refusal, pieces))
        self.part += 1
        self.is_refusing = is_refusal
        self.texts = None if is_refusal else pieces
        return pieces

    def item(self) -> MessageItem:
        """Return the message so far."""
        if self.texts and not (self.part or self.attached or self.annotations or self.parts[0].tokens):
            # What nearly every message is: one text.
            content = (TextPart(text="".join(self.texts)),)
            return MessageItem(id=self.id, role="assistant", content=content, blobs=self.blobs)
        parts = [part.part() for part in self.parts if part.pieces or part.tokens]
        if self.annotations:
            noted = next((n for n, part in enumerate(parts) if isinstance(part, TextPart)), None)
            if noted is not None:
                parts[noted] = msgspec.structs.replace(parts[noted], annotations=_array(self.annotations))
        content = (*parts, *self.attached)
        return MessageItem(id=self.id, role="assistant", content=content, blobs=self.blobs)


@final
class ThoughtDraft:
    """What the model thinks, and what of it only its provider can read."""

    is_closed: bool = False
    blobs: tuple[Blob, ...] = ()

    def __init__(self, index: int, item_id: str) -> None:
        self.index = index
        self.joiner = HalfJoiner()
        self.texts: list[str] = []
        self.states: dict[str, Growth] = {}
        self._id = item_id

    def begun(self) -> ReasoningItem:
        """Return the reasoning without content."""
        return ReasoningItem(id=self._id)

    def item(self) -> ReasoningItem:
        """Return the reasoning so far."""
        text = "".join(self.texts)
        return ReasoningItem(id=self._id, text=(text,) if text else (), blobs=self.blobs)


class CallDraft(msgspec.Struct):
    """A call on its way out: `index` is set once the call has been shown. One that `is_left_out` never ends."""

    slot: Slot
    joiner: HalfJoiner
    waiting: list[str] = []
    index: int = -1
    is_closed: bool = False
    is_left_out: bool = False
    blobs: tuple[Blob, ...] = ()
    final: FinalArguments | None = None
    item_id: str = ""
    call_id: str = ""

    def item(self) -> CallItem:
        """Return the call, with its arguments once they are complete."""
        slot, final = self.slot, self.final
        return CallItem(
            id=self.item_id,
            call_id=self.call_id,
            name=slot.name,
            arguments=final.text if final else "",
            kind=slot.kind,
            raw=final.raw if final else None,
            upstream_id=slot.id or None,
            blobs=self.blobs if final else (),
        )


def _array(values: list[Any]) -> msgspec.Raw | None:
    return msgspec.Raw(write_halves(values)) if values else None
