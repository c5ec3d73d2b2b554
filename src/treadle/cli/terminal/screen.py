"""The events of a run as a person sees them: text, calls with their arguments, results, and a line about the turn.

Finished lines are written once and never touched again, so that the scrollback stays true. Only the open block of
text is painted over, at most 20 times a second and never beyond the height of the screen.
"""

import shutil
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

import msgspec

from treadle.canon.errors import ErrorInfo
from treadle.canon.events import (
    ItemAdded,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.canon.items import CallItem, MessageItem, text_of
from treadle.canon.messages import call_summary
from treadle.cli.terminal.clean import clean
from treadle.cli.terminal.look import Look
from treadle.cli.terminal.markdown import Block, Blocks, render, wrap
from treadle.cli.terminal.results import Folded, Folds, bounded, result_lines
from treadle.cli.terminal.waiting import Waiting
from treadle.cli.terminal.words import error_lines, limit_text, note_text, plural

FRAME_S = 0.05
FOLDED_MAX = 20
INDENT = "  "


class Screen:
    """Shows one turn after the other on a stream."""

    def __init__(
        self,
        out: TextIO,
        look: Look,
        *,
        folds: Folds | None = None,
        clock: Callable[[], float] = time.monotonic,
        size: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self._out = out
        self._look = look
        self._folds = folds or Folds()
        self._clock = clock
        self._size = size or _terminal_size
        self._waiting = Waiting(out, is_shown=look.rich, clock=clock)
        self._blocks = Blocks()
        self._folded: deque[Folded] = deque(maxlen=FOLDED_MAX)
        self._painted = 0
        self._painted_at = float("-inf")
        self._last_call = ""
        self._is_thinking = False
        self._is_line_open = False

    def show(self, event: RunEvent) -> None:
        """Show what one event says."""
        self._waiting.follow(event)
        match event:
            case RunStarted():
                self._folded.clear()
            case TextDelta() | RefusalDelta():
                self._text(clean(event.text))
            case ItemAdded() if isinstance(event.item, MessageItem):
                self._close_text()
            case ReasoningDelta():
                self._thinking()
            case ToolStarted():
                self._call(event)
            case ToolFinished():
                self._result(event)
            case Noted():
                self._line(f"note: {note_text(event.note)}", "dim")
            case RunEnded():
                self._close_text()
            case _:
                pass

    def tick(self) -> None:
        """Let time pass: after a while of silence a line says what is waited for."""
        self._waiting.tick()

    def begin(self) -> None:
        """Begin a turn: from now on somebody waits."""
        self._waiting.clear()

    def status(self, model: str, ended: RunEnded, duration_s: float) -> None:
        """Write the line about a finished turn."""
        self._close_text()
        if ended.error is not None:
            self.error(ended.error)
        usage = ended.usage
        tokens = "tokens unknown" if usage is None else f"{usage.total_tokens} tokens"
        parts = [model, plural(ended.rounds, "round"), plural(ended.calls, "call"), tokens]
        parts.append(f"{duration_s * 1000:.0f} ms")
        if ended.limit is not None:
            parts.append(f"limit reached: {limit_text(ended.limit)}")
        if ended.status not in ("completed", "failed"):
            parts.append(ended.status)
        self._line(" · ".join(parts), "dim")

    def error(self, error: ErrorInfo) -> None:
        """Write an error and the way out of it."""
        self._close_text()
        first, *more = error_lines(error)
        self._line(f"✗ {first}", "error")
        for line in more:
            self._line(line)

    def say(self, text: str) -> None:
        """Write lines of our own."""
        self._close_text()
        for line in text.splitlines():
            self._line(line)

    def printed(self, line: str) -> None:
        """Write a line that a tool printed."""
        self._close_text()
        self._line(f"{INDENT}printed: {bounded(line)}", "dim")

    def unfold(self) -> None:
        """Write more of the first result of this turn that was not shown whole."""
        if not self._folded:
            self.say("nothing is folded")
            return
        folded = self._folded.popleft()
        self._line(_summary(folded.call), "call")
        left = self._some(folded, self._folds.full_lines)
        if left:
            self._folded.appendleft(msgspec.structs.replace(folded, lines=left))
            self._line(f"{INDENT}… {plural(len(left), 'more line')} (/full goes on)", "dim")

    def _text(self, text: str) -> None:
        self._is_thinking = False
        if not self._look.rich:
            self._write(text)
            self._is_line_open = not text.endswith("\n")
            return
        done = self._blocks.feed(text)
        if done or self._clock() - self._painted_at >= FRAME_S:
            self._paint(done)

    def _paint(self, done: list[Block]) -> None:
        """Write finished blocks for good, then the open one, over what was painted of it before."""
        width, height = self._size()
        frame = [self._wipe(), *(self._finished(block, width) for block in done)]
        lines = self._open_lines(width)[-max(height - 2, 1) :]
        frame.extend(f"{line}\n" for line in lines)
        # Synchronized output (DEC 2026): terminals that know it show the frame at once, others ignore it.
        self._write(f"\x1b[?2026h{''.join(frame)}\x1b[?2026l")
        self._painted = len(lines)
        self._painted_at = self._clock()

    def _wipe(self) -> str:
        return f"\x1b[{self._painted}F\x1b[0J" if self._painted else ""

    def _finished(self, block: Block, width: int) -> str:
        """Write a block as it stays: code is set in by two columns, and its fences are not shown."""
        match block.kind:
            case "markdown":
                return f"{render(block.text, width, colour=self._look.colour)}\n\n"
            case "code":
                return f"{self._look.style('code', f'{INDENT}{block.text}' if block.text else '')}\n"
            case "opened":
                return ""
            case "closed":
                return "\n"

    def _open_lines(self, width: int) -> list[str]:
        text = self._blocks.open_text
        if not text.strip():
            return []
        if self._blocks.is_code:
            step = width - len(INDENT)
            pieces = [text[index : index + step] for index in range(0, len(text), step)]
            return [self._look.style("code", f"{INDENT}{piece}") for piece in pieces]
        return render(text, width, colour=self._look.colour).split("\n")

    def _close_text(self) -> None:
        """Finish the open text, so that a line of another kind can follow."""
        self._is_thinking = False
        if self._look.rich:
            done = self._blocks.finish()
            if done or self._painted:
                self._paint(done)
        elif self._is_line_open:
            self._write("\n")
        self._is_line_open = False

    def _thinking(self) -> None:
        if not self._is_thinking:
            self._close_text()
            self._line("thinking …", "dim")
            self._is_thinking = True

    def _call(self, event: ToolStarted) -> None:
        self._close_text()
        self._last_call = event.call.call_id
        self._line(_summary(event.call), "call")

    def _result(self, event: ToolFinished) -> None:
        """Write a result, below its call or, where another line stands between, below its name."""
        self._close_text()
        if self._last_call != event.call.call_id:
            self._line(_summary(event.call, "↳"), "call")
        self._last_call = ""
        style = "error" if event.result.is_error else "dim"
        whole = Folded(call=event.call, lines=result_lines(text_of(event.result.output)), style=style)
        left = self._some(whole, self._folds.preview_lines)
        if left:
            self._folded.append(msgspec.structs.replace(whole, lines=left))
            self._line(f"{INDENT}… {plural(len(left), 'more line')} (/full shows them)", "dim")
        took = f"{event.duration_s * 1000:.0f} ms"
        outcome = f"failed ({clean(event.result.rc)})" if event.result.is_error else "done"
        cut = ", output cut" if event.truncated else ""
        self._line(f"{INDENT}{outcome}, {took}{cut}", "dim")

    def _some(self, folded: Folded, count: int) -> list[str]:
        """Write the first lines and return those that are left."""
        for line in folded.lines[:count]:
            self._line(f"{INDENT}{line}", folded.style)
        return folded.lines[count:]

    def _line(self, text: str, style: str = "plain") -> None:
        """Write one line, on a screen broken between words and set in like its beginning."""
        if self._is_line_open:
            self._write("\n")
            self._is_line_open = False
        lines = [clean(text)]
        if self._look.rich:
            lines = wrap(lines[0], self._size()[0])
        self._write("".join(f"{self._look.style(style, line)}\n" for line in lines))

    def _write(self, text: str) -> None:
        self._waiting.clear()
        self._out.write(text)
        self._out.flush()


def _terminal_size() -> tuple[int, int]:
    size = shutil.get_terminal_size()
    return max(size.columns, 20), max(size.lines, 4)


def _summary(call: CallItem, sign: str = "●") -> str:
    return f"{sign} {call_summary(call.name, call.arguments)}".replace("\n", "⏎")
