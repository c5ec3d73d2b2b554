"""Model calls that are made again: when they may be, and that nothing is left of what the broken ones said."""

import pytest

from treadle.core.errors import BrokenStream, ErrorInfo
from treadle.core.events import Failed, Finished, ItemAdded, ItemDone, LiveBatches, ModelEvent, Noted, TextDelta
from treadle.core.items import MessageItem
from treadle.core.request import Note
from unit.engine.fakes import Bench

AGAIN = Noted(note=Note(code="upstream_retried", action="repaired", message="cut"))
CUT = Failed(error=BrokenStream("cut").info)
BEGUN: list[ModelEvent] = [
    Noted(note=Note(code="odd", action="kept", message="of the broken call")),
    ItemAdded(index=0, item=MessageItem(id="m", role="assistant")),
    TextDelta(index=0, text="Hel"),
]


class Broken(LiveBatches):
    """Gives the batches of one answer, and leave to be asked again a few times."""

    def __init__(self, batches: list[list[ModelEvent]], leave: list[int]) -> None:
        self._batches = iter(batches)
        self._leave = leave

    def __aiter__(self) -> "Broken":
        return self

    async def __anext__(self) -> list[ModelEvent]:
        try:
            return next(self._batches)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """End it."""

    async def prepare_retry(self, attempt: int) -> Noted | None:
        """Give leave as often as there is any."""
        self._leave.append(attempt)
        return AGAIN if attempt < 3 else None


class Model:
    """Breaks a few times, then answers."""

    def __init__(self, *answers: list[list[ModelEvent]]) -> None:
        self.answers = list(answers)
        self.leave: list[int] = []

    def stream(self, plan: object, run_id: str) -> Broken:
        """Give the next answer."""
        return Broken(self.answers.pop(0), self.leave)


def _well() -> list[list[ModelEvent]]:
    item = MessageItem(id="m", role="assistant")
    return [[ItemAdded(index=0, item=item)], [ItemDone(index=0, item=item), Finished(stop="done")]]


async def _run(model: Model, *, is_private: bool) -> tuple[str, list[str], Bench]:
    bench = Bench(model)
    told: list[str] = []
    ended = await bench.loop.run(
        bench.journal, lambda batch: told.extend(type(each.event).__name__ for each in batch), is_private=is_private
    )
    return ended.status, told, bench


async def test_a_call_that_nobody_saw_is_made_again_and_leaves_nothing() -> None:
    """But the note that says so, once for each time; its own notes and texts are gone from the journal too."""
    model = Model([BEGUN, [CUT]], [BEGUN, [CUT]], _well())
    status, told, bench = await _run(model, is_private=True)
    assert (status, model.leave) == ("completed", [1, 2])
    assert [name for name in told if name != "RoundStarted"] == ["Noted", "Noted", "ItemAdded", "ItemDone", "RunEnded"]
    assert bench.journal.kinds().count("note") == 2


async def test_a_call_is_not_made_again_once_something_was_told_of_it() -> None:
    """A reader saw its text; a note alone is nothing yet."""
    model = Model([BEGUN, [CUT]])
    assert (await _run(model, is_private=False))[0] == "failed"
    assert model.leave == []
    model = Model([BEGUN[:1], [CUT]], _well())
    assert (await _run(model, is_private=False))[0] == "completed"
    assert model.leave == [1]


@pytest.mark.parametrize("is_private", [True, False])
async def test_a_call_that_may_not_be_made_again_fails(is_private: bool) -> None:
    """What would fail again is not asked about, and the model's own bound counts."""
    final = Failed(error=ErrorInfo(code="x", message="no", retryable=False))
    model = Model([[final]])
    assert (await _run(model, is_private=is_private))[0] == "failed"
    assert model.leave == []
    model = Model([[CUT]], [[CUT]], [[CUT]])
    assert (await _run(model, is_private=is_private))[0] == "failed"
    assert model.leave == [1, 2, 3]
