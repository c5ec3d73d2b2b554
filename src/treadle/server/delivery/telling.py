"""Runs told to their clients by an encoder, and told again from any place: the same run gives the same frames.

A cursor is a count of frames. Frames that only keep a connection alive are no part of the telling and not counted.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterable
from operator import attrgetter
from typing import Protocol, runtime_checkable

import msgspec

from treadle.canon.events import (
    DELTAS,
    ArgumentsDelta,
    ItemDone,
    KeptAlive,
    Numbered,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    TextDelta,
)
from treadle.wire.codec import Encoder
from treadle.wire.resume import Mend, diverged

WAITING = frozenset({RoundBroken, RunEnded})
"""Events that are not told without waiting: for what the store knows, or for the end to be taken."""

_MARKS = frozenset({RoundBroken, KeptAlive, RunEnded})
"""Events that are more than written."""

_event_of = attrgetter("event")

Retell = Callable[[RunEvent], list[RunEvent]]
Pin = Callable[[int, int], Awaitable[int]]
"""Remembers for an event which number the frame after it has, unless that is known already; returns what stands."""


def kinds_of(batch: list[Numbered]) -> Iterable[type[RunEvent]]:
    """Return of what kind the events of a batch are."""
    return map(type, map(_event_of, batch))


@runtime_checkable
class Renumbered(Protocol):
    """An encoder whose frames carry their own numbers."""

    def renumber(self, number: int) -> None:
        """Give the next frame that number."""
        ...


class RunIds(msgspec.Struct):
    """Ids drawn from the run's own, so that whoever tells the run again draws the same ones."""

    run_id: str
    count: int = 0

    def new(self, prefix: str) -> str:
        """Return the next id."""
        self.count += 1
        digest = hashlib.sha256(f"{self.run_id}:{self.count}".encode()).hexdigest()
        return f"{prefix}_{digest[:24]}"


class Telling(Protocol):
    """Writes what a source says."""

    @property
    def ended(self) -> RunEnded | None:
        """Return how it ended, once it has."""
        ...

    async def meet_break(self, numbered: Numbered) -> list[bytes]:
        """Prepare for an event that says that a part of the answer is told again, which is fed next."""
        ...

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Return the frames to send for an event."""
        ...

    def tell(self, batch: list[Numbered]) -> list[bytes]:
        """Return the frames to send for events, in order."""
        ...

    def hear(self, batch: list[Numbered]) -> list[bytes] | None:
        """Return the frames to send for events; None, and nothing is told, where one of them has to wait."""
        ...

    def body(self) -> bytes:
        """Return the whole answer, once it has ended."""
        ...


class Frames:
    """Counts frames: leaves out those that the client has, and numbers the others if it wants that.

    Where it `is_plain` there is nothing to do but to count.
    """

    __slots__ = ("_after", "_first", "_shows_numbers", "count", "is_plain")

    def __init__(self, *, after: int = 0, first: int = 1, shows_numbers: bool = False) -> None:
        self.count = 0
        self._after = after
        self._first = first
        self._shows_numbers = shows_numbers
        self.is_plain = not (after or shows_numbers)

    @property
    def missing(self) -> int:
        """Return how many frames the client has that have not been told here."""
        return max(0, self._after - self.count)

    def take(self, frames: list[bytes]) -> list[bytes]:
        """Return what of the frames is to be sent."""
        before, self.count = self.count, self.count + len(frames)
        if before < self._after:
            frames = frames[self._after - before :]
        if not self._shows_numbers:
            return frames
        number = self.count - len(frames) + self._first
        return [b"id: %d\n" % each + frame for each, frame in enumerate(frames, number)]


class OneRun:
    """Tells a run by its encoder; `retell` puts other events in the place of the run's own."""

    __slots__ = ("_encoder", "_frames", "_retell", "ended")

    def __init__(self, encoder: Encoder, retell: Retell | None = None, frames: Frames | None = None) -> None:
        self._encoder = encoder
        self._retell = retell
        self._frames = frames or Frames()
        self.ended: RunEnded | None = None

    async def meet_break(self, numbered: Numbered) -> list[bytes]:
        """Have nothing to prepare."""
        return []

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Return the frames to send for an event; none after the end."""
        event = numbered.event
        if type(event) is KeptAlive:
            return self._keep_alive(event)
        if self._retell is not None:
            return [frame for told in self._retell(event) for frame in self._tell(told)]
        if self.ended is not None:
            return []
        if type(event) is RunEnded:
            self.ended = event
        frames = self._encoder.feed(event)
        if not self._frames.is_plain:
            return self._frames.take(frames)
        self._frames.count += len(frames)
        return frames

    def tell(self, batch: list[Numbered]) -> list[bytes]:
        """Return the frames to send for events; what happens most is only written and counted."""
        told: list[bytes] = []
        counted, write = self._frames, self._encoder.feed
        is_straight = counted.is_plain and self._retell is None and self.ended is None
        for numbered in batch:
            if is_straight and type(numbered.event) in DELTAS:
                frames = write(numbered.event)
                counted.count += len(frames)
                told += frames
            else:
                told += self.feed(numbered)
        return told

    def hear(self, batch: list[Numbered]) -> list[bytes] | None:
        """Return the frames to send for events, unless one of them has to wait."""
        return self.tell(batch) if WAITING.isdisjoint(kinds_of(batch)) else None

    def body(self) -> bytes:
        """Return the whole answer, once the run has ended."""
        return self._encoder.body()

    def _tell(self, event: RunEvent) -> list[bytes]:
        if self.ended is not None:
            return []
        if type(event) is RunEnded:
            self.ended = event
        return self._frames.take(self._encoder.feed(event))

    def _keep_alive(self, event: KeptAlive) -> list[bytes]:
        """Return an empty event of the protocol; what has to come before it is a part of the telling."""
        if self._frames.missing:
            return []
        frames = self._encoder.feed(event)
        return [*self._frames.take(frames[:-1]), *frames[-1:]]


class MendedRun(OneRun):
    """Tells a run to a client whose protocol cannot take anything back, as a stream.

    What was told of a round is kept until the next one: most runs never break, and need no more than that.
    """

    __slots__ = ("_is_straight", "_mend", "_told")

    def __init__(self, encoder: Encoder, frames: Frames | None = None) -> None:
        super().__init__(encoder, frames=frames)
        self._told: list[RunEvent] = []
        self._mend: Mend | None = None
        # Whether what is told is only written: nothing is left out of it, numbered or told again.
        self._is_straight = self._frames.is_plain

    async def meet_break(self, numbered: Numbered) -> list[bytes]:
        """End the telling if the client has seen more of the broken part than is known here."""
        if not self._frames.missing or self.ended is not None:
            return []
        self._frames = Frames()
        return self._tell(diverged(self._mended().run_id))

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Return the frames to send for an event; after a break only what the client has not been told yet."""
        event = numbered.event
        kind = type(event)
        if kind is RoundStarted:
            # The start of the run stays.
            del self._told[1:]
        if self._is_straight and kind not in _MARKS:
            self._told.append(event)
            return self._encoder.feed(event)
        if kind is RoundBroken:
            self._mended()
        elif self._mend is None:
            self._told.append(event)
            self._is_straight &= kind is not RunEnded
        return super().feed(numbered)

    def tell(self, batch: list[Numbered]) -> list[bytes]:
        """Return the frames to send for events; of what happens most nothing is left out, and no number is asked."""
        told: list[bytes] = []
        for numbered in batch:
            event = numbered.event
            if self._is_straight and type(event) in DELTAS:
                self._told.append(event)
                told += self._encoder.feed(event)
            else:
                told += self.feed(numbered)
        return told

    def hear(self, batch: list[Numbered]) -> list[bytes] | None:
        """Return the frames to send for events, unless one of them has to wait; most are pieces that come alone."""
        if len(batch) == 1 and type(event := batch[0].event) in DELTAS and self._is_straight:
            self._told.append(event)
            return self._encoder.feed(event)
        return super().hear(batch)

    def _mended(self) -> Mend:
        """Return what mends the run, which knows all that was told."""
        if self._mend is None:
            self._mend = Mend()
            for event in self._told:
                self._mend.feed(event)
            self._told = []
            self._retell = self._mend.feed
            self._is_straight = False
        return self._mend


class FoldedRun(msgspec.Struct, eq=False):
    """Tells a run in one piece, at its end: what was broken off is left out, since nobody has seen it."""

    new_encoder: Callable[[], Encoder]
    events: list[RunEvent] = []
    ended: RunEnded | None = None

    async def meet_break(self, numbered: Numbered) -> list[bytes]:
        """Have nothing to prepare."""
        return []

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Take an event; there is nothing to send."""
        return self.tell([numbered])

    def tell(self, batch: list[Numbered]) -> list[bytes]:
        """Take events, of which the end is the last; there is nothing to send."""
        self.events += map(_event_of, batch)
        if self.events and type(last := self.events[-1]) is RunEnded:
            self.ended = last
        return []

    def hear(self, batch: list[Numbered]) -> list[bytes] | None:
        """Take events, unless the end is among them."""
        if batch and type(batch[-1].event) is RunEnded:
            return None
        self.events += map(_event_of, batch)
        return []

    def body(self) -> bytes:
        """Return the whole answer, once the run has ended."""
        encoder = self.new_encoder()
        for event in _standing(self.events):
            encoder.feed(event)
        return encoder.body()


def _standing(events: list[RunEvent]) -> list[RunEvent]:
    """Return what stands of a run: nothing of what was broken off, and no pieces of what is whole."""
    kinds = [*map(type, events)]
    if RoundBroken in kinds:
        events = _unbroken(events)
        kinds = [*map(type, events)]
    standing: list[RunEvent] = []
    start = 0
    for _ in range(kinds.count(ItemDone)):
        at = kinds.index(ItemDone, start)
        standing += events[start:at]
        done = events[at]
        assert type(done) is ItemDone
        _forget_pieces(standing, done.index)
        standing.append(done)
        start = at + 1
    return standing + events[start:]


def _unbroken(events: list[RunEvent]) -> list[RunEvent]:
    """Leave out the rounds that were broken off."""
    standing: list[RunEvent] = []
    round_at = 0
    for event in events:
        if type(event) is RoundBroken:
            del standing[round_at:]
            continue
        if type(event) is RoundStarted:
            round_at = len(standing)
        standing.append(event)
    return standing


def _forget_pieces(standing: list[RunEvent], index: int) -> None:
    """Leave out the pieces of a text or of arguments that nothing came between: the item has them all."""
    while standing:
        piece = standing[-1]
        if type(piece) is TextDelta:
            if piece.index != index or piece.logprobs or piece.extra:
                return
        elif type(piece) is not ArgumentsDelta or piece.index != index:
            return
        standing.pop()


class NumberedRun(OneRun):
    """Tells a run by an encoder that numbers its frames itself, from 0.

    What was told just before a crash may be known to the client alone. So the frames after the break are numbered
    from where the first client stood that came back, and `pin` remembers that for all others.
    """

    __slots__ = ("_pin",)

    def __init__(
        self, encoder: Encoder, *, pin: Pin | None = None, retell: Retell | None = None, frames: Frames | None = None
    ) -> None:
        super().__init__(encoder, retell, frames)
        self._pin = pin

    async def meet_break(self, numbered: Numbered) -> list[bytes]:
        """Find out which number the next frame has; an answer in one piece has none, and says nothing about it."""
        told = self._frames.count + self._frames.missing
        if not told or self._pin is None or not numbered.seq or not isinstance(self._encoder, Renumbered):
            return []
        number = await self._pin(numbered.seq, told)
        self._encoder.renumber(number)
        self._frames.count = number
        return []
