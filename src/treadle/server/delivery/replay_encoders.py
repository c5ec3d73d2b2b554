"""Encodes a run's events as response frames, and again from any position: the same run gives the same frames.

Keep-alive frames are not part of the response and have no number.
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
from treadle.protocols.protocol_registry import has_sequence_numbers
from treadle.protocols.stream_deduplication import ReplayDiff, diverged
from treadle.server.delivery.stream_event_ids import Delta, FrameNumbers

WAITING = frozenset({RunEnded})
"""Events that `try_encode_now` leaves to the reader, which has to see the end of the run."""

_MARKS = frozenset({RunRecovered, RoundBroken, KeptAlive, RunEnded})
"""Events that need more than encoding."""

_ENCODED = frozenset({RoundStarted, ItemAdded, ItemDone, ToolStarted, ToolFinished, *DELTAS})
"""Events that only the encoder handles."""

_event_of = attrgetter("event")

EventFilter = Callable[[RunEvent], list[RunEvent]]


def kinds_of(batch: list[Numbered]) -> Iterable[type[RunEvent]]:
    """Return the types of a batch's events."""
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
    """Ids derived from the run's id, so that encoding the run again gives the same ids."""


class ResponseWriter(Protocol):
    """Encodes the events of a source as a response."""

    @property
    def ended(self) -> RunEnded | None:
        """Return the end of the response, once it has been encoded."""
        ...

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Return the frames to send for an event."""
        ...

    def encode(self, batch: list[Numbered]) -> list[bytes]:
        """Return the frames to send for events, in order."""
        ...

    def try_encode_now(self, batch: list[Numbered]) -> list[bytes] | None:
        """Return the frames to send for events; None, without encoding any, if one of them has to wait."""
        ...

    def body(self) -> bytes:
        """Return the whole answer, once it has ended."""
        ...


class RunWriter:
    """Encodes one run; `event_filter` replaces its events by others.

    `step` is how far frame numbers increase when the run is recovered.
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
            return [frame for each in self._event_filter(event) for frame in self._encode_event(each)]
        if type(event) in _ENCODED and self._frames.is_plain and self.ended is None:
            return self._encoder.feed(event)
        return self._encode_event(event)

    def encode(self, batch: list[Numbered]) -> list[bytes]:
        """Return the frames to send for events; deltas take the shortest path."""
        sent: list[bytes] = []
        write = self._encoder.feed
        is_straight = self._frames.is_plain and self._event_filter is None and self.ended is None
        for numbered in batch:
            sent += write(numbered.event) if is_straight and type(numbered.event) in DELTAS else self.feed(numbered)
        return sent

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
        """Handle an event after which frames may be missing."""
        if type(event) is RunStarted:
            self._run_id = event.run_id
        elif type(event) is RunRecovered:
            self._is_numbered = True
            if self._step:
                # Without a step, clients were shown only what the journal has, and their numbers stay valid.
                self._recover(self._step)
        elif (
            type(event) is RoundBroken and not (self._is_numbered or self._frames.is_matching) and self._frames.missing
        ):
            # The journal of an older Treadle has no event for a recovery.
            self._recover(0)

    def _recover(self, step: int) -> None:
        self._frames.recover(step)
        if isinstance(self._encoder, NumberedEncoder):
            self._encoder.leap(step)

    def _write_rest(self, event: RunEvent) -> list[bytes]:
        """Return the part of an event that the client was not shown, while its position is being matched."""
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
        """Return the frames of an end that is not the run's own; they repeat the last number."""
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
        """Return an empty event of the protocol; frames that must come before it are part of the response."""
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
    """Encodes a run as a stream in which a repeated model call does not repeat what was sent.

    If the repeated call answers differently, the protocol `closes` the items that were cut off, or the stream ends.
    The events of a round are stored until the next one, because the deduplicator is created only after a break.
    """

    __slots__ = ("_closes", "_deduplicator", "_is_direct", "_sent")

    def __init__(
        self, encoder: Encoder, frames: FrameNumbers | None = None, *, closes: bool = False, step: int = NUMBER_STEP
    ) -> None:
        super().__init__(encoder, frames=frames, step=step)
        self._closes = closes
        self._sent: list[RunEvent] = []
        self._deduplicator: ReplayDiff | None = None
        # Whether events go to the encoder unchanged: nothing is omitted, numbered or deduplicated.
        self._is_direct = self._frames.is_plain

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Return the frames to send for an event; after a break only those with new content."""
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
        """Return the frames to send for events; deltas of a direct stream go straight to the encoder."""
        sent: list[bytes] = []
        for numbered in batch:
            event = numbered.event
            if self._is_direct and type(event) in DELTAS:
                self._sent.append(event)
                sent += self._encoder.feed(event)
            else:
                sent += self.feed(numbered)
        return sent

    def try_encode_now(self, batch: list[Numbered]) -> list[bytes] | None:
        """Return the frames to send for events, unless one of them has to wait; most batches are a single delta."""
        if len(batch) == 1 and type(event := batch[0].event) in DELTAS and self._is_direct:
            self._sent.append(event)
            return self._encoder.feed(event)
        return super().try_encode_now(batch)

    def _start_deduplication(self) -> ReplayDiff:
        """Return the deduplicator, created with all that was sent of the round."""
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
    """Return a writer that can start at any position of the run.

    Clients of a background response are shown only what the journal has, so their numbers have no gap on recovery.
    """
    is_closed = has_sequence_numbers(request.protocol)
    return AppendOnlyWriter(encoder, frames, closes=is_closed, step=0 if request.background else NUMBER_STEP)


class FoldedWriter(msgspec.Struct, eq=False):
    """Encodes a run in one piece at its end; rounds that were cut off are omitted, because no client saw them."""

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
    """Return the events that count: no rounds that were cut off, and no deltas of complete items."""
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
    """Remove the rounds that were cut off."""
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
    """Remove the item's contiguous deltas: the finished item contains them."""
    while standing:
        piece = standing[-1]
        if type(piece) is TextDelta:
            if piece.index != index or piece.logprobs or piece.extra:
                return
        elif type(piece) is not ArgumentsDelta or piece.index != index:
            return
        standing.pop()
