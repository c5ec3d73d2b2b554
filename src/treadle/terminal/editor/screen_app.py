"""The inline screen: an editor below the conversation that never redraws finished lines.

Finished lines are written above the live part, in one frame with it, at most twenty times a second; keys are shown at
once. prompt_toolkit reads the keys and draws the live part, and this decides when.
"""

import asyncio
import base64
import os
import time
from collections.abc import Callable
from typing import TextIO

from prompt_toolkit.completion import (
    Completer,
    ThreadedCompleter,
)
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyPressEvent

from treadle.terminal.editor import key_bindings as keys
from treadle.terminal.editor.input_buffer import Draft, Pastes
from treadle.terminal.editor.layout import EDITOR_ROWS_MAX, RESERVED_ROWS, STYLE, make_layout
from treadle.terminal.editor.resize import InlineApplication
from treadle.terminal.editor.screen_interface import Actions
from treadle.terminal.editor.send_queue import InputQueue
from treadle.terminal.editor.terminal_output import FrameOutput, last_lines
from treadle.terminal.rendering.approval_card import CardChoice
from treadle.terminal.rendering.drawing_surface import Painter
from treadle.terminal.rendering.sanitize import one_line
from treadle.terminal.rendering.streaming_markdown import wrap
from treadle.terminal.rendering.styles import TextStyle

FRAME_S = 0.05
QUIT_S = 1.0
"""How soon a second Ctrl-C must follow the first to leave an idle chat."""
ARM_S = 0.4
"""How long no key must have been pressed before a question takes keys: what was being typed is no answer."""
HALF_TYPED_S = 1.0
TICK_S = 0.5
COPIED_BYTES_MAX = 100_000
PROMPT = "> "
OPENING = " opening …"


class InlineScreen:
    """Implements `ChatScreen`."""

    def __init__(
        self, out: TextIO, text_style: TextStyle, *, history: History, completer: Completer, is_animated: bool = True
    ) -> None:
        self._actions: Actions | None = None
        self._output = FrameOutput(out, term=os.environ.get("TERM", ""), has_colour=text_style.colour)
        self._is_animated = is_animated
        self._pastes = Pastes()
        self._inputs = InputQueue()
        self._pending: list[str] = []
        self._painter: Painter | None = None
        self._open = ""
        self._timer: asyncio.TimerHandle | None = None
        self._next_frame_at = 0.0
        self._choices: list[CardChoice] = []
        self._chosen: asyncio.Future[str] | None = None
        self._borrowed: tuple[str, asyncio.Future[str | None], Document] | None = None
        self._pressed_at = 0.0
        self._interrupted_at = float("-inf")
        self._notice = ""
        self._is_closed = False
        self.buffer = Draft(
            out,
            multiline=True,
            history=history,
            completer=ThreadedCompleter(completer),
            complete_while_typing=Condition(self._completes_alone),
            tempfile_suffix=".md",
        )
        self.app = InlineApplication(
            layout=make_layout(self, self.buffer),
            style=STYLE,
            key_bindings=keys.bind(self, self._key_actions()),
            output=self._output,
            full_screen=False,
            erase_when_done=True,
            terminal_size_polling_interval=None,
        )
        self.app.ttimeoutlen = 0.05
        self.app.timeoutlen = 0.3
        self.app.before_render += self._before_render
        self.app.after_render += self._after_render
        self.app.key_processor.before_key_press += self._pressed
        self._drawn = asyncio.Event()
        self._left = asyncio.Event()
        self._has_read = False
        self._task: asyncio.Task[None] | None = None
        self._ticker: asyncio.Task[None] | None = None

    @property
    def can_ask(self) -> bool:
        """Return True: a person is at the terminal."""
        return True

    @property
    def echoes(self) -> bool:
        """Return False: sent text disappears from the editor."""
        return False

    async def open(self) -> None:
        """Show the editor, and return when it is drawn."""
        self._task = asyncio.create_task(self._run(), name="treadle-editor")
        self._ticker = asyncio.create_task(self._tick(), name="treadle-clock")
        # If the terminal is gone the editor ends without a frame.
        drawn = asyncio.ensure_future(self._drawn.wait())
        await asyncio.wait({self._task, drawn}, return_when=asyncio.FIRST_COMPLETED)
        drawn.cancel()

    def serve(self, actions: Actions) -> None:
        """Connect the keys to the chat."""
        self._actions = actions
        self._wake()

    async def close(self) -> None:
        """Write pending output and restore the terminal."""
        if self._ticker is not None:
            self._ticker.cancel()
        if self._task is not None:
            if self.app.is_running:
                self.app.exit()
            await asyncio.wait([self._task])
        self._painter = None
        self._is_closed = True
        self._flush_pending()
        self._output.flush()

    async def _run(self) -> None:
        try:
            await self.app.run_async(handle_sigint=False, set_exception_handler=False)
        except EOFError:  # the terminal is gone
            pass
        finally:
            self._inputs.leave()

    async def _tick(self) -> None:
        """Update the seconds of the activity line."""
        while True:
            await asyncio.sleep(TICK_S)
            if self._actions is not None and self._actions.is_running:
                self._wake()

    async def read(self) -> str | None:
        """Return the next input; None when the person has left."""
        self._has_read = True
        return await self._inputs.read()

    async def left(self) -> None:
        """Return when the person wants to leave while no input is read."""
        await self._left.wait()

    async def choose(self, choices: list[CardChoice]) -> str | None:
        """Return the key of the answer; keys count once the person has stopped typing."""
        chosen = asyncio.get_running_loop().create_future()
        try:
            await self._typing_stops()
            self._choices, self._chosen = choices, chosen
            self.app.invalidate()
            return await chosen
        finally:
            # Another question may be open by now: only our own is withdrawn.
            if self._chosen is chosen:
                self._withdraw()

    def _withdraw(self) -> None:
        """Withdraw the question: keys type text again."""
        self._choices, self._chosen = [], None
        self.app.invalidate()

    async def _typing_stops(self) -> None:
        """Wait until no key was pressed for a while, so that typing is not taken for an answer; longer with a draft."""
        left_s = self._pressed_at + (HALF_TYPED_S if self.buffer.text else ARM_S) - time.monotonic()
        if left_s > 0:
            await asyncio.sleep(left_s)
            await self._typing_stops()

    async def line(self, label: str, text: str = "") -> str | None:
        """Borrow the editor for one line."""
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._borrowed = (f"{label} ", answer, self.buffer.document)
        self.buffer.document = Document(text)
        self.app.invalidate()
        try:
            return await answer
        finally:
            self.buffer.document = self._borrowed[2]
            self._borrowed = None
            self.app.invalidate()

    def offer(self, text: str) -> None:
        """Put a text into the editor, before what is there."""
        self.buffer.document = Document(f"{text}\n{self.buffer.text}" if self.buffer.text else text)
        self.app.invalidate()

    def take_back(self) -> None:
        """Return queued input to the editor, since the turn it waited for was stopped."""
        if text := self._inputs.take_back():
            self.offer(text)

    def write(self, text: str) -> None:
        """Write final lines with the next frame; after the end at once."""
        self._pending.append(text)
        if self._is_closed:
            self._flush_pending()
            self._output.flush()
        else:
            self._wake()

    def paint(self, painter: Painter | None) -> None:
        """Show open lines, with the next frame."""
        self._painter = painter if self._is_animated else None
        self._wake()

    def refresh(self) -> None:
        """Redraw the status line with the next frame."""
        self._wake()

    def size(self) -> tuple[int, int]:
        """Return columns and rows."""
        size = self._output.get_size()
        return size.columns, size.rows

    def redraw(self) -> None:
        """Clear the screen and write exactly the lines again that were on it."""
        screen = self.app.renderer.last_rendered_screen
        live_rows = RESERVED_ROWS if screen is None else screen.height
        with self._output.frame():
            self.app.renderer.erase()
            self._flush_pending()
            self.app.renderer.clear()
            columns, rows = self.size()
            last = last_lines(self._output.recent_lines, columns, max(1, rows - live_rows))
            self._output.write_raw("".join(f"{line}\r\n" for line in last))
        self.app.invalidate()

    def clear(self) -> None:
        """Clear the screen; its lines move to the scrollback."""
        with self._output.frame():
            self.app.renderer.erase()
            self._flush_pending()
            self._output.scroll_away()
            self._output.recent_lines.clear()
        self.redraw()

    def copy(self, text: str) -> bool:
        """Copy a text to the clipboard (OSC 52)."""
        data = text.encode("utf-8", "replace")[:COPIED_BYTES_MAX].decode("utf-8", "ignore").encode()
        self._output.write_raw(f"\x1b]52;c;{base64.b64encode(data).decode()}\x07")
        self._output.flush()
        return True

    def _wake(self) -> None:
        """Schedule a frame, no sooner than the frame rate allows."""
        if self._timer is not None:
            return
        wait_s = max(0.0, self._next_frame_at - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._draw)

    def _draw(self) -> None:
        self._timer = None
        if self.app.is_running:
            self.app.invalidate()

    def _before_render(self, _: object) -> None:
        """Write finished lines above the live part, and render the open lines of this frame."""
        began = time.monotonic()
        self._output.begin()
        if self.app.find_top() or self._pending or self._has_shrunk():
            self.app.renderer.erase()
            self._flush_pending()
        if self.app.renderer.last_rendered_screen is None:
            self.app.lengths = {}  # nothing of an earlier frame is on the screen, so no line can have been rewrapped
        columns, rows = self.size()
        room = max(1, rows - RESERVED_ROWS - min(EDITOR_ROWS_MAX, self.buffer.document.line_count))
        self._open = "" if self._painter is None else "\n".join(self._painter(columns, room))
        # A long open block takes long to render: then there are fewer frames, never a busy loop.
        self._next_frame_at = began + max(FRAME_S, 4 * (time.monotonic() - began))

    def _after_render(self, _: object) -> None:
        self._output.end()
        self.app.measure()
        self._drawn.set()

    def _has_shrunk(self) -> bool:
        """Return whether the live part has become smaller: the renderer would leave empty lines."""
        screen = self.app.renderer.last_rendered_screen
        if screen is None:
            return False
        columns, rows = self.size()
        return self.app.layout.container.preferred_height(columns, rows).preferred < screen.height

    def _flush_pending(self) -> None:
        if self._pending:
            self._output.commit("".join(self._pending))
            self._pending.clear()

    # The contents of the layout.

    def open_text(self) -> str:
        """Return the open block."""
        return self._open

    def activity_text(self) -> str:
        """Return the lines of the activity."""
        if self._actions is None or self._choices:
            return ""
        return one_line(self._actions.activity_line())[: self.size()[0] - 1]

    def queued_text(self) -> str:
        """Return the queued input."""
        width = self.size()[0]
        return "\n".join(one_line(f"  queued: {text}")[: width - 1] for text in self._inputs.queued)

    def question_text(self) -> str:
        """Return the choices, each with its key, as many lines as they need."""
        width = self.size()[0]
        shown = [wrap(f"  [{choice.key}] {one_line(choice.meaning)}", width) for choice in self._choices]
        return "\n".join(line for lines in shown for line in lines)

    def label(self) -> str:
        """Return what stands before the editor."""
        return PROMPT if self._borrowed is None else self._borrowed[0]

    def status_text(self) -> str:
        """Return the status line, cut to the width."""
        text = self._notice or (OPENING if self._actions is None else self._actions.status_line())
        return one_line(text)[: self.size()[0] - 1]

    # What the keys depend on.

    @property
    def is_asking(self) -> bool:
        """Return whether a question waits for a key."""
        return self._chosen is not None

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is typed."""
        return not self.buffer.text

    @property
    def is_idle(self) -> bool:
        """Return whether no turn is running."""
        return self._actions is not None and not self._actions.is_running and self._borrowed is None

    def _completes_alone(self) -> bool:
        text = self.buffer.document.text_before_cursor
        return self._borrowed is None and text.startswith("/") and " " not in text

    # What the keys do.

    def _key_actions(self) -> dict[str, Callable[[KeyPressEvent], None]]:
        return {
            "enter": self._enter,
            "newline": lambda _: self.buffer.insert_text("\n"),
            "interrupt": lambda _: self._interrupt(),
            "escape": lambda _: self._escape(),
            "earlier": lambda _: self._press("earlier"),
            "leave": lambda _: self._leave(),
            "complete": lambda _: self.buffer.complete(),
            "policy": lambda _: self._back_tab(),
            "unfold": lambda _: self._press("unfold"),
            "editor": lambda _: self._edit(),
            "redraw": lambda _: self.redraw(),
            "suspend": lambda event: event.app.suspend_to_background(),
            "answer": lambda event: self._answer(event.data),
            "paste": lambda event: self.buffer.insert_text(self._pastes.fold(event.data)),
        }

    def _pressed(self, _: object) -> None:
        self._pressed_at = time.monotonic()
        self._notice = ""

    def _press(self, action: str) -> None:
        if self._actions is not None:
            self._actions.press(action)

    def _enter(self, event: KeyPressEvent) -> None:
        buffer, state = self.buffer, self.buffer.complete_state
        if state is not None and state.current_completion is not None and not buffer.text.startswith("/"):
            buffer.complete_state = None  # what was chosen stands in the text already
        elif buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        elif self._borrowed is not None:
            self._return_line(buffer.text)
        elif buffer.text.strip():
            self._send()

    def _send(self) -> None:
        text = self._pastes.unfold(self.buffer.text)
        self.buffer.remember(text)
        self.buffer.reset()
        actions = self._actions
        is_running = actions is not None and actions.is_running
        if actions is not None and is_running and actions.is_instant(text):
            actions.do_now(text)
        else:
            self._inputs.send(text, waits=is_running)

    def _return_line(self, text: str | None) -> None:
        if self._borrowed is not None and not self._borrowed[1].done():
            self._borrowed[1].set_result(text)

    def _answer(self, key: str) -> None:
        if self._chosen is None or self._chosen.done():
            return
        if any(choice.key == key for choice in self._choices):
            self._chosen.set_result(key)

    def _escape(self) -> None:
        """Handle Esc: close completions, else stop the turn; on an idle line do nothing."""
        if self.buffer.complete_state is not None:
            self.buffer.cancel_completion()
        elif self._borrowed is not None:
            self._return_line(None)
        elif self._actions is not None and self._actions.is_running:
            self._stop()

    def _interrupt(self) -> None:
        """Handle Ctrl-C: stop the turn, else clear the line; on an empty line a second one leaves."""
        now = time.monotonic()
        if self._borrowed is not None:
            self._return_line(None)
        elif self._actions is not None and self._actions.is_running:
            self._stop()
        elif self.buffer.text:
            self.buffer.reset()
        elif now - self._interrupted_at <= QUIT_S:
            self._quit()
        else:
            self._interrupted_at = now
            self._notice = "Ctrl-C again to quit, or Ctrl-D"

    def _stop(self) -> None:
        if self._actions is not None:
            self._actions.interrupt()
        self._withdraw()
        self.take_back()

    def _leave(self) -> None:
        if self._borrowed is not None:
            self._return_line(None)
            return
        self._quit()
        if self._actions is not None and self._actions.is_running:
            self._notice = "leaving after this turn; Ctrl-C stops it"

    def _quit(self) -> None:
        """Leave after pending input was read; at once, if there is none and nothing is read yet."""
        is_running = self._actions is not None and self._actions.is_running
        if not self._has_read and not is_running and self._inputs.is_empty:
            self._left.set()
        self._inputs.leave()

    def _back_tab(self) -> None:
        if self.buffer.complete_state is not None:
            self.buffer.complete_previous()
        else:
            self._press("policy")

    def _edit(self) -> None:
        self.buffer.document = Document(self._pastes.unfold(self.buffer.text))
        self.buffer.open_in_editor()
