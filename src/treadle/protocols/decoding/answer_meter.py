"""The limits of one answer and the count of what it holds, with the constants that decoders and encoders share."""

import msgspec

from treadle.core.events import Stop

NOTES_MAX = 64
SEQUENCE_BYTES_MAX = 1_024
CUTS: frozenset[Stop] = frozenset({"length", "filtered"})
"""Stops that cut an answer short: a call that is incomplete by then stays incomplete."""

UNNAMED = "unnamed"
"""The name given to a call whose own name the provider could not read."""

STOPPED_BY = "stop_sequence"
"""The code of the note that names the stop sequence which ended an answer: its message is that sequence."""


class AnswerBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much one answer may hold."""

    text_bytes_max: int
    arguments_bytes_max: int


class AnswerMeter(msgspec.Struct, gc=False):
    """Counts the bytes of one answer. It `is_over` once a bound is exceeded or the answer is damaged.

    `overflow` describes the bound that was exceeded, `damage` how the answer contradicts itself.
    """

    bytes_max: int
    bytes_held: int = 0
    is_over: bool = False
    refused: str | None = None
    damage: str | None = None

    @property
    def overflow(self) -> str | None:
        """Describe the bound that was exceeded."""
        return f"the answer is over {self.bytes_max} bytes" if self.bytes_held > self.bytes_max else self.refused

    def refuse(self, what: str) -> None:
        """Record that a bound other than the byte count was exceeded."""
        self.refused = what
        self.is_over = True

    def mark_damaged(self, what: str) -> None:
        """Record that part of the answer was lost or garbled; the first damage is the one reported."""
        self.damage = self.damage or what
        self.is_over = True

    def add(self, text: str) -> None:
        """Count a text."""
        self.bytes_held += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if self.bytes_held > self.bytes_max:
            self.is_over = True

    def add_raw(self, raw: msgspec.Raw) -> None:
        """Count raw JSON."""
        self.add_bytes(len(memoryview(raw)))

    def add_bytes(self, size: int) -> None:
        """Count bytes that were measured before."""
        self.bytes_held += size
        if self.bytes_held > self.bytes_max:
            self.is_over = True
