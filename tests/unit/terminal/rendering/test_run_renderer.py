"""The screen: what each event looks like, folding, the status line, and a scrollback that stays true."""

import io
import re

import msgspec
import pyte
import pytest

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ApprovalDecided,
    ItemAdded,
    Noted,
    ReasoningDelta,
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
from treadle.core.items import CallItem, MessageItem, text_message, text_result
from treadle.core.journal_entries import entry_of_item
from treadle.core.request import Note
from treadle.terminal.rendering.drawing_surface import Painter, Stream
from treadle.terminal.rendering.event_messages import ANSWERS_ANEW
from treadle.terminal.rendering.run_renderer import RunRenderer
from treadle.terminal.rendering.styles import TextStyle
from treadle.terminal.rendering.tool_results import FoldedResults

CALL = CallItem(call_id="call_1", name="glob", arguments='{"pattern":"*.c","path":"src/"}', side="server")
OTHER = CallItem(call_id="call_2", name="add", arguments="{}", side="server")


def show(*events: RunEvent) -> str:
    """Return what a plain screen shows of the events."""
    out = io.StringIO()
    screen = RunRenderer(Stream(out), TextStyle())
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


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("Hello", " world"), "Hello world\n"),
        (("Good", " day"), f"Hel\n{ANSWERS_ANEW}\nGood day\n"),
    ],
)
def test_a_call_that_is_made_again_is_shown_once_or_marked(texts: tuple[str, ...], expected: str) -> None:
    """Where it says the same the text goes on; else a line says that what stands above does not count."""
    round_ = RoundStarted(round=1, fingerprint="f")
    begun = [ItemAdded(index=n, item=MessageItem(id=f"m{n}", role="assistant")) for n in range(2)]
    out = io.StringIO()
    screen = RunRenderer(Stream(out), TextStyle())
    for event in (
        RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1.0),
        *(round_, begun[0], TextDelta(index=0, text="Hel"), RunRecovered(), RoundBroken(round=1, indexes=(0,))),
        *(round_, begun[1], *(TextDelta(index=1, text=text) for text in texts)),
        RunEnded(status="completed"),
    ):
        screen.show(event)
    assert out.getvalue() == expected
    assert screen.answer.strip() == "".join(texts)


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
    screen = RunRenderer(Stream(out), TextStyle(), folds=FoldedResults(preview_lines=2, full_lines=3))
    screen.show(ToolStarted(index=1, call=OTHER))
    screen.show(finished("a\nb\nc\nd\ne\nf", OTHER))
    assert out.getvalue().splitlines()[1:] == [
        "  a",
        "  b",
        "  … 4 more lines (Ctrl-O or /full shows them)",
        "  done, 12 ms",
    ]
    before = len(out.getvalue())
    for _ in range(3):
        screen.unfold()
    assert out.getvalue()[before:].splitlines() == [
        *("● add()", "  c", "  d", "  e", "  … 1 more line (Ctrl-O or /full goes on)"),
        *("● add()", "  f"),
        "nothing is folded",
    ]


def test_a_new_run_forgets_what_was_folded() -> None:
    """Only the results of the last turn can be unfolded."""
    out = io.StringIO()
    screen = RunRenderer(Stream(out), TextStyle(), folds=FoldedResults(preview_lines=1))
    screen.show(finished("a\nb"))
    screen.show(RunStarted(run_id="r", response_id="p", model="m", created_at=0.0))
    screen.unfold()
    assert out.getvalue().endswith("\nnothing is folded\n")


def test_two_hundred_lines_are_shown_without_being_asked_for() -> None:
    """A result of ordinary length stays whole."""
    text = "\n".join("x" * 200)
    assert "more line" not in show(finished(text))
    assert "  … 1 more line (Ctrl-O or /full shows them)\n" in show(finished(f"{text}\nx"))


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


def status(ended: RunEnded, *words: str) -> str:
    """Return the line about a turn."""
    out = io.StringIO()
    RunRenderer(Stream(out), TextStyle()).status(words, ended)
    return out.getvalue()


def test_the_status_line_says_how_the_turn_ended() -> None:
    """A limit by the key that moves it; an ordinary end says nothing more."""
    assert status(RunEnded(status="completed"), "m", "46 ms") == "m · 46 ms\n"
    assert status(RunEnded(status="cancelled"), "m") == "m · cancelled\n"
    assert status(RunEnded(status="completed", limit="max_iterations"), "m") == (
        "m · limit reached: max_iterations (the key terminal.max_tool_turns)\n"
    )


def test_a_failed_turn_says_why_and_what_to_do() -> None:
    """The error stands above the status line, with its hint."""
    error = ErrorInfo(code="x", message="no \x1b[2Janswer", hint="try again")
    assert status(RunEnded(status="failed", error=error)).splitlines()[:2] == ["✗ no ␛[2Janswer", "  hint: try again"]


def test_no_color_means_no_colour_codes() -> None:
    """Without colour only the paint of the open block uses escape sequences."""
    out = io.StringIO()
    RunRenderer(Stream(out), TextStyle(rich=False, colour=False)).show(ToolStarted(index=1, call=CALL))
    assert "\x1b" not in out.getvalue()


class Glass:
    """A surface that keeps what stays and what is open."""

    def __init__(self, columns: int, rows: int) -> None:
        self._size = (columns, rows)
        self.written = ""
        self.painter: Painter | None = None

    def write(self, text: str) -> None:
        """Keep it."""
        self.written += text

    def paint(self, painter: Painter | None) -> None:
        """Keep it."""
        self.painter = painter

    def size(self) -> tuple[int, int]:
        """Return the size."""
        return self._size

    @property
    def open(self) -> list[str]:
        """Return the open lines."""
        return [] if self.painter is None else self.painter(*self._size)


@pytest.mark.parametrize("size", [1, 4, 17, 100_000])
def test_the_finished_text_is_the_same_however_it_came(size: int) -> None:
    """Each line is written once and in order; what is open is never part of it."""
    lines = [f"line number {number} of the answer" for number in range(40)]
    text = "\n\n".join(lines[:20]) + "\n\n```\n" + "\n".join(lines[20:]) + "\n```\n"
    glass = Glass(30, 8)
    screen = RunRenderer(glass, TextStyle(rich=True, colour=True))
    for start in range(0, len(text), size):
        screen.show(TextDelta(index=0, text=text[start : start + size]))
    screen.show(RunEnded(status="completed"))
    assert glass.open == []
    plain = re.sub(r"\x1b\[[0-9;]*m", "", glass.written)
    assert plain.split() == " ".join(lines).split()


def seen(text: str, columns: int, rows: int) -> list[str]:
    """Return the lines that a terminal shows of a text."""
    terminal = pyte.HistoryScreen(columns, rows, history=1000)
    pyte.Stream(terminal).feed(text.replace("\n", "\r\n"))
    return [line.rstrip() for line in terminal.display]


def test_code_is_set_in_and_its_fences_are_not_shown() -> None:
    """A person wants the code, not the marks around it."""
    glass = Glass(30, 12)
    screen = RunRenderer(glass, TextStyle(rich=True))
    for piece in ("Like ", "so:\n\n```py", "thon\nx = 1\n\nif x:\n    y\n``", "`\nDone", "."):
        screen.show(TextDelta(index=0, text=piece))
    screen.show(RunEnded(status="completed"))
    assert seen(glass.written, 30, 12)[:9] == ["Like so:", "", "  x = 1", "", "  if x:", "      y", "", "Done.", ""]


def test_lines_of_our_own_are_broken_between_words() -> None:
    """On a screen no word is cut, and what follows is set in like the first line."""
    glass = Glass(20, 8)
    screen = RunRenderer(glass, TextStyle(rich=True))
    screen.show(finished("some words that are too long for it", OTHER))
    screen.error(ErrorInfo(code="x", message="there is no such thing here"))
    assert glass.written.splitlines() == [
        *("↳ add()", "  some words that", "  are too long for", "  it", "  done, 12 ms"),
        *("✗ there is no such", "thing here"),
    ]


def test_an_open_block_higher_than_the_screen_is_painted_by_its_end() -> None:
    """What has left the screen is not painted over: only the last lines are, until the block is finished."""
    glass = Glass(20, 6)
    screen = RunRenderer(glass, TextStyle(rich=True))
    for number in range(30):
        screen.show(TextDelta(index=0, text=f"- item {number}\n"))
    assert [line.strip() for line in glass.open] == [f"• item {number}" for number in range(24, 30)]
    assert glass.written == ""
    screen.show(RunEnded(status="completed"))
    assert (glass.open, glass.written.count("item ")) == ([], 30)


def test_an_open_line_of_code_is_shown_before_it_ends() -> None:
    """Broken where the screen ends."""
    glass = Glass(12, 6)
    screen = RunRenderer(glass, TextStyle(rich=True))
    screen.show(TextDelta(index=0, text="```\nabcdefghijklmnop"))
    assert glass.open == ["  abcdefghij", "klmnop"]


def test_a_diff_in_a_result_is_shown_as_one() -> None:
    """Added and removed lines in their colours, the counts below."""
    out = io.StringIO()
    screen = RunRenderer(Stream(out), TextStyle(colour=True))
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new"
    body = {"output": "Wrote 4 bytes to x", "bytes": 4, "added": 1, "removed": 1, "diff": diff}
    screen.show(finished(msgspec.json.encode(body).decode()))
    shown = out.getvalue()
    assert "\x1b[31m      -old\x1b[0m\n" in shown
    assert "\x1b[32m      +new\x1b[0m\n" in shown
    assert "+1 -1" in shown
    assert "bytes: 4" in shown


def test_the_limit_of_the_loop_is_visible_in_the_result() -> None:
    """The fields that name it stand there."""
    body = '{"output":"x","count":1,"limit_reached":true,"limit_message":"Tool call limit reached (3)."}'
    shown = show(finished(body))
    assert "  limit_reached: true\n" in shown
    assert '  limit_message: "Tool call limit reached (3)."\n' in shown


def test_what_was_said_before_is_shown_as_it_was() -> None:
    """Prompt, call, result and answer; an orphan of a crash has its result."""
    entries = [
        entry_of_item(item, at=0.0)
        for item in (
            text_message("user", "two\nlines"),
            CALL,
            text_result(CALL, "Interrupted.", is_error=True, rc="interrupted"),
            text_message("assistant", "Done."),
        )
    ]
    out = io.StringIO()
    screen = RunRenderer(Stream(out), TextStyle())
    screen.recall(entries)
    assert out.getvalue() == ('\n> two\n  lines\n● glob(pattern="*.c", path="src/")\n  Interrupted.\nDone.\n')
    assert screen.answer == "Done."


def test_decisions_are_told_with_who_made_them() -> None:
    """Changed arguments are shown; what nobody could be asked about says so in its result."""
    decided = ApprovalDecided(index=0, call=CALL, approval_id="a", status="denied", by="ada", reason="no \x1b[2J")
    assert show(decided) == "  glob denied by ada: no ␛[2J\n"
    changed = ApprovalDecided(index=0, call=CALL, approval_id="a", status="approved", arguments='{"a":1}')
    assert show(changed) == '  glob approved\n  changed to glob({"a":1})\n'
    assert show(ApprovalDecided(index=0, call=CALL, approval_id="", status="denied")) == ""


def test_long_arguments_are_cut_and_can_be_seen_whole() -> None:
    """A file that is written does not flood the screen."""
    call = CallItem(call_id="c", name="file_write", arguments=msgspec.json.encode({"content": "x" * 5000}).decode())
    out = io.StringIO()
    screen = RunRenderer(Stream(out), TextStyle())
    screen.show(ToolStarted(index=0, call=call))
    assert "characters (Ctrl-O or /full shows them)" in out.getvalue()
    assert len(out.getvalue()) < 2_500


def test_code_has_the_colours_of_its_language() -> None:
    """Each line when it is finished, a string over two of them included; the next block begins afresh."""
    glass = Glass(60, 9)
    screen = RunRenderer(glass, TextStyle(rich=True, colour=True))
    screen.show(TextDelta(index=0, text='```python\nx = """a\nb"""\n```\n\n```\nx = 1\n```\n'))
    assert glass.written.split("\n") == [
        '  x = \x1b[32m"""a\x1b[0m',
        '  \x1b[32mb"""\x1b[0m',
        "",
        "  \x1b[36mx = 1\x1b[0m",
        "",
        "",
    ]


def test_an_open_line_of_code_is_as_wide_as_the_terminal_makes_it() -> None:
    """Tabs and wide characters are counted in columns."""
    glass = Glass(12, 6)
    screen = RunRenderer(glass, TextStyle(rich=True))
    screen.show(TextDelta(index=0, text="```\n\tab漢字"))
    assert glass.open == ["        ab漢", "字"]


def test_the_last_folded_result_is_unfolded_first() -> None:
    """It is the one that stands before the person's eyes; then the one before it."""
    out = io.StringIO()
    screen = RunRenderer(Stream(out), TextStyle(), folds=FoldedResults(preview_lines=1, full_lines=5))
    screen.show(finished("one\ntwo"))
    screen.show(finished("three\nfour", OTHER))
    out.truncate(0)
    screen.unfold()
    screen.unfold()
    assert out.getvalue().lstrip("\0") == '● add()\n  four\n● glob(pattern="*.c", path="src/")\n  two\n'


def test_a_long_paste_does_not_fill_the_scrollback() -> None:
    """Its beginning is shown, and how much more was sent; a message that is a little longer is shown whole."""
    out = io.StringIO()
    screen = RunRenderer(Stream(out), TextStyle())
    screen.print_prompt("\n".join(f"row {number}" for number in range(100)) + "\n")
    lines = out.getvalue().splitlines()
    assert lines[1:3] == ["> row 0", "  row 1"]
    assert lines[-2:] == ["  row 20", "  … 79 more lines, sent whole"]
    out.truncate(0)
    screen.print_prompt("\n".join(f"row {number}" for number in range(22)))
    assert out.getvalue().endswith("  row 20\n  row 21\n")
