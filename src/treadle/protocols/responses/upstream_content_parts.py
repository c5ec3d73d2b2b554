"""Collects the text of an item, part by part.

Only one part goes out at a time, because clients cannot follow two: what comes for a later part waits until those
before it are closed. A whole text that an upstream gives at the end adds what it never streamed and nothing else.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from treadle.protocols.decoding.answer_meter import AnswerMeter
from treadle.protocols.surrogates import HalfJoiner

PARTS_MAX = 1024

PartKind = Literal["text", "refusal", "raw", "summary"]


class TextPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a part, or all of it, with its annotations and logprobs."""

    kind: PartKind
    text: str
    annotations: list[msgspec.Raw] = []
    logprobs: list[msgspec.Raw] = []


class PartText:
    """A text in pieces, and what a whole version of it adds."""

    __slots__ = ("_joiner", "_meter", "_pieces", "chars")

    def __init__(self, meter: AnswerMeter | None = None) -> None:
        self.chars = 0
        self._joiner = HalfJoiner()
        self._meter = meter
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """Return the text so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def add(self, text: str) -> str:
        """Add a piece and return what of it is complete: half of a surrogate pair waits for the other."""
        if self._joiner.half or not text.isascii():
            text = self._joiner.feed(text)
        return self._keep(text)

    def end(self) -> str:
        """Return what a half that waits in vain becomes."""
        return self._keep(self._joiner.finish())

    def begins(self, whole: str) -> bool:
        """Whether a text begins with this one; the shorter of the two bounds what that costs."""
        return len(whole) >= self.chars and whole.startswith(self.text)

    def extend(self, whole: str) -> str:
        """Add what a whole version has beyond this text, and return it; the text must begin it."""
        self._joiner = HalfJoiner()
        return self.add(whole[self.chars :])

    def _keep(self, text: str) -> str:
        if text:
            self.chars += len(text)
            if self._meter is not None:
                self._meter.add(text)
            self._pieces.append(text)
        return text


class ContentPart:
    """One part: `number` is its place among those of its kind, or of its message."""

    __slots__ = ("annotations", "content", "held", "is_closed", "kind", "logprobs", "number", "waiting")

    def __init__(self, kind: PartKind, number: int, meter: AnswerMeter) -> None:
        self.kind: PartKind = kind
        self.number = number
        self.content = PartText(meter)
        self.held: list[str] = []
        self.is_closed = False
        self.annotations: list[msgspec.Raw] = []
        self.logprobs: list[msgspec.Raw] = []
        self.waiting: list[msgspec.Raw] = []

    def take_logprobs(self) -> list[msgspec.Raw]:
        """Return the logprobs that came since the last time."""
        waiting, self.waiting = self.waiting, []
        return waiting


class PartRow:
    """The parts of one item in order of appearance; `send` is given each text that may go out, in order."""

    def __init__(self, send: Callable[[ContentPart, str], None], meter: AnswerMeter) -> None:
        self.parts: list[ContentPart] = []
        self.disagrees = self.is_respelt = False
        self._send = send
        self._meter = meter
        self._keys: dict[tuple[PartKind, int], ContentPart] = {}
        self._live = 0

    def feed(self, key: int, piece: TextPiece) -> None:
        """Add text to a part, or begin it; a part that is closed takes no more."""
        part = self._keys.get((piece.kind, key))
        if part is None:
            part = self._begin(piece.kind, key) if piece.text else None
        if part is not None and not part.is_closed:
            if piece.logprobs:
                self._weigh(part, piece.logprobs)
            self._pass(part, part.content.add(piece.text))

    def find(self, kind: PartKind, key: int) -> ContentPart | None:
        """Return a part that has started."""
        return self._keys.get((kind, key))

    def contradicts(self, key: int, whole: TextPiece) -> bool:
        """Whether the whole text of a part that is closed is another one than it has."""
        part = self._keys.get((whole.kind, key))
        return part is not None and bool(whole.text) and not self.is_same([part.content.text], [whole.text])

    def is_same(self, texts: list[str], whole: list[str]) -> bool:
        """Whether texts are the same but for white space around them, and remember that they were respelt."""
        if "".join(texts) == "".join(whole):
            return True
        is_same = "".join(texts).strip() == "".join(whole).strip() or _stripped(texts) == _stripped(whole)
        self.is_respelt = self.is_respelt or is_same
        return is_same

    def texts(self, kind: PartKind) -> list[str]:
        """Return all texts of a kind."""
        return [part.content.text for part in self.parts if part.kind == kind]

    def complete(self, key: int, whole: TextPiece) -> None:
        """Add the whole text of a part, and close it."""
        self._complete(self._keys.get((whole.kind, key)), key, whole)

    def settle(self, wholes: list[TextPiece]) -> None:
        """Add all parts as the whole item has them.

        Some upstreams number the parts of their deltas otherwise than they list them: a part that is not found
        under its number is the next one of its kind that nothing else claims.
        """
        claimed = {id(part) for n, whole in enumerate(wholes) if (part := self._keys.get((whole.kind, n)))}
        free = [part for part in self.parts if id(part) not in claimed]
        for number, whole in enumerate(wholes[:PARTS_MAX]):
            part = self._keys.get((whole.kind, number))
            if part is None:
                part = next((each for each in free if each.kind == whole.kind), None)
                if part is not None:
                    free.remove(part)
            self._complete(part, number, whole)

    def close(self) -> None:
        """Close every part."""
        for part in self.parts:
            self._close(part)

    def _begin(self, kind: PartKind, key: int) -> ContentPart | None:
        if len(self.parts) == PARTS_MAX:
            self._meter.refuse(f"more than {PARTS_MAX} parts in one item")
            return None
        is_spoken = kind in ("text", "refusal")
        number = len(self.parts) if is_spoken else sum(1 for part in self.parts if part.kind == kind)
        part = self._keys[kind, key] = ContentPart(kind, number, self._meter)
        self.parts.append(part)
        return part

    def _complete(self, part: ContentPart | None, key: int, whole: TextPiece) -> None:
        if part is None:
            part = self._begin(whole.kind, key) if whole.text else None
        if part is None:
            return
        if whole.annotations:
            part.annotations = whole.annotations
            for annotation in whole.annotations:
                self._meter.add_raw(annotation)
        if whole.logprobs and not part.logprobs:
            self._weigh(part, whole.logprobs)
        # Minimal upstreams send no text at all at the end; that takes nothing back.
        if whole.text:
            self._mend(part, whole.text)
        self._close(part)

    def _weigh(self, part: ContentPart, logprobs: list[msgspec.Raw]) -> None:
        for token in logprobs:
            self._meter.add_raw(token)
        part.logprobs += logprobs
        part.waiting += logprobs

    def _mend(self, part: ContentPart, whole: str) -> None:
        if not part.content.begins(whole):
            if part.is_closed or part is self.parts[self._live]:
                self.disagrees = self.disagrees or not self.is_same([part.content.text], [whole])
                return
            # Nothing of it went out: the whole text is what the upstream means.
            part.held, part.content = [], PartText(self._meter)
        if len(whole) > part.content.chars and part.is_closed:
            self.disagrees = self.disagrees or not self.is_same([part.content.text], [whole])
            return
        self._pass(part, part.content.extend(whole))

    def _close(self, part: ContentPart) -> None:
        if part.is_closed:
            return
        self._pass(part, part.content.end())
        part.is_closed = True
        while self._live < len(self.parts) and self.parts[self._live].is_closed:
            self._live += 1
            if self._live < len(self.parts):
                self._release(self.parts[self._live])

    def _pass(self, part: ContentPart, text: str) -> None:
        if not text:
            return
        if part is self.parts[self._live]:
            self._send(part, text)
        else:
            part.held.append(text)

    def _release(self, part: ContentPart) -> None:
        held, part.held = "".join(part.held), []
        if held:
            self._send(part, held)


def _stripped(texts: list[str]) -> str:
    return "".join(text.strip() for text in texts)
