"""The ids of stream events: a frame's number, how many characters the client has been shown, and a digest of them.

A process sends deltas before they are journalled, so after a crash its clients have seen more than the journal has.
The repeated answer may be split differently; comparing digests shows whether it is the same.
"""

import re
from zlib import crc32

import msgspec

from treadle.core.errors import ProtocolError
from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    RunEvent,
    TextDelta,
)
from treadle.core.items import AnyItem, CallItem, OpaqueItem

NUMBER_MAX = 2**53
_ID = re.compile(r"([0-9]{1,16})(?:\.([0-9]{1,16})\.([0-9a-f]{8}))?", re.ASCII)

Delta = TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta


class Position(msgspec.Struct, frozen=True):
    """The number of the last frame that a client has; how many characters it was shown up to there, and their digest.

    `chars` is None where the client names the number alone.
    """

    number: int
    chars: int | None = None
    digest: int = 0


class ShownContent:
    """What a client has been shown: how many characters, and a digest of them and of the frames between them.

    Neither depends on the pieces in which the text came.
    """

    __slots__ = ("chars", "digest")

    def __init__(self) -> None:
        self.chars = 0
        self.digest = 0

    def add_text(self, event: Delta) -> None:
        """Count a frame that shows more text. The frames before it determine to which part it belongs."""
        text = event.text
        self.chars += len(text)
        self.digest = crc32(text.encode("utf-8", "surrogatepass"), self.digest)

    def add_frame(self, frame: bytes, event: RunEvent | None = None) -> None:
        """Count any other frame; a call counts with its name, its id and, once complete, its arguments."""
        shown = b"\0"
        if type(event) is ItemDone or (type(event) is ItemAdded and _begins(frame, event.item)):
            item = event.item
            if type(item) is CallItem:
                shown = "\0".join(("", item.name, item.call_id, item.arguments)).encode("utf-8", "surrogatepass")
            elif type(item) is OpaqueItem:
                shown = b"\0" + bytes(item.raw)
        self.digest = crc32(shown, self.digest)


class _Typed(msgspec.Struct):
    type: str = ""


def _begins(frame: bytes, item: AnyItem) -> bool:
    """Return whether a frame begins this item, and is not the delayed end of the item before it.

    Responses holds the end of an item until the next one begins, which itself may wait for the calls before it.
    """
    if type(item) is CallItem:
        return msgspec.json.encode(item.name) in frame
    if type(item) is OpaqueItem:
        return msgspec.json.encode(msgspec.json.decode(item.raw, type=_Typed).type) in frame
    return True


def read_position(text: str) -> Position:
    """Read an id that a frame had, or a plain number.

    Raises: ProtocolError.
    """
    found = _ID.fullmatch(text)
    if found is None or int(found[1]) > NUMBER_MAX:
        message = f"Last-Event-ID must be the id of an event, or a whole number from 0 to {NUMBER_MAX}."
        raise ProtocolError(message, param="Last-Event-ID")
    if found[2] is None:
        return Position(int(found[1]))
    return Position(int(found[1]), int(found[2]), int(found[3], 16))


class FrameNumbers:
    """Numbers the frames of a stream from `first`, and skips those that the client has.

    If it `is_plain` there is nothing to do. After a recovery, a client may have frames that are not known here. Then it
    `is_matching`: frames are skipped until they show what the client was shown, or it `has_diverged`.
    """

    __slots__ = ("_position", "_shown", "_shows_ids", "has_diverged", "is_matching", "is_plain", "number")

    def __init__(self, *, position: Position | None = None, first: int = 1, shows_ids: bool = False) -> None:
        self.number = first
        self._position = position or Position(first - 1)
        self._shows_ids = shows_ids
        self._shown = ShownContent()
        self.is_plain = position is None and not shows_ids
        self.is_matching = self.has_diverged = False

    @property
    def missing(self) -> int:
        """Return how many frames the client has that have not been written here."""
        return max(0, self._position.number + 1 - self.number)

    @property
    def last(self) -> int:
        """Return the number of the last frame that the client has."""
        return max(self._position.number, self.number - 1)

    def recover(self, step: int) -> None:
        """Continue with the frames of a recovered run, whose numbers are higher by `step`."""
        missing = self.missing
        self.number += step
        if missing and not (step and self.missing):
            self.is_matching = True
            self.has_diverged = self._position.chars is None

    def chars_ahead(self) -> int:
        """Return how many characters the client was shown beyond what has been written here."""
        return (self._position.chars or 0) - self._shown.chars

    def join(self) -> None:
        """Count the last frame, which the client has, and the next one, which it does not have, as one frame."""
        self.number -= 1
        self._position = Position(self.number - 1)

    def take(self, frames: list[bytes], event: RunEvent | None = None) -> list[bytes]:
        """Return what is to be sent of the frames of an event."""
        sent: list[bytes] = []
        last = len(frames) - 1
        for place, frame in enumerate(frames):
            if place == last and isinstance(event, Delta) and event.text:
                self._shown.add_text(event)
            else:
                self._shown.add_frame(frame, event if place == last else None)
            number, self.number = self.number, self.number + 1
            if self.is_matching:
                self._compare()
            elif number > self._position.number:
                sent.append(self._named(frame, number))
        return sent

    def _compare(self) -> None:
        """Check whether the client's position is here."""
        shown, position = self._shown, self._position
        assert position.chars is not None, "a client that names a number alone is not compared"
        if shown.chars == position.chars and shown.digest == position.digest:
            self.is_matching = False
            self._position = Position(self.number - 1)
        elif shown.chars > position.chars:
            self.has_diverged = True

    def _named(self, frame: bytes, number: int) -> bytes:
        if not self._shows_ids:
            return frame
        return b"id: %d.%d.%08x\n%b" % (number, self._shown.chars, self._shown.digest, frame)
