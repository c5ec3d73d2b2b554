"""The inline face: frames, keys, questions, and a scrollback that is never repainted."""

import asyncio
import base64
import io
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pyte
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input

from places import needs_programs
from treadle.terminal.editor import screen_app as inline_app
from treadle.terminal.editor.input_buffer import open_history
from treadle.terminal.editor.screen_app import InlineScreen
from treadle.terminal.editor.tab_completion import Completions
from treadle.terminal.rendering.approval_card import CardChoice
from treadle.terminal.rendering.styles import TextStyle

COLUMNS, ROWS = 60, 12
CHOICES = [CardChoice(key="y", word="yes", meaning="once"), CardChoice(key="n", word="no", meaning="not this")]


class Actions:
    """What keys reach."""

    def __init__(self) -> None:
        self.is_running = False
        self.pressed: list[str] = []
        self.done: list[str] = []
        self.activity = ""
        self.status = "status here"

    def status_line(self) -> str:
        """Say something."""
        return self.status

    def activity_line(self) -> str:
        """Say what is waited for."""
        return self.activity

    def interrupt(self) -> None:
        """Remember it."""
        self.pressed.append("interrupt")

    def press(self, action: str) -> None:
        """Remember it."""
        self.pressed.append(action)

    def is_instant(self, text: str) -> bool:
        """Only one is."""
        return text == "/now"

    def do_now(self, text: str) -> None:
        """Remember it."""
        self.done.append(text)


class Seat:
    """A face with a person at it."""

    def __init__(self, face: InlineScreen, keys: PipeInput, out: io.TextIOWrapper, actions: Actions) -> None:
        self.face, self.actions = face, actions
        self._keys, self._out = keys, out
        self._screen = pyte.HistoryScreen(COLUMNS, ROWS, history=5000)
        self._stream = pyte.ByteStream(self._screen)
        self._fed = 0

    @property
    def raw(self) -> bytes:
        """Return all that was written."""
        return self._out.buffer.getvalue()  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def lines(self) -> list[str]:
        """Return the scrollback and the screen."""
        data = self.raw
        self._stream.feed(data[self._fed :])
        self._fed = len(data)
        top = ["".join(row[column].data for column in range(COLUMNS)) for row in self._screen.history.top]
        return [line.rstrip() for line in (*top, *self._screen.display)]

    @property
    def screen_lines(self) -> list[str]:
        """Return the screen without the scrollback."""
        return self.lines[-ROWS:]

    def type(self, keys: str) -> None:
        """Press keys."""
        self._keys.send_text(keys)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        end = time.monotonic() + 20
        while not is_so():
            assert time.monotonic() < end, "\n".join(self.lines)
            await asyncio.sleep(0.005)

    async def sees(self, text: str) -> None:
        """Wait until a text can be seen."""
        await self.until(lambda: text in "\n".join(self.lines))

    async def misses(self, text: str) -> None:
        """Wait until a text can not be seen."""
        await self.until(lambda: text not in "\n".join(self.lines))


@asynccontextmanager
async def seat(tmp_path: Path, *, is_animated: bool = True) -> AsyncIterator[Seat]:
    """Sit down."""
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    history = InMemoryHistory(["earlier words"])
    completer = Completions(
        {"/now": "at once", "/tools": "list tools", "/theme": "colours"},
        {"/theme": ("dark", "light")},
        str(tmp_path),
        lambda: list(history.get_strings()),
    )
    with create_pipe_input() as keys, create_app_session(input=keys):
        face = InlineScreen(out, TextStyle(rich=True), history=history, completer=completer, is_animated=is_animated)
        actions = Actions()
        await face.open()
        face.serve(actions)
        here = Seat(face, keys, out, actions)
        await here.sees("status here")
        try:
            yield here
        finally:
            await face.close()


@pytest.fixture(autouse=True)
def size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test the same screen."""
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("LINES", str(ROWS))
    monkeypatch.setattr(inline_app, "ARM_S", 0.01)
    monkeypatch.setattr(inline_app, "HALF_TYPED_S", 0.01)


async def test_what_is_typed_is_read_and_several_lines_are_one(tmp_path: Path) -> None:
    """Ctrl-J, Alt-Enter and a backslash start a line; Enter sends all of them."""
    async with seat(tmp_path) as here:
        here.type("one\x0atwo\x1b\rthree\\\rfour\r")
        assert await asyncio.wait_for(here.face.read(), 10) == "one\ntwo\nthree\nfour"


async def test_committed_lines_stand_once_above_the_editor(tmp_path: Path) -> None:
    """However much is written while something is typed: the scrollback is exact, the text is kept."""
    async with seat(tmp_path) as here:
        here.type("half a tho")
        wanted = [f"line {number}" for number in range(300)]
        for number, line in enumerate(wanted):
            here.face.write(f"{line}\n")
            here.face.paint(lambda columns, rows, number=number: [f"open {number}", "more"])
            if number % 40 == 0:
                here.type("u")
                await asyncio.sleep(0)
        here.face.paint(None)
        await here.sees("line 299")
        await here.misses("open")
        lines = here.lines
        end = next(number for number, line in enumerate(lines) if line.startswith(">"))
        assert lines[:end] == wanted
        await here.sees("> half a thouuuuuuuu")


async def test_the_open_block_is_painted_by_its_end_and_gone_when_finished(tmp_path: Path) -> None:
    """It never grows beyond the screen, and the live part shrinks again."""
    async with seat(tmp_path) as here:
        room: list[int] = []

        def painter(columns: int, rows: int) -> list[str]:
            room.append(rows)
            return [f"row {number}" for number in range(50)][-rows:]

        here.face.paint(painter)
        await here.sees("row 49")
        assert max(room) < ROWS
        here.face.paint(None)
        here.face.write("done\n")
        await here.misses("row 49")
        assert [line for line in here.lines if line][:2] == ["done", ">"]


async def test_without_animations_only_finished_text_is_shown(tmp_path: Path) -> None:
    """For people whom motion disturbs."""
    async with seat(tmp_path, is_animated=False) as here:
        here.face.paint(lambda columns, rows: ["open"])
        here.face.write("finished\n")
        await here.sees("finished")
        assert "open" not in "\n".join(here.lines)


async def test_frames_are_no_more_than_twenty_a_second(tmp_path: Path) -> None:
    """A thousand changes in a moment are a handful of frames."""
    async with seat(tmp_path) as here:
        before, began = here.raw.count(b"\x1b[?2026h"), time.monotonic()
        for number in range(1000):
            here.face.write(f"{number}\n")
            if number % 10 == 0:
                await asyncio.sleep(0.001)
        await here.sees("999")
        frames = here.raw.count(b"\x1b[?2026h") - before
        assert frames <= (time.monotonic() - began) / inline_app.FRAME_S + 2


async def test_during_a_turn_messages_are_queued_and_come_back_when_it_is_stopped(tmp_path: Path) -> None:
    """Nothing that was typed is lost; an instant command is done at once."""
    async with seat(tmp_path) as here:
        here.actions.is_running = True
        here.type("next thing\r/now\r")
        await here.sees("queued: next thing")
        assert here.actions.done == ["/now"]
        here.type("\x03")
        await here.sees("> next thing")
        assert here.actions.pressed == ["interrupt"]
        assert "queued" not in "\n".join(here.lines)


async def test_ctrl_c_at_each_state(tmp_path: Path) -> None:
    """A turn is stopped and what is typed stays; then the line is cleared; then a second press leaves."""
    async with seat(tmp_path) as here:
        here.actions.is_running = True
        here.type("words\x03")
        await here.until(lambda: here.actions.pressed == ["interrupt"])
        await here.sees("> words")
        here.actions.is_running = False
        here.type("\x03")
        await here.misses("words")
        here.type("\x03")
        await here.sees("Ctrl-C again to quit")
        here.type("\x03")
        assert await asyncio.wait_for(here.face.read(), 10) is None


async def test_escape_stops_a_turn_and_twice_goes_back(tmp_path: Path) -> None:
    """On an idle line one Esc does nothing."""
    async with seat(tmp_path) as here:
        here.type("\x1b\x1b")
        await here.until(lambda: here.actions.pressed == ["earlier"])
        here.actions.is_running = True
        here.type("\x1b")
        await here.until(lambda: here.actions.pressed == ["earlier", "interrupt"])


async def test_ctrl_d_leaves_an_empty_line_only(tmp_path: Path) -> None:
    """During a turn it leaves after it."""
    async with seat(tmp_path) as here:
        here.actions.is_running = True
        here.type("a\x04\x7f\x04")
        await here.sees("leaving after this turn")
        assert await asyncio.wait_for(here.face.read(), 10) is None


async def test_a_question_takes_a_key_only_after_the_typing_has_stopped(tmp_path: Path) -> None:
    """What was being typed is no answer and stays; other keys are ignored."""
    async with seat(tmp_path) as here:
        here.type("say")
        await here.sees("> say")
        asked = asyncio.ensure_future(here.face.choose(CHOICES))
        await here.sees("[y] once")
        here.type("xn")
        assert await asyncio.wait_for(asked, 10) == "n"
        await here.misses("[y]")
        await here.sees("> say")


async def test_keys_that_come_while_a_question_appears_are_not_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person in full flow does not approve anything."""
    monkeypatch.setattr(inline_app, "HALF_TYPED_S", 60.0)
    async with seat(tmp_path) as here:
        here.type("y")
        await here.sees("> y")
        asked = asyncio.ensure_future(here.face.choose(CHOICES))
        here.type("yy")
        await here.sees("> yyy")
        assert not asked.done()
        assert "[y] once" not in "\n".join(here.lines)
        asked.cancel()


async def test_a_question_is_gone_at_once_when_the_turn_is_stopped(tmp_path: Path) -> None:
    """Whoever stops a turn and types on approves nothing, however long the run takes to end."""
    async with seat(tmp_path) as here:
        here.actions.is_running = True
        asked = asyncio.ensure_future(here.face.choose(CHOICES))
        await here.sees("[y] once")
        here.type("\x03yes")
        await here.sees("> yes")
        assert not asked.done()
        assert "[y] once" not in "\n".join(here.lines)
        asked.cancel()


async def test_a_question_that_is_over_leaves_the_next_one_alone(tmp_path: Path) -> None:
    """The end of an old question does not take away the choices of a new one."""
    async with seat(tmp_path) as here:
        old = asyncio.ensure_future(here.face.choose(CHOICES))
        await here.sees("[y] once")
        new = asyncio.ensure_future(here.face.choose([CardChoice(key="z", word="zed", meaning="another")]))
        await here.sees("[z] another")
        old.cancel()
        await asyncio.wait({old})
        here.type("z")
        assert await asyncio.wait_for(new, 10) == "z"


async def test_what_would_be_remembered_is_shown_whole(tmp_path: Path) -> None:
    """A choice that is longer than the line is broken, never cut: it may end in another command."""
    meaning = " ".join(f"word{number}" for number in range(20))
    async with seat(tmp_path) as here:
        asked = asyncio.ensure_future(here.face.choose([CardChoice(key="s", word="session", meaning=meaning)]))
        await here.sees("word19")
        assert meaning in " ".join(line.strip() for line in here.lines)
        asked.cancel()


async def test_who_would_leave_leaves_when_the_turn_is_stopped(tmp_path: Path) -> None:
    """Ctrl-D during a turn, then Ctrl-C: there is nothing left to stay for."""
    async with seat(tmp_path) as here:
        here.actions.is_running = True
        here.type("\x04")
        await here.sees("leaving after this turn")
        here.type("\x03")
        assert await asyncio.wait_for(here.face.read(), 10) is None
        assert here.actions.pressed == ["interrupt"]


async def test_drawing_again_changes_nothing_that_has_scrolled_away(tmp_path: Path) -> None:
    """Neither on a full screen with long lines nor twice."""
    async with seat(tmp_path) as here:
        wanted = [f"line {number} " + "x" * (COLUMNS if number % 3 == 0 else 5) for number in range(40)]
        here.face.write("".join(f"{line}\n" for line in wanted))
        await here.sees("line 39")
        before = here.lines
        for count in (1, 2):
            drawn = here.raw.count(b"line 39")
            here.type("\x0c")
            await here.until(lambda drawn=drawn: here.raw.count(b"line 39") > drawn)
            await here.sees("status here")
            assert here.lines == before, count


async def test_an_empty_screen_keeps_what_stood_on_it_in_the_scrollback(tmp_path: Path) -> None:
    """Clearing takes nothing away, and the editor stands at the top."""
    async with seat(tmp_path) as here:
        here.face.write("first\nsecond\n")
        await here.sees("second")
        here.face.clear()
        here.face.write("third\n")
        await here.sees("third")
        assert [line for line in here.lines if line][:4] == ["first", "second", "third", ">"]
        assert here.screen_lines[:2] == ["third", ">"]


async def test_the_whole_screen_is_never_erased_at_once(tmp_path: Path) -> None:
    """Terminals that keep erased screens would keep every frame of an editor at the top."""
    async with seat(tmp_path) as here:
        here.type("one\x0atwo\x03")
        await here.misses("two")
        here.type("\x0c")
        await here.sees("status here")
        assert b"\x1b[2J" not in here.raw
        assert here.raw.replace(b"\x1b[B\x1b[J", b"").count(b"\x1b[J") == 0


@pytest.mark.parametrize("keys", ["\x04", "\x03\x03"])
async def test_who_leaves_before_anything_is_read_is_heard_at_once(tmp_path: Path, keys: str) -> None:
    """Opening may take long: a server that does not answer holds nobody back."""
    async with seat(tmp_path) as here:
        leaving = asyncio.ensure_future(here.face.left())
        here.type(keys)
        await asyncio.wait_for(leaving, 10)
        assert await asyncio.wait_for(here.face.read(), 10) is None


async def test_what_was_said_before_leaving_is_still_heard(tmp_path: Path) -> None:
    """Typed while everything was still opening, with Ctrl-D behind it."""
    async with seat(tmp_path) as here:
        leaving = asyncio.ensure_future(here.face.left())
        here.type("question\r\x04")
        assert await asyncio.wait_for(here.face.read(), 10) == "question"
        assert await asyncio.wait_for(here.face.read(), 10) is None
        assert not leaving.done()
        leaving.cancel()


async def test_what_is_written_after_the_end_is_not_lost(tmp_path: Path) -> None:
    """A tool that prints while everything is closed is still heard."""
    async with seat(tmp_path) as here:
        await here.face.close()
        here.face.write("late line\n")
        assert [line for line in here.lines if line][-1] == "late line"


async def test_a_paste_stands_whole_in_the_history(tmp_path: Path) -> None:
    """Its word would mean another paste, or none, in the next conversation."""
    async with seat(tmp_path) as here:
        pasted = "\r".join(f"l{number}" for number in range(30))
        here.type(f"\x1b[200~{pasted}\x1b[201~\r")
        text = await asyncio.wait_for(here.face.read(), 10)
        assert here.face.buffer.history.get_strings()[-1] == text == pasted.replace("\r", "\n")


async def test_escape_puts_the_menu_away(tmp_path: Path) -> None:
    """And only the menu: what is typed stays, and nothing is stopped."""
    async with seat(tmp_path) as here:
        here.type("/t\t")
        await here.sees("list tools")
        here.type("\x1b")
        await here.misses("list tools")
        assert here.actions.pressed == []


async def test_a_status_of_several_lines_is_one(tmp_path: Path) -> None:
    """A name that a server made up can not push the editor around."""
    async with seat(tmp_path) as here:
        here.actions.status = "evil\nname\twith \x1b[2J"
        here.face.refresh()
        await here.sees("evil⏎name with ␛[2J")


async def test_the_editor_is_lent_for_a_line(tmp_path: Path) -> None:
    """What was typed before comes back; Esc gives nothing."""
    async with seat(tmp_path) as here:
        here.type("mine")
        await here.sees("> mine")
        lent = asyncio.ensure_future(here.face.line("why not:", "because"))
        await here.sees("why not: because")
        here.type(" so\r")
        assert await asyncio.wait_for(lent, 10) == "because so"
        await here.sees("> mine")
        lent = asyncio.ensure_future(here.face.line("command:"))
        await here.sees("command:")
        here.type("\x1b")
        assert await asyncio.wait_for(lent, 10) is None


async def test_a_long_paste_is_one_word_and_sent_whole(tmp_path: Path) -> None:
    """Line ends inside it do not send."""
    async with seat(tmp_path) as here:
        pasted = "\r".join(f"l{number}" for number in range(30))
        here.type(f"see \x1b[200~{pasted}\x1b[201~")
        await here.sees("see [pasted #1, 30 lines]")
        here.type("\r")
        assert await asyncio.wait_for(here.face.read(), 10) == "see " + pasted.replace("\r", "\n")


@pytest.mark.parametrize(
    ("keys", "seen"),
    [("/to\t", "> /tools"), ("/theme l\t", "> /theme light"), ("look at @no\t", "> look at @notes.txt")],
)
async def test_tab_completes_commands_words_and_files(tmp_path: Path, keys: str, seen: str) -> None:
    """The only one that fits is taken."""
    async with seat(tmp_path) as here:
        here.type(keys)
        await here.sees(seen)


async def test_tab_shows_several_and_goes_through_them(tmp_path: Path) -> None:
    """What they share is typed first; Shift-Tab goes back, and without a menu it changes the policy."""
    async with seat(tmp_path) as here:
        here.type("/t\t")
        await here.sees("list tools")
        here.type("\t\t")
        await here.sees("> /theme")
        here.type("\x1b[Z")
        await here.sees("> /tools")
        here.type("\x15\x1b[Z")
        await here.until(lambda: "policy" in here.actions.pressed)


async def test_the_history_is_searched_and_walked(tmp_path: Path) -> None:
    """Ctrl-R finds, Up goes back."""
    async with seat(tmp_path) as here:
        here.type("\x12words")
        await here.sees("> earlier words")
        here.type("\r\r")
        assert await asyncio.wait_for(here.face.read(), 10) == "earlier words"
        here.type("\x1b[A")
        await here.sees("> earlier words")


async def test_keys_reach_the_chat(tmp_path: Path) -> None:
    """Ctrl-O shows more, Ctrl-L draws the last lines again."""
    async with seat(tmp_path) as here:
        here.face.write("kept line\n")
        await here.sees("kept line")
        here.type("\x0f\x0c")
        await here.until(lambda: here.actions.pressed == ["unfold"])
        await here.until(lambda: here.raw.count(b"kept line") == 2)
        assert next(line for line in here.lines if line) == "kept line"


async def test_the_live_part_cannot_be_driven_by_text(tmp_path: Path) -> None:
    """Status, queue and questions are cleaned."""
    async with seat(tmp_path) as here:
        here.actions.is_running = True
        asked = asyncio.ensure_future(here.face.choose([CardChoice(key="y", word="y", meaning="run \x1b]0;x\x07")]))
        await here.sees("[y] run ␛]0;x␇")
        assert b"\x1b]0;x" not in here.raw
        asked.cancel()


@needs_programs
async def test_the_editor_of_the_person_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-G: what it saves is what stands there."""
    script = tmp_path / "editor.sh"
    script.write_text('#!/bin/sh\nprintf "from the editor" > "$1"\n', encoding="utf-8")
    script.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(script))
    async with seat(tmp_path) as here:
        here.type("draft\x07")
        await here.sees("> from the editor")


def test_a_history_that_can_not_be_kept_is_kept_in_memory(tmp_path: Path) -> None:
    """A read-only home is no reason not to talk."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert isinstance(open_history(tmp_path / "file" / "history"), InMemoryHistory)
    assert isinstance(open_history(None), InMemoryHistory)
    assert not isinstance(open_history(tmp_path / "history"), InMemoryHistory)


async def test_what_is_copied_is_never_half_a_character(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is too long is cut between two of them."""
    monkeypatch.setattr(inline_app, "COPIED_BYTES_MAX", 4)
    async with seat(tmp_path) as here:
        assert here.face.copy("é漢字")
        assert b"\x1b]52;c;" + base64.b64encode("é".encode()) + b"\x07" in here.raw
