"""The fast path for a read that is one more piece of plain text, as nearly every read of a slow stream is.

The stages of decoding agree beforehand where the next piece goes, so nothing else may happen between two pieces. Any
other read is left untouched for `upstream_decoder`.
"""

from treadle.core.events import TextDelta
from treadle.core.json import type_errors
from treadle.protocols.chat.upstream_chunk import CHECKED_CHARS, TEXT_CHUNK
from treadle.protocols.decoding.answer_meter import AnswerMeter
from treadle.protocols.decoding.item_builder import Tail
from treadle.protocols.decoding.stream_decoder import Take
from treadle.protocols.sse import SseReader


class TextFlow:
    """The rest of one text of a Chat stream; `take` returns whether later stages pass a piece on unchanged."""

    __slots__ = ("_index", "_meter", "_part", "_reader", "_take", "_texts")

    def __init__(self, reader: SseReader, tail: Tail, meter: AnswerMeter, take: Take | None) -> None:
        self._reader = reader
        self._index, self._part, self._texts = tail
        self._meter = meter
        self._take = take

    def feed(self, data: bytes) -> TextDelta | None:
        """Return the piece that these bytes are; None, without side effects, where they are anything else."""
        line = self._reader.lone(data)
        if line is None or len(line) > CHECKED_CHARS:
            return None
        try:
            chunk = TEXT_CHUNK.decode(line)
        except type_errors:
            return None
        choice, meter = chunk.choices[0], self._meter
        text = choice.delta.content
        if not text or choice.finish_reason is not None or chunk.usage is not None:
            return None
        held = meter.bytes_held + (len(text) if text.isascii() else len(text.encode()))
        if held > meter.bytes_max or (self._take is not None and not self._take(text)):
            return None
        meter.bytes_held = held
        self._texts.append(text)
        return TextDelta(index=self._index, text=text, part=self._part)
