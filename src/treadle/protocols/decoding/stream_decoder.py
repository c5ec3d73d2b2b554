"""The base of all decoders: bytes become frames, frames go to one assembly, and one terminal event ends the answer.

A protocol defines what a frame means, what a whole document means, and how an answer is judged at its end.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from treadle.core.errors import BrokenStream, ErrorInfo
from treadle.core.events import Failed, Finished, ModelEvent, TextDelta
from treadle.core.ids import IdSource
from treadle.protocols.decoding.answer_meter import AnswerBounds
from treadle.protocols.decoding.framing import Intake, too_large
from treadle.protocols.decoding.item_builder import ItemBuilder
from treadle.protocols.decoding.item_drafts import BlobFactory
from treadle.protocols.decoding.keepalive_frames import is_keep_alive
from treadle.protocols.sse import LINE_BYTES_MAX, SseFrame

DONE = "[DONE]"
"""How a Chat stream ends; gateways that translate from Chat send it in other protocols too."""


Assembly = TypeVar("Assembly", bound=ItemBuilder)

Take = Callable[[str], bool]
"""Takes the next piece of a text if later stages pass it on unchanged, and returns whether they do."""

Flow = Callable[[bytes], TextDelta | None]
"""Decodes a read that is nothing but the next piece of a text; any other has to be fed."""


class AnswerDecoder(ABC, Generic[Assembly]):
    """Turns the answer of one model call into events; nothing that a provider sends raises."""

    assembly_class: type[Assembly]
    _terminal: Finished | Failed | None = None
    _damage_after_end: tuple[str, tuple[int, ...]] | None = None

    def __init__(
        self,
        ids: IdSource,
        *,
        provider: str = "",
        model: str = "",
        arguments_bytes_max: int = 262_144,
        text_bytes_max: int = 16 * 1024 * 1024,
        taken_call_ids: frozenset[str] = frozenset(),
    ) -> None:
        bounds = AnswerBounds(text_bytes_max=text_bytes_max, arguments_bytes_max=arguments_bytes_max)
        blobs = BlobFactory(provider=provider, model=model)
        self._assembly = self.assembly_class(ids, bounds, blobs, taken_call_ids)
        # An answer may come in one line, or in one document.
        self._intake = Intake(max(LINE_BYTES_MAX, text_bytes_max))

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these bytes complete."""
        if self._terminal is not None:
            return []
        reader = self._intake.reader
        self._read_frames(self._intake.feed(data) if reader is None else reader.feed(data))
        if (reader is None or reader.overflowed) and self._terminal is None and self._intake.failure is not None:
            self._fail(self._intake.failure)
        events, self._assembly.events = self._assembly.events, []
        return events

    def flow(self, take: Take | None) -> Flow | None:
        """Return the fast path for the next reads while a text continues; None where there is none."""
        return None

    def finish(self) -> list[ModelEvent]:
        """Return what the end of the bytes makes of them."""
        if self._terminal is not None:
            return []
        frames = self._intake.finish()
        if self._intake.is_document:
            if frames[0].damage:
                self._damage(frames[0].damage)
            else:
                self._read_document(frames[0].data)
            self._check_bounds()
        else:
            self._read_frames(frames)
        if self._terminal is None:
            self._end(is_explicit=self._intake.is_document)
        return self._assembly.take()

    def _read_frames(self, frames: list[SseFrame]) -> None:
        meter, read = self._assembly.meter, self._read_frame
        for frame in frames:
            if self._terminal is not None:
                return
            data = frame.data.strip()
            if data == DONE:
                self._end(is_explicit=True)
            elif data:
                read(frame.event, data)
                if meter.is_over:
                    self._check_bounds()
            elif frame.damage and not is_keep_alive(frame.event, data):
                self._damage(frame.damage)

    def _check_bounds(self) -> None:
        """Fail where the answer is over a bound, or contradicts itself."""
        if self._terminal is not None:
            return
        meter = self._assembly.meter
        if meter.damage is not None:
            self._break(meter.damage)
        elif meter.overflow is not None:
            self._fail(too_large(meter.overflow))

    @property
    def _is_whole(self) -> bool:
        """Whether the answer is complete, and only facts about it may follow."""
        return False

    def _damage(self, what: str) -> None:
        """Break an answer of which something was lost or garbled: what it was, nothing here can know.

        Damage behind a complete answer is only noted, unless more of the answer follows.
        """
        if self._is_whole and not self._intake.is_document:
            self._assembly.note("bad_frame", "dropped", f"behind the end of the answer: {what}")
            self._damage_after_end = self._damage_after_end or (what, self._assembly.size)
        else:
            self._break(what)

    def _break(self, what: str) -> None:
        if self._terminal is None:
            self._fail(BrokenStream(f"The upstream's answer is damaged: {what}.").info)

    @abstractmethod
    def _read_frame(self, name: str, data: str) -> None:
        """Read one frame of a stream; `name` is that of its event."""
        ...

    @abstractmethod
    def _read_document(self, data: str) -> None:
        """Read an answer that is one JSON document."""
        ...

    @abstractmethod
    def _end(self, *, is_explicit: bool) -> None:
        """Judge the answer at its end; `is_explicit` where the provider itself announced the end."""
        ...

    def _cut_off(self) -> None:
        self._fail(BrokenStream("The upstream's stream ended before the answer did.").info)

    def _close(self, terminal: Finished) -> None:
        """End the answer, if it is within its bounds."""
        if self._assembly.meter.is_over:
            self._check_bounds()
        if self._damage_after_end is not None and self._damage_after_end[1] != self._assembly.size:
            self._break(self._damage_after_end[0])
        if self._terminal is None:
            self._terminal = terminal
            self._assembly.events.append(terminal)

    def _fail(self, error: ErrorInfo) -> None:
        self._terminal = Failed(error=error)
        self._assembly.events.append(self._terminal)
