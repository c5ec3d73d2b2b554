"""Cuts: a decoder that depends on where the network cut is found out, and one that does not is not."""

import pytest

from treadle.core.events import ModelEvent, TextDelta
from treadle.core.items import text_message
from treadle.core.plan import Plan
from treadle.evals import chunking_check as cuts
from treadle.evals.chunking_check import ROTATED, SIZES, CutWatch, merged
from treadle.protocols.text_calls.text_call_recovery import RepairRules
from treadle.providers.fakes.reply_rendering import write_frames
from treadle.providers.fakes.scripted_reply import Reply

PLAN = Plan(items=(text_message("user", "hi"),), model="script")
DATA = b"".join(write_frames(Reply(text="héllo 世界 and more"), model="script"))


def test_a_good_decoder_reads_the_same_at_every_size() -> None:
    """Also inside a character."""
    watch = CutWatch("chat", RepairRules(), every_cut=True)
    watch.hear(PLAN, DATA)
    assert watch.problems == []


def test_a_decoder_that_depends_on_the_cut_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told which size changed something."""
    read = CutWatch._read

    def careless(self: CutWatch, plan: Plan, data: bytes, size: int | None) -> list[ModelEvent]:
        return read(self, plan, data, size)[: -1 if size == 7 else None]

    monkeypatch.setattr(CutWatch, "_read", careless)
    watch = CutWatch("chat", RepairRules(), every_cut=True)
    watch.hear(PLAN, DATA)
    assert watch.problems == [f"a reply of {len(DATA)} bytes reads otherwise when it is cut at 7"]


def test_replies_take_turns_at_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few for each reply, all of them after some; each protocol begins elsewhere."""
    monkeypatch.setattr(cuts, "PIECES_MAX", 1_000_000)
    seen: list[int] = []
    monkeypatch.setattr(CutWatch, "_read", lambda self, plan, data, size: seen.append(size or 0) or [])
    watch = CutWatch("chat", RepairRules())
    for _ in range(4):
        watch.hear(PLAN, DATA)
    sizes = [size for size in seen if size]
    assert len(sizes) == 4 * ROTATED
    assert set(sizes) == {size for size in SIZES if size is not None}


def test_only_neighbouring_deltas_of_one_item_are_joined() -> None:
    """What a cut may change, and nothing else."""
    events: list[ModelEvent] = [
        TextDelta(index=0, text="a"),
        TextDelta(index=0, text="b"),
        TextDelta(index=1, text="c"),
    ]
    assert merged(events) == [TextDelta(index=0, text="ab"), TextDelta(index=1, text="c")]
