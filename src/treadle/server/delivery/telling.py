"""Runs told to their clients by an encoder, and told again from any place: the same run gives the same frames.

A cursor is a count of frames. Frames that only keep a connection alive are no part of the telling and not counted.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

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

Retell = Callable[[RunEvent], list[RunEvent]]
_PIECES = (TextDelta, ArgumentsDelta)
Pin = Callable[[int, int], Awaitable[int]]
"""Remembers for an event which number the frame after it has, unless that is known already; returns what stands."""


@runtime_checkable
class Renumbered(Protocol):
    """An encoder whose frames carry their own numbers."""

    def renumber(self, number: int) -> None:
        """Give the next frame that number."""
        ...


class RunIds:
    """Ids drawn from the run's own, so that whoever tells the run again draws the same ones."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._count = 0

    def new(self, prefix: str) -> str:
        """Return the next id."""
        self._count += 1
        digest = hashlib.sha256(f"{self._run_id}:{self._count}".encode()).hexdigest()
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

    def body(self) -> bytes:
        """Return the whole answer, once it has ended."""
        ...


class Frames:
    """Counts frames: leaves out those that the client has, and numbers the others if it wants that.

    Where it `is_plain` there is nothing to do but to count.
    """

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

    def __init__(self, encoder: Encoder, frames: Frames | None = None) -> None:
        super().__init__(encoder, frames=frames)
        self._told: list[RunEvent] = []
        self._mend: Mend | None = None

    async def meet_break(self, numbered: Numbered) -> list[bytes]:
        """End the telling if the client has seen more of the broken part than is known here."""
        if not self._frames.missing or self.ended is not None:
            return []
        self._frames = Frames()
        return self._tell(diverged(self._mended().run_id))

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Return the frames to send for an event; after a break only what the client has not been told yet."""
        event = numbered.event
        if type(event) in DELTAS and self._mend is None and self._frames.is_plain:
            # What happens most: nothing is left out, and no number is asked for.
            self._told.append(event)
            return self._encoder.feed(event)
        if type(event) is RoundBroken:
            self._mended()
        elif self._mend is None:
            if type(event) is RoundStarted:
                # The start of the run stays.
                del self._told[1:]
            self._told.append(event)
        return super().feed(numbered)

    def _mended(self) -> Mend:
        """Return what mends the run, which knows all that was told."""
        if self._mend is None:
            self._mend = Mend()
            for event in self._told:
                self._mend.feed(event)
            self._told = []
            self._retell = self._mend.feed
        return self._mend


class FoldedRun:
    """Tells a run in one piece, at its end: what was broken off is left out, since nobody has seen it."""

    def __init__(self, new_encoder: Callable[[], Encoder]) -> None:
        self._new_encoder = new_encoder
        self._events: list[RunEvent] = []
        self._round_at = 0
        self.ended: RunEnded | None = None

    async def meet_break(self, numbered: Numbered) -> list[bytes]:
        """Have nothing to prepare."""
        return []

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Take an event; there is nothing to send."""
        event = numbered.event
        if type(event) is RoundBroken:
            del self._events[self._round_at :]
            return []
        if type(event) is RoundStarted:
            self._round_at = len(self._events)
        elif type(event) is ItemDone:
            self._forget_pieces(event.index)
        elif type(event) is RunEnded:
            self.ended = event
        self._events.append(event)
        return []

    def body(self) -> bytes:
        """Return the whole answer, once the run has ended."""
        encoder = self._new_encoder()
        for event in self._events:
            encoder.feed(event)
        return encoder.body()

    def _forget_pieces(self, index: int) -> None:
        """Leave out the pieces of a text or of arguments that nothing came between: the item has them all."""
        events = self._events
        while events:
            piece = events[-1]
            if not isinstance(piece, _PIECES) or piece.index != index:
                return
            if type(piece) is TextDelta and (piece.logprobs or piece.extra):
                return
            events.pop()


class NumberedRun(OneRun):
    """Tells a run by an encoder that numbers its frames itself, from 0.

    What was told just before a crash may be known to the client alone. So the frames after the break are numbered
    from where the first client stood that came back, and `pin` remembers that for all others.
    """

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
