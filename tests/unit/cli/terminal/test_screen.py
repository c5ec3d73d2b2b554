"""The screen: what each event looks like, folding, the status line, and a scrollback that stays true."""

import io
from collections.abc import Callable

import pyte
import pytest

from treadle.canon.errors import ErrorInfo
from treadle.canon.events import (
    ItemAdded,
    Noted,
    ReasoningDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.canon.items import CallItem, MessageItem, text_result
from treadle.canon.request import Note
from treadle.canon.usage import Usage
from treadle.cli.terminal.look import Look
from treadle.cli.terminal.results import Folds
from treadle.cli.terminal.screen import Screen

CALL = CallItem(call_id="call_1", name="glob", arguments='{"pattern":"*.c","path":"src/"}', side="server")
OTHER = CallItem(call_id="call_2", name="add", arguments="{}", side="server")


def show(*events: RunEvent) -> str:
    """Return what a plain screen shows of the events."""
    out = io.StringIO()
    screen = Screen(out, Look())
    for event in events:
        screen.show(event)
    return out.getvalue()


def finished(text: str, call: CallItem = CALL, *, rc: str = "ok", truncated: bool = False) -> ToolFinished:
    """Return the end of a call."""
    result = text_result(call, text, is_error=rc != "ok", rc=rc)
    return ToolFinished(index=1, call=call, result=result, duration_s=0.0123, truncated=truncated)


def test_text_streams_as_it_comes() -> None:
    """A plain screen writes each piece at once."""
    assert show(TextDelta(index=0, text="Hel"), TextDelta(index=0, text="lo")) == "Hello"


def test_messages_of_several_rounds_begin_on_lines_of_their_own() -> None:
    """A second message does not run into the first."""
    message = ItemAdded(index=1, item=MessageItem(id="m", role="assistant"))
    shown = show(TextDelta(index=0, text="one"), message, TextDelta(index=1, text="two"))
    assert shown == "one\ntwo"


def test_a_call_is_shown_with_its_arguments_and_its_result() -> None:
    """The call as the terminal design writes it, the output of an envelope as lines, the other fields below."""
    shown = show(
        TextDelta(index=0, text="Looking."),
        ToolStarted(index=1, call=CALL),
        finished('{"output":"a.c\\nb.c\\n","count":2}'),
    )
    assert shown == ('Looking.\n● glob(pattern="*.c", path="src/")\n  a.c\n  b.c\n  count: 2\n  done, 12 ms\n')


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("plain\ntext", "  plain\n  text\n"),
        ('{"sky":"clear"}', '  {"sky":"clear"}\n'),
        ('{"output":3}', '  {"output":3}\n'),
        ('{"broken', '  {"broken\n'),
        ("", "  (empty)\n"),
    ],
)
def test_results_of_any_shape_are_shown(text: str, lines: str) -> None:
    """What is no envelope is shown as it is."""
    assert show(ToolStarted(index=1, call=CALL), finished(text)).split("\n", 1)[1] == f"{lines}  done, 12 ms\n"


def test_a_long_result_is_folded_and_unfolded_step_by_step() -> None:
    """The lines beyond the fold are counted, and shown when asked for, so many at a time."""
    out = io.StringIO()
    screen = Screen(out, Look(), folds=Folds(preview_lines=2, full_lines=3))
    screen.show(ToolStarted(index=1, call=OTHER))
    screen.show(finished("a\nb\nc\nd\ne\nf", OTHER))
    assert out.getvalue().splitlines()[1:] == ["  a", "  b", "  … 4 more lines (/full shows them)", "  done, 12 ms"]
    before = len(out.getvalue())
    for _ in range(3):
        screen.unfold()
    assert out.getvalue()[before:].splitlines() == [
        *("● add()", "  c", "  d", "  e", "  … 1 more line (/full goes on)"),
        *("● add()", "  f"),
        "nothing is folded",
    ]


def test_a_new_run_forgets_what_was_folded() -> None:
    """Only the results of the last turn can be unfolded."""
    out = io.StringIO()
    screen = Screen(out, Look(), folds=Folds(preview_lines=1))
    screen.show(finished("a\nb"))
    screen.show(RunStarted(run_id="r", response_id="p", model="m", created_at=0.0))
    screen.unfold()
    assert out.getvalue().endswith("\nnothing is folded\n")


def test_twenty_lines_are_shown_without_being_asked_for() -> None:
    """A result of ordinary length stays whole."""
    text = "\n".join("x" * 20)
    assert "more line" not in show(finished(text))
    assert "  … 1 more line (/full shows them)\n" in show(finished(f"{text}\nx"))


def test_a_failure_names_its_code_and_a_cut_is_said() -> None:
    """The last line of a result says how it went."""
    assert show(finished("no", rc="timeout")).endswith("  no\n  failed (timeout), 12 ms\n")
    assert show(finished("long", truncated=True)).endswith("done, 12 ms, output cut\n")


def test_results_of_overlapping_calls_name_their_call() -> None:
    """A result that does not follow its own call says whose it is, also where both call the same tool."""
    paris, rome = (
        CallItem(call_id=city, name="get_weather", arguments=f'{{"city":"{city}"}}') for city in ("Paris", "Rome")
    )
    shown = show(
        ToolStarted(index=1, call=paris), ToolStarted(index=2, call=rome), finished("x", paris), finished("y", rome)
    )
    assert shown.splitlines()[2:] == [
        *('↳ get_weather(city="Paris")', "  x", "  done, 12 ms"),
        *('↳ get_weather(city="Rome")', "  y", "  done, 12 ms"),
    ]


def test_thinking_is_said_once_and_notes_are_shown() -> None:
    """Reasoning is a word, not a flood."""
    shown = show(
        ReasoningDelta(index=0, text="a"),
        ReasoningDelta(index=0, text="b"),
        Noted(note=Note(code="x", action="repaired", message="mended\na thing")),
    )
    assert shown == "thinking …\nnote: mended⏎a thing\n"


@pytest.mark.parametrize(
    "event",
    [
        TextDelta(index=0, text="\x1b[2J\x9b\u202e"),
        ToolStarted(index=0, call=CallItem(call_id="c", name="n\x1b]0;x\x07", arguments='{"a":"\x1b[2J"}')),
        ToolStarted(index=0, call=CallItem(call_id="c", name="n", arguments='{"a":"\\u001b[2J\\u202e"}')),
        finished("\x1b[2J\r\u202e"),
        finished('{"output":"\\u001b[2J"}'),
        finished("x", rc="\x1b[2J"),
        Noted(note=Note(code="x", action="repaired", message="\x1b[2J")),
    ],
)
def test_nothing_of_models_and_tools_reaches_the_terminal_raw(event: RunEvent) -> None:
    """Text, names, arguments, results, codes and notes all go through the sanitiser."""
    shown = show(event)
    assert not set(shown) & set("\x1b\x9b\x07\r\u202e")


def status(ended: RunEnded, model: str = "m") -> str:
    """Return the line about a turn."""
    out = io.StringIO()
    Screen(out, Look()).status(model, ended, 0.0456)
    return out.getvalue()


def test_the_status_line_counts_the_turn() -> None:
    """Model, rounds, calls, tokens and time; unknown tokens are called unknown, never 0."""
    usage = Usage(input_tokens=100, output_tokens=23)
    assert status(RunEnded(status="completed", usage=usage, rounds=2, calls=1)) == (
        "m · 2 rounds · 1 call · 123 tokens · 46 ms\n"
    )
    assert (
        status(RunEnded(status="cancelled", rounds=1)) == "m · 1 round · 0 calls · tokens unknown · 46 ms · cancelled\n"
    )
    assert status(RunEnded(status="completed", limit="max_iterations")).endswith(
        " · limit reached: max_iterations (the key terminal.max_tool_turns)\n"
    )


def test_a_failed_turn_says_why_and_what_to_do() -> None:
    """The error stands above the status line, with its hint."""
    error = ErrorInfo(code="x", message="no \x1b[2Janswer", hint="try again")
    assert status(RunEnded(status="failed", error=error)).splitlines()[:2] == ["✗ no ␛[2Janswer", "  hint: try again"]


def test_no_color_means_no_colour_codes() -> None:
    """Without colour only the paint of the open block uses escape sequences."""
    out = io.StringIO()
    Screen(out, Look(rich=False, colour=False)).show(ToolStarted(index=1, call=CALL))
    assert "\x1b" not in out.getvalue()


def ticking() -> Callable[[], float]:
    """Return a clock that has always moved on by more than a frame."""
    times = iter(range(1_000_000))
    return lambda: float(next(times))


@pytest.mark.parametrize("size", [1, 4, 17])
def test_painting_over_leaves_exactly_the_finished_text(size: int) -> None:
    """However often the open block is repainted, each line is in the scrollback once and in order."""
    columns, rows = 30, 8
    lines = [f"line number {number} of the answer" for number in range(40)]
    text = "\n\n".join(lines[:20]) + "\n\n```\n" + "\n".join(lines[20:]) + "\n```\n"
    out = io.StringIO(newline="")
    screen = Screen(out, Look(rich=True, colour=True), clock=ticking(), size=lambda: (columns, rows))
    for start in range(0, len(text), size):
        screen.show(TextDelta(index=0, text=text[start : start + size]))
    screen.show(RunEnded(status="completed"))
    terminal = pyte.HistoryScreen(columns, rows, history=1000)
    pyte.Stream(terminal).feed(out.getvalue().replace("\n", "\r\n"))
    history = ["".join(row[column].data for column in range(columns)) for row in terminal.history.top]
    seen = "".join(line.strip() + " " for line in [*history, *terminal.display])
    words = seen.replace("``` ", "").split()
    assert words == " ".join(lines).split()


def seen(text: str, columns: int, rows: int) -> list[str]:
    """Return the lines that a terminal shows of a text."""
    terminal = pyte.HistoryScreen(columns, rows, history=1000)
    pyte.Stream(terminal).feed(text.replace("\n", "\r\n"))
    return [line.rstrip() for line in terminal.display]


def test_code_is_set_in_and_its_fences_are_not_shown() -> None:
    """A person wants the code, not the marks around it."""
    out = io.StringIO(newline="")
    screen = Screen(out, Look(rich=True), clock=ticking(), size=lambda: (30, 12))
    for piece in ("Like ", "so:\n\n```py", "thon\nx = 1\n\nif x:\n    y\n``", "`\nDone", "."):
        screen.show(TextDelta(index=0, text=piece))
    screen.show(RunEnded(status="completed"))
    assert seen(out.getvalue(), 30, 12)[:9] == ["Like so:", "", "  x = 1", "", "  if x:", "      y", "", "Done.", ""]


def test_lines_of_our_own_are_broken_between_words() -> None:
    """On a screen no word is cut, and what follows is set in like the first line."""
    out = io.StringIO(newline="")
    screen = Screen(out, Look(rich=True), clock=ticking(), size=lambda: (20, 8))
    screen.show(finished("some words that are too long for it", OTHER))
    screen.error(ErrorInfo(code="x", message="there is no such thing here"))
    assert out.getvalue().splitlines() == [
        *("↳ add()", "  some words that", "  are too long for", "  it", "  done, 12 ms"),
        *("✗ there is no such", "thing here"),
    ]


def test_silence_is_explained_and_the_line_leaves_no_trace() -> None:
    """After half a second a line says what is waited for; the next output takes its place."""
    now = [0.0]
    out = io.StringIO(newline="")
    screen = Screen(out, Look(rich=True), clock=lambda: now[0], size=lambda: (40, 6))
    screen.begin()
    screen.tick()
    assert out.getvalue() == ""
    now[0] = 1.0
    screen.tick()
    assert seen(out.getvalue(), 40, 6)[0] == "… waiting, 1 s (Ctrl-C stops)"
    screen.show(ToolStarted(index=1, call=OTHER))
    now[0] = 4.0
    screen.tick()
    assert seen(out.getvalue(), 40, 6)[:2] == ["● add()", "… add runs, 3 s (Ctrl-C stops)"]
    screen.printed("half way")
    screen.show(finished("1", OTHER))
    assert seen(out.getvalue(), 40, 6)[:4] == ["● add()", "  printed: half way", "  1", "  done, 12 ms"]


def test_a_screen_that_is_none_is_never_told_of_waiting() -> None:
    """A pipe gets the conversation only."""
    now = [0.0]
    out = io.StringIO()
    screen = Screen(out, Look(), clock=lambda: now[0])
    now[0] = 60.0
    screen.tick()
    assert out.getvalue() == ""


def test_an_open_block_higher_than_the_screen_is_painted_by_its_end() -> None:
    """What has left the screen is not painted over: only the last lines are, until the block is finished."""
    columns, rows = 20, 6
    out = io.StringIO(newline="")
    screen = Screen(out, Look(rich=True), clock=ticking(), size=lambda: (columns, rows))
    for number in range(30):
        screen.show(TextDelta(index=0, text=f"- item {number}\n"))
    terminal = pyte.HistoryScreen(columns, rows, history=1000)
    pyte.Stream(terminal).feed(out.getvalue().replace("\n", "\r\n"))
    assert list(terminal.history.top) == []
    screen.show(RunEnded(status="completed"))
    assert out.getvalue().count("item 0") == 4 + 1
