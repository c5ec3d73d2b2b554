"""Every reply, read again at every size of a network read: what comes of it may not depend on where it was cut."""

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
"""Into how many pieces a reply is cut at most, so that a long one is not read byte by byte."""
_DELTAS = (TextDelta, RefusalDelta, ReasoningDelta, ArgumentsDelta)


ROTATED = 3
"""At how many of the sizes each reply is read where not every one is wanted; the next reply begins behind them."""


class CutWatch:
    """Hears the replies of a play and keeps what reading them at other sizes changed.

    Each reply is read at a few sizes, the next one at the next few, and so on; with `every_cut` at all of them.
    """

    def __init__(self, protocol: ProtocolName, repair: RepairRules, *, every_cut: bool = False) -> None:
        self._protocol: ProtocolName = protocol
        self._repair = repair
        self._every_cut = every_cut
        self._place = PROTOCOL_NAMES.index(protocol) * ROTATED
        self.problems: list[str] = []

    def hear(self, plan: Plan, data: bytes) -> None:
        """Read a reply at other sizes; one that is very long not at those that are tiny."""
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
    """Join neighbouring deltas of one item and part: the only thing that a cut may change."""
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
