"""Runs told to their clients by an encoder, and told again from any place: the same run gives the same frames.

Frames that only keep a connection alive are no part of the writer and have no number.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Protocol, runtime_checkable

import msgspec

from treadle.core.events import (
    DELTAS,
    NUMBER_STEP,
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    KeptAlive,
    Numbered,
    RefusalDelta,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunRecovered,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.ids import SeededIds
from treadle.core.request import Request
from treadle.protocols.codec_interfaces import Encoder
from treadle.protocols.stream_deduplication import ReplayDiff, diverged
from treadle.server.delivery.stream_event_ids import Delta, FrameNumbers

WAITING = frozenset({RunEnded})
"""Events that are not told without waiting, for the end to be taken."""

_MARKS = frozenset({RunRecovered, RoundBroken, KeptAlive, RunEnded})
"""Events that are more than written."""

_ENCODED = frozenset({RoundStarted, ItemAdded, ItemDone, ToolStarted, ToolFinished, *DELTAS})
"""Events of which nothing but the encoder knows."""

_event_of = attrgetter("event")

EventFilter = Callable[[RunEvent], list[RunEvent]]


def kinds_of(batch: list[Numbered]) -> Iterable[type[RunEvent]]:
    """Return of what kind the events of a batch are."""
    return map(type, map(_event_of, batch))


@runtime_checkable
class NumberedEncoder(Protocol):
    """An encoder whose frames carry their own numbers."""

    @property
    def number(self) -> int:
        """Return the number of the next frame."""
        ...

    def leap(self, step: int) -> None:
        """Raise the number of the next frame."""
        ...

    def hold(self, number: int) -> None:
        """Give all further frames that number."""
        ...


class RunIds(SeededIds):
    """Ids drawn from the run's own, so that whoever tells the run again draws the same ones."""


class ResponseWriter(Protocol):
    """Writes what a source says."""

    @property
    def ended(self) -> RunEnded | None:
        """Return how it ended, once it has."""
        ...

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Return the frames to send for an event."""
        ...

    def encode(self, batch: list[Numbered]) -> list[bytes]:
        """Return the frames to send for events, in order."""
        ...

    def try_encode_now(self, batch: list[Numbered]) -> list[bytes] | None:
        """Return the frames to send for events; None, and nothing is told, where one of them has to wait."""
        ...

    def body(self) -> bytes:
        """Return the whole answer, once it has ended."""
        ...


class RunWriter:
    """Tells a run by its encoder; `event_filter` puts other events in the place of the run's own.

    `step` is how far the numbers of frames leap when the run is recovered.
    """

    __slots__ = ("_encoder", "_event_filter", "_frames", "_is_numbered", "_run_id", "_step", "ended")

    def __init__(
        self,
        encoder: Encoder,
        event_filter: EventFilter | None = None,
        frames: FrameNumbers | None = None,
        *,
        step: int = NUMBER_STEP,
    ) -> None:
        self._encoder = encoder
        self._frames = frames or FrameNumbers()
        self._event_filter = event_filter
        self._run_id = ""
        self._step = step
        self._is_numbered = False
        self.ended: RunEnded | None = None

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Return the frames to send for an event; none after the end."""
        event = numbered.event
        if type(event) is KeptAlive:
            return self._keep_alive(event)
        if not numbered.stands:
            return self._end_early(event)
        if self._event_filter is not None:
            return [frame for told in self._event_filter(event) for frame in self._encode_event(told)]
        if type(event) in _ENCODED and self._frames.is_plain and self.ended is None:
            return self._encoder.feed(event)
        return self._encode_event(event)

    def encode(self, batch: list[Numbered]) -> list[bytes]:
        """Return the frames to send for events; what happens most is only written."""
        told: list[bytes] = []
        write = self._encoder.feed
        is_straight = self._frames.is_plain and self._event_filter is None and self.ended is None
        for numbered in batch:
            told += write(numbered.event) if is_straight and type(numbered.event) in DELTAS else self.feed(numbered)
        return told

    def try_encode_now(self, batch: list[Numbered]) -> list[bytes] | None:
        """Return the frames to send for events, unless one of them has to wait."""
        return self.encode(batch) if WAITING.isdisjoint(kinds_of(batch)) else None

    def body(self) -> bytes:
        """Return the whole answer, once the run has ended."""
        return self._encoder.body()

    def _encode_event(self, event: RunEvent) -> list[bytes]:
        if self.ended is not None:
            return []
        frames = self._frames
        if type(event) not in _ENCODED:
            self._note_gap(event)
            if frames.has_diverged:
                return self._diverge()
        if type(event) is RunEnded:
            if frames.is_matching:
                return self._end_early(event) if event.status in ("failed", "cancelled") else self._diverge()
            self.ended = event
        if frames.is_matching:
            sent = self._write_rest(event)
        else:
            written = self._encoder.feed(event)
            sent = frames.take(written, event)
            if type(event) is RunEnded and frames.missing and event.status in ("failed", "cancelled"):
                sent = written  # the client names frames that this run never had, and must not take it for a success
        return self._diverge() if frames.has_diverged else sent

    def _note_gap(self, event: RunEvent) -> None:
        """Prepare for an event that says where frames may be lost."""
        if type(event) is RunStarted:
            self._run_id = event.run_id
        elif type(event) is RunRecovered:
            self._is_numbered = True
            if self._step:
                # Else clients were shown only what the journal has, and their numbers are still true.
                self._recover(self._step)
        elif (
            type(event) is RoundBroken and not (self._is_numbered or self._frames.is_matching) and self._frames.missing
        ):
            # The journal of an older Treadle does not say that a run was recovered.
            self._recover(0)

    def _recover(self, step: int) -> None:
        self._frames.recover(step)
        if isinstance(self._encoder, NumberedEncoder):
            self._encoder.leap(step)

    def _write_rest(self, event: RunEvent) -> list[bytes]:
        """Return what of an event the client was not shown, while its place is looked for."""
        frames, write = self._frames, self._encoder.feed
        room = frames.chars_ahead()
        if not isinstance(event, Delta) or not 0 < room < len(event.text):
            return frames.take(write(event), event)
        known = _piece(event, event.text[:room])
        written = write(known)
        frames.take(written, known)
        if written and not frames.is_matching:
            frames.join()
            if isinstance(self._encoder, NumberedEncoder):
                self._encoder.leap(-1)
        rest = _piece(event, event.text[room:])
        return frames.take(write(rest), rest)

    def _diverge(self) -> list[bytes]:
        return self._end_early(diverged(self._run_id))

    def _end_early(self, event: RunEvent) -> list[bytes]:
        """Return the frames of an end that is not the run's: they have no number of their own."""
        if self.ended is not None:
            return []
        assert type(event) is RunEnded, "only an end can be none of the run's"
        self.ended = event
        frames, self._frames = self._frames, FrameNumbers()
        if isinstance(self._encoder, NumberedEncoder):
            last = self._encoder.number - 1 if frames.is_plain else frames.last
            self._encoder.hold(max(0, last))
        return self._encoder.feed(event)

    def _keep_alive(self, event: KeptAlive) -> list[bytes]:
        """Return an empty event of the protocol; what has to come before it is a part of the writer."""
        if self._frames.missing or self._frames.is_matching:
            return []
        frames = self._encoder.feed(event)
        return [*self._frames.take(frames[:-1]), *frames[-1:]]


def _piece(event: Delta, text: str) -> Delta:
    """Return a piece of an event's text; the tokens of all of it are not those of a piece."""
    if isinstance(event, TextDelta | RefusalDelta):
        return msgspec.structs.replace(event, text=text, logprobs=None)
    return msgspec.structs.replace(event, text=text)


class AppendOnlyWriter(RunWriter):
    """Tells a run as a stream: what a repeated model call says again is told once.

    Where the protocol `closes` items that were broken off, it does so if the model answers differently; else the
    stream ends. What was told of a round is kept until the next one: most runs never break, and need no more than that.
    """

    __slots__ = ("_closes", "_deduplicator", "_is_direct", "_sent")

    def __init__(
        self, encoder: Encoder, frames: FrameNumbers | None = None, *, closes: bool = False, step: int = NUMBER_STEP
    ) -> None:
        super().__init__(encoder, frames=frames, step=step)
        self._closes = closes
        self._sent: list[RunEvent] = []
        self._deduplicator: ReplayDiff | None = None
        # Whether what is told is only written: nothing is left out of it, numbered or told again.
        self._is_direct = self._frames.is_plain

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Return the frames to send for an event; after a break only what the client has not been told yet."""
        event = numbered.event
        kind = type(event)
        if kind is RoundStarted and self._deduplicator is None:
            # The start of the run stays.
            del self._sent[1:]
        if self._is_direct and kind not in _MARKS:
            self._sent.append(event)
            return self._encoder.feed(event)
        if kind is RoundBroken:
            self._start_deduplication()
        elif self._deduplicator is None and numbered.stands:
            self._sent.append(event)
            self._is_direct &= kind is not RunEnded
        return super().feed(numbered)

    def encode(self, batch: list[Numbered]) -> list[bytes]:
        """Return the frames to send for events; of what happens most nothing is left out, and no number is asked."""
        told: list[bytes] = []
        for numbered in batch:
            event = numbered.event
            if self._is_direct and type(event) in DELTAS:
                self._sent.append(event)
                told += self._encoder.feed(event)
            else:
                told += self.feed(numbered)
        return told

    def try_encode_now(self, batch: list[Numbered]) -> list[bytes] | None:
        """Return the frames to send for events, unless one of them has to wait; most are pieces that come alone."""
        if len(batch) == 1 and type(event := batch[0].event) in DELTAS and self._is_direct:
            self._sent.append(event)
            return self._encoder.feed(event)
        return super().try_encode_now(batch)

    def _start_deduplication(self) -> ReplayDiff:
        """Return what mends the run, which knows all that was told."""
        if self._deduplicator is None:
            self._deduplicator = ReplayDiff(closes=self._closes)
            for event in self._sent:
                self._deduplicator.feed(event)
                if type(event) is RunStarted:
                    self._run_id = event.run_id
            self._sent = []
            self._event_filter = self._deduplicator.feed
            self._is_direct = False
        return self._deduplicator


def resumable_writer(request: Request, encoder: Encoder, frames: FrameNumbers | None = None) -> AppendOnlyWriter:
    """Return what tells a run as its protocol does, from any place in it.

    Clients of an answer in the background are shown only what the journal has, so their numbers need not leap.
    """
    is_closed = request.protocol == "responses"
    return AppendOnlyWriter(encoder, frames, closes=is_closed, step=0 if request.background else NUMBER_STEP)


class FoldedWriter(msgspec.Struct, eq=False):
    """Tells a run in one piece, at its end: what was broken off is left out, since nobody has seen it."""

    new_encoder: Callable[[], Encoder]
    events: list[RunEvent] = []
    ended: RunEnded | None = None

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Take an event; there is nothing to send."""
        return self.encode([numbered])

    def encode(self, batch: list[Numbered]) -> list[bytes]:
        """Take events, of which the end is the last; there is nothing to send."""
        self.events += map(_event_of, batch)
        if self.events and type(last := self.events[-1]) is RunEnded:
            self.ended = last
        return []

    def try_encode_now(self, batch: list[Numbered]) -> list[bytes] | None:
        """Take events, unless the end is among them."""
        if batch and type(batch[-1].event) is RunEnded:
            return None
        self.events += map(_event_of, batch)
        return []

    def body(self) -> bytes:
        """Return the whole answer, once the run has ended."""
        encoder = self.new_encoder()
        for event in _final_events(self.events):
            encoder.feed(event)
        return encoder.body()


def _final_events(events: list[RunEvent]) -> list[RunEvent]:
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
        _drop_deltas(standing, done.index)
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


def _drop_deltas(standing: list[RunEvent], index: int) -> None:
    """Leave out the pieces of a text or of arguments that nothing came between: the item has them all."""
    while standing:
        piece = standing[-1]
        if type(piece) is TextDelta:
            if piece.index != index or piece.logprobs or piece.extra:
                return
        elif type(piece) is not ArgumentsDelta or piece.index != index:
            return
        standing.pop()
