"""Decodes every reply again at many chunk sizes: the result must not depend on where the network split it."""

from collections.abc import Sequence

import msgspec

from treadle.core.events import ArgumentsDelta, ModelEvent, ReasoningDelta, RefusalDelta, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.plan import Plan
from treadle.protocols.protocol_registry import PROTOCOL_NAMES, ProtocolName
from treadle.protocols.text_calls.text_call_recovery import RepairRules
from treadle.providers.fakes.reply_rendering import cut
from treadle.providers.provider_model import AnswerRules, open_call

SIZES: tuple[int | None, ...] = (1, 2, 3, 5, 7, 11, 23, 64, 256, 4096, None)
PIECES_MAX = 1_500
EVERY_PIECES_MAX = 16_000
"""The most pieces a reply is split into, so that a long one is not decoded byte by byte."""
_DELTAS = (TextDelta, RefusalDelta, ReasoningDelta, ArgumentsDelta)


ROTATED = 3
"""How many sizes each reply is decoded at by default; the next reply continues with the following sizes."""


class CutWatch:
    """Records differences between decoding replies at their original and at other chunk sizes.

    Each reply is decoded at a few sizes, in rotation; with `every_cut` at all of them.
    """

    def __init__(self, protocol: ProtocolName, repair: RepairRules, *, every_cut: bool = False) -> None:
        self._protocol: ProtocolName = protocol
        self._repair = repair
        self._every_cut = every_cut
        self._place = PROTOCOL_NAMES.index(protocol) * ROTATED
        self.problems: list[str] = []

    def hear(self, plan: Plan, data: bytes) -> None:
        """Decode a reply at other sizes; tiny sizes are skipped for long replies."""
        whole = self._read(plan, data, None)
        pieces_max = EVERY_PIECES_MAX if self._every_cut else PIECES_MAX
        for size in self._sizes():
            if len(data) > size * pieces_max:
                continue
            if self._read(plan, data, size) != whole:
                self.problems.append(f"a reply of {len(data)} bytes reads otherwise when it is cut at {size}")

    def _sizes(self) -> list[int]:
        sizes = [size for size in SIZES if size is not None]
        if self._every_cut:
            return sizes
        start, self._place = self._place, self._place + ROTATED
        return [sizes[(start + step) % len(sizes)] for step in range(ROTATED)]

    def _read(self, plan: Plan, data: bytes, size: int | None) -> list[ModelEvent]:
        rules = AnswerRules(repair=self._repair)
        decoder = open_call(self._protocol, plan, CountingIds(), "script", rules=rules).decoder
        events = [event for chunk in cut(data, size) for event in decoder.feed(chunk)]
        return merged([*events, *decoder.finish()])


def merged(events: Sequence[ModelEvent]) -> list[ModelEvent]:
    """Join adjacent deltas of one item and part: chunking may change nothing else."""
    joined: list[ModelEvent] = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, _DELTAS) and isinstance(last, type(event)) and _place(last) == _place(event):
            joined[-1] = msgspec.structs.replace(last, text=last.text + event.text)
        else:
            joined.append(event)
    return joined


def _place(delta: TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta) -> tuple[int, int, bool]:
    part = 0 if isinstance(delta, ArgumentsDelta) else delta.part
    return delta.index, part, isinstance(delta, ReasoningDelta) and delta.is_summary
