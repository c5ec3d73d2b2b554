"""The events of a run as a person sees them: text, calls with their arguments, results, and a line about the turn.

Finished lines are written once and never touched again, so that the scrollback stays true. Only the open block of
text is painted over, at most 20 times a second and never beyond the height of the screen.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO, cast

import msgspec

from treadle.canon.errors import ErrorInfo
from treadle.canon.events import (
    ItemAdded,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    RunEnded,
    RunEvent,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.canon.items import MessageItem, text_of
from treadle.canon.json import BadJson, read_json, write_json
from treadle.canon.messages import call_summary
from treadle.cli.terminal.clean import clean
from treadle.cli.terminal.markdown import Block, Blocks, render

FRAME_S = 0.05
LINE_CHARS_MAX = 2_000
_STYLES = {"call": "36", "dim": "2", "error": "31", "code": "36", "bold": "1"}


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What this terminal can do: `rich` paints and renders, `colour` uses colours."""

    rich: bool = False
    colour: bool = False

    def style(self, name: str, text: str) -> str:
        """Return the text in a style."""
        return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if self.colour and text else text


def look_of(out: TextIO, env: Mapping[str, str]) -> Look:
    """Find out what a terminal can do: NO_COLOR, TERM=dumb and anything that is no terminal are honoured."""
    is_screen = out.isatty() and env.get("TERM", "dumb") not in ("dumb", "")
    return Look(rich=is_screen, colour=is_screen and not env.get("NO_COLOR"))


class Screen:
    """Shows one turn after the other on a stream."""

    def __init__(
        self,
        out: TextIO,
        look: Look,
        *,
        fold_lines: int = 200,
        clock: Callable[[], float] = time.monotonic,
        size: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self._out = out
        self._look = look
        self._fold_lines = fold_lines
        self._clock = clock
        self._size = size or _terminal_size
        self._blocks = Blocks()
        self._painted = 0
        self._painted_at = float("-inf")
        self._last_call = ""
        self._is_thinking = False
        self._is_line_open = False

    def show(self, event: RunEvent) -> None:
        """Show what one event says."""
        match event:
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
                self._line(self._look.style("dim", f"note: {_one_line(event.note.message)}"))
            case RunEnded():
                self._close_text()
            case _:
                pass

    def status(self, model: str, ended: RunEnded, duration_s: float) -> None:
        """Write the line about a finished turn."""
        self._close_text()
        if ended.error is not None:
            self.error(ended.error)
        parts = [model, *_counts(ended), f"{duration_s * 1000:.0f} ms"]
        if ended.limit is not None:
            parts.append(f"limit reached: {ended.limit}")
        if ended.status not in ("completed", "failed"):
            parts.append(ended.status)
        self._line(self._look.style("dim", clean(" · ".join(parts))))

    def error(self, error: ErrorInfo) -> None:
        """Write an error and the way out of it."""
        self._close_text()
        self._line(self._look.style("error", f"✗ {clean(error.message)}"))
        for line in (error.hint or "").splitlines():
            self._line(f"  hint: {clean(line)}")

    def say(self, text: str) -> None:
        """Write lines of our own."""
        self._close_text()
        for line in text.splitlines():
            self._line(clean(line))

    def _text(self, text: str) -> None:
        self._is_thinking = False
        if not self._look.rich:
            self._out.write(text)
            self._is_line_open = not text.endswith("\n")
            self._out.flush()
            return
        done = self._blocks.feed(text)
        if done or self._clock() - self._painted_at >= FRAME_S:
            self._paint(done)

    def _paint(self, done: list[Block]) -> None:
        """Write finished blocks for good, then the open one, over what was painted of it before."""
        width, height = self._size()
        frame = [self._wipe(), *(f"{self._finished(block, width)}\n" for block in done)]
        lines = self._open_lines(width)[-max(height - 2, 1) :]
        frame.extend(f"{line}\n" for line in lines)
        # Synchronized output (DEC 2026): terminals that know it show the frame at once, others ignore it.
        self._out.write(f"\x1b[?2026h{''.join(frame)}\x1b[?2026l")
        self._out.flush()
        self._painted = len(lines)
        self._painted_at = self._clock()

    def _wipe(self) -> str:
        return f"\x1b[{self._painted}F\x1b[0J" if self._painted else ""

    def _finished(self, block: Block, width: int) -> str:
        if block.kind == "code":
            return self._look.style("code", block.text)
        return f"{render(block.text, width, colour=self._look.colour)}\n"

    def _open_lines(self, width: int) -> list[str]:
        text = self._blocks.open_text
        if not text.strip():
            return []
        if self._blocks.is_code:
            return [self._look.style("code", text[index : index + width]) for index in range(0, len(text), width)]
        return render(text, width, colour=self._look.colour).split("\n")

    def _close_text(self) -> None:
        """Finish the open text, so that a line of another kind can follow."""
        self._is_thinking = False
        if self._look.rich:
            done = self._blocks.finish()
            if done or self._painted:
                self._paint(done)
        elif self._is_line_open:
            self._out.write("\n")
        self._is_line_open = False

    def _thinking(self) -> None:
        if not self._is_thinking:
            self._close_text()
            self._line(self._look.style("dim", "thinking …"))
            self._is_thinking = True

    def _call(self, event: ToolStarted) -> None:
        self._close_text()
        self._last_call = event.call.call_id
        self._line(self._look.style("call", f"● {_one_line(call_summary(event.call.name, event.call.arguments))}"))

    def _result(self, event: ToolFinished) -> None:
        self._close_text()
        head = "" if self._last_call == event.call.call_id else f"{clean(event.call.name)}: "
        lines = _result_lines(text_of(event.result.output))
        style = "error" if event.result.is_error else "dim"
        shown = lines[: self._fold_lines]
        for line in shown:
            self._line(self._look.style(style, f"  {line}"))
        if len(lines) > len(shown):
            self._line(self._look.style("dim", f"  … {len(lines) - len(shown)} more lines"))
        took = f"{event.duration_s * 1000:.0f} ms"
        outcome = f"failed ({clean(event.result.rc)})" if event.result.is_error else "done"
        cut = ", output cut" if event.truncated else ""
        self._line(self._look.style("dim", f"  {head}{outcome}, {took}{cut}"))

    def _line(self, text: str) -> None:
        if self._is_line_open:
            self._out.write("\n")
            self._is_line_open = False
        self._out.write(f"{text}\n")
        self._out.flush()


def _terminal_size() -> tuple[int, int]:
    size = shutil.get_terminal_size()
    return max(size.columns, 20), max(size.lines, 4)


def _counts(ended: RunEnded) -> list[str]:
    usage = ended.usage
    tokens = "tokens unknown" if usage is None else f"{usage.total_tokens} tokens"
    return [_plural(ended.rounds, "round"), _plural(ended.calls, "call"), tokens]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _one_line(text: str) -> str:
    return clean(text).replace("\n", "⏎")


def _result_lines(text: str) -> list[str]:
    """Return a result for people: the `output` of an envelope as lines with the other fields below, else the text."""
    try:
        value: Any = read_json(text) if text.lstrip().startswith("{") else None
    except BadJson:
        value = None
    if isinstance(value, dict) and isinstance(cast("dict[str, Any]", value).get("output"), str):
        fields = cast("dict[str, Any]", value)
        rest = [f"{key}: {write_json(inner).decode()}" for key, inner in fields.items() if key != "output"]
        text = "\n".join([fields["output"].rstrip("\n"), *rest])
    lines = clean(text).split("\n") if text else ["(empty)"]
    return [line if len(line) <= LINE_CHARS_MAX else f"{line[:LINE_CHARS_MAX]} …" for line in lines]
