import threading

from treadle.tools import ToolContext
from treadle.tools.tool_context import WARNINGS_MAX


def test_progress_reaches_whoever_watches_until_the_call_ends() -> None:
    """After the end nobody is told any more."""
    heard: list[str] = []
    context = ToolContext(report=heard.append)
    context.progress("half")
    context.cancel()
    context.progress("late")
    assert heard == ["half"]
    assert context.cancelled


def test_progress_without_a_watcher_is_silent() -> None:
    """A tool may always report."""
    ToolContext().progress("x")
    assert ToolContext().cancelled is False


def test_warnings_are_bounded() -> None:
    """A tool that warns without end is heard for a while."""
    context = ToolContext()
    for each in range(100):
        context.warn(str(each))
    assert context.warnings == tuple(str(each) for each in range(WARNINGS_MAX))


def test_a_sync_tool_pauses_no_longer_than_somebody_waits() -> None:
    """The pause ends with the call, and says so."""
    context = ToolContext(run_id="run_1", call_id="call_1")
    assert context.wait_cancelled(0.0) is False
    threading.Timer(0.01, context.cancel).start()
    assert context.wait_cancelled(60.0) is True


def test_every_pause_ends_with_the_call() -> None:
    """A tool may pause in several threads, and one that pauses after the end does not wait at all."""
    context = ToolContext()
    heard: list[bool] = []
    pauses = [threading.Thread(target=lambda: heard.append(context.wait_cancelled(60.0))) for _ in range(3)]
    for pause in pauses:
        pause.start()
    context.cancel()
    for pause in pauses:
        pause.join(5.0)
    assert heard == [True, True, True]
    assert context.wait_cancelled(60.0) is True
