"""The items of an answer in the making: a message, a thought, a call. They hold text and say what it amounts to."""

from typing import Any

import msgspec

from treadle.canon.items import (
    AnyPart,
    Blob,
    CallItem,
    MessageItem,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from treadle.wire.answer.correlate import Slot
from treadle.wire.answer.growth import Growth
from treadle.wire.arguments import FinalArguments
from treadle.wire.surrogates import HalfJoiner, write_halves


class _Part:
    """Text or a refusal: `waiting` are the logprobs of tokens whose text has not come yet."""

    __slots__ = ("is_refusal", "pieces", "tokens", "waiting")

    def __init__(self, is_refusal: bool) -> None:
        self.is_refusal = is_refusal
        self.pieces: list[str] = []
        self.tokens: list[Any] = []
        self.waiting: list[Any] = []

    def part(self) -> AnyPart:
        """Return all of it."""
        text = "".join(self.pieces)
        tokens = _array(self.tokens)
        return RefusalPart(text=text, logprobs=tokens) if self.is_refusal else TextPart(text=text, logprobs=tokens)


class MessageDraft:
    """What the model says: texts and refusals as they come, images and parts of other kinds behind them.

    It `is_refusing` while the last part is a refusal, and `has_tokens` while logprobs wait to be told.
    """

    def __init__(self, index: int, item_id: str) -> None:
        self.index = index
        self.is_closed = False
        self.joiner = HalfJoiner()
        self.blobs: tuple[Blob, ...] = ()
        self.attached: list[AnyPart] = []
        self.annotations: list[Any] = []
        self.is_refusing = False
        self.has_tokens = False
        self._id = item_id
        self._parts: list[_Part] = []

    def add(self, text: str, *, is_refusal: bool) -> int:
        """Add text and return the part it belongs to: text and refusals are parts of their own."""
        if not self._parts or self.is_refusing != is_refusal:
            self._begin(is_refusal)
        self._parts[-1].pieces.append(text)
        return len(self._parts) - 1

    def add_tokens(self, tokens: list[Any], *, is_refusal: bool) -> None:
        """Add logprobs, which belong to the text that comes next."""
        if not self._parts or self.is_refusing != is_refusal:
            self._begin(is_refusal)
        self._parts[-1].tokens += tokens
        self._parts[-1].waiting += tokens
        self.has_tokens = True

    def add_late_tokens(self, tokens: list[Any], *, is_refusal: bool) -> None:
        """Add logprobs of a token without text to the last part of its kind."""
        part = next((part for part in reversed(self._parts) if part.is_refusal == is_refusal), None)
        if part is None:
            self.add_tokens(tokens, is_refusal=is_refusal)
        else:
            part.tokens += tokens
            part.waiting += tokens
            self.has_tokens = True

    def take_tokens(self) -> msgspec.Raw | None:
        """Return the logprobs that came since the last time."""
        self.has_tokens = False
        part = self._parts[-1]
        if not part.waiting:
            return None
        tokens, part.waiting = part.waiting, []
        return _array(tokens)

    def _begin(self, is_refusal: bool) -> None:
        self._parts.append(_Part(is_refusal))
        self.is_refusing = is_refusal

    def item(self) -> MessageItem:
        """Return the message so far."""
        parts = [part.part() for part in self._parts if part.pieces or part.tokens]
        if self.annotations:
            noted = next((n for n, part in enumerate(parts) if isinstance(part, TextPart)), None)
            if noted is not None:
                parts[noted] = msgspec.structs.replace(parts[noted], annotations=_array(self.annotations))
        content = (*parts, *self.attached)
        return MessageItem(id=self._id, role="assistant", content=content, blobs=self.blobs)


class ThoughtDraft:
    """What the model thinks, and what of it only its provider can read."""

    def __init__(self, index: int, item_id: str) -> None:
        self.index = index
        self.is_closed = False
        self.joiner = HalfJoiner()
        self.texts: list[str] = []
        self.states: dict[str, Growth] = {}
        self.blobs: tuple[Blob, ...] = ()
        self._id = item_id

    def item(self) -> ReasoningItem:
        """Return the reasoning so far."""
        text = "".join(self.texts)
        return ReasoningItem(id=self._id, text=(text,) if text else (), blobs=self.blobs)


class CallDraft:
    """A call on its way out: `index` is set once the call has been shown."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.index = -1
        self.is_closed = False
        self.joiner = HalfJoiner()
        self.waiting: list[str] = []
        self.blobs: tuple[Blob, ...] = ()
        self.final: FinalArguments | None = None
        self.item_id = ""
        self.call_id = ""

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
