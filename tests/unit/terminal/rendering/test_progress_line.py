"""The line that says that work goes on."""

import asyncio
import io

from treadle.core.events import ApprovalDecided, ApprovalRequested, RunEnded, ToolFinished, ToolStarted
from treadle.core.items import CallItem, text_result
from treadle.terminal.rendering import progress_line as waiting
from treadle.terminal.rendering.progress_line import Activity, ProgressLine, ticking

CALLS = [CallItem(call_id=name, name=name, arguments="{}") for name in ("one\x1b", "two")]


def test_it_names_what_runs_and_counts_the_seconds() -> None:
    """One tool by its name, several by their number, none as waiting; an unchanged line is not written again."""
    now = [0.0]
    out = io.StringIO()
    line = ProgressLine(out, is_shown=True, clock=lambda: now[0])
    shown: list[str] = []

    def look() -> None:
        now[0] += 2.0
        line.tick()
        line.tick()
        shown.append(out.getvalue().rsplit("\x1b[2K", 1)[1])
        line.clear()

    look()
    for call in CALLS:
        line.follow(ToolStarted(index=0, call=call))
        look()
    line.follow(ToolFinished(index=0, call=CALLS[1], result=text_result(CALLS[1], "")))
    look()
    assert shown == [
        "… waiting, 2 s (Ctrl-C stops)",
        "… one␛ runs, 2 s (Ctrl-C stops)",
        "… 2 tools run, 2 s (Ctrl-C stops)",
        "… one␛ runs, 2 s (Ctrl-C stops)",
    ]
    assert out.getvalue().count("…") == len(shown)


def test_it_says_what_a_tool_says_and_that_somebody_is_asked() -> None:
    """A question comes first; the end of the run forgets everything."""
    activity = Activity()
    activity.follow(ToolStarted(index=0, call=CALLS[1]))
    activity.progress("half\n\x1b way")
    assert activity.words == "two runs: half⏎␛ way"
    activity.follow(ApprovalRequested(index=0, call=CALLS[0], approval_id="a"))
    assert activity.words == "one␛ waits for your answer"
    activity.follow(ApprovalDecided(index=0, call=CALLS[0], approval_id="a", status="approved"))
    assert activity.words == "two runs: half⏎␛ way"
    activity.follow(RunEnded(status="cancelled"))
    assert activity.words == "waiting"


async def test_ticks_come_again_and_end_with_their_block(monkeypatch) -> None:
    """Nothing ticks after the turn."""
    monkeypatch.setattr(waiting, "TICK_S", 0.0)
    third = asyncio.Event()
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 3:
            third.set()

    with ticking(tick):
        await asyncio.wait_for(third.wait(), 5)
    count = len(ticks)
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(ticks) == count
