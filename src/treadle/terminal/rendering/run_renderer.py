"""Renders the events of a run: text, calls with arguments, results, and a line about the turn.

Finished lines are written once and never touched again, so that the scrollback stays true. Only the open block of
text is painted over, by the surface, when it likes.
"""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ApprovalDecided,
    ItemAdded,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.items import CallItem, MessageItem, ResultItem, text_of
from treadle.core.journal_entries import CONTENT_BYTES_MAX, Entry, call_summary, item_of_entry
from treadle.protocols.stream_deduplication import ReplayDiff
from treadle.terminal.permissions.remembered_permissions import POLICY
from treadle.terminal.rendering.approval_card import Line
from treadle.terminal.rendering.code_highlighting import HighlightedCode, language_of
from treadle.terminal.rendering.event_messages import ANSWERS_ANEW, error_lines, limit_text, note_text, plural
from treadle.terminal.rendering.sanitize import clean
from treadle.terminal.rendering.streaming_markdown import Block, Blocks, chop, render, wrap
from treadle.terminal.rendering.tool_results import Folded, FoldedResults, bounded, result_lines

if TYPE_CHECKING:
    from treadle.terminal.rendering.drawing_surface import DrawingSurface
    from treadle.terminal.rendering.styles import TextStyle

FOLDED_MAX = 20
SAID_LINES_MAX = 20
INDENT = "  "
_VERDICTS = {"approved": "approved", "denied": "denied", "expired": "expired, nobody decided in time"}


class RunRenderer:
    """Shows one turn after the other on a surface."""

    def __init__(
        self, surface: "DrawingSurface", text_style: "TextStyle", *, folds: FoldedResults | None = None
    ) -> None:
        self.text_style = text_style
        self.answer = ""
        self._surface = surface
        self._folds = folds or FoldedResults()
        self._blocks = Blocks()
        self._code = HighlightedCode("", text_style)
        self._folded: deque[Folded] = deque(maxlen=FOLDED_MAX)
        self._last_call = ""
        self._is_thinking = False
        self._is_line_open = False
        self._mend = ReplayDiff(closes=True)
        self._round = self._round_at = 0

    def show(self, event: RunEvent) -> None:
        """Show one event; what a repeated model call produces again is shown once."""
        if isinstance(event, RunStarted):
            self._mend = ReplayDiff(closes=True)
        for each in self._mend.feed(event):
            self._show(each)

    def _show(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self._folded.clear()
                self.answer = ""
                self._round = self._round_at = 0
            case RoundStarted() if event.round != self._round:
                self._round, self._round_at = event.round, len(self.answer)
            case TextDelta() | RefusalDelta():
                self.answer += event.text
                self._text(clean(event.text))
            case ItemAdded() if isinstance(event.item, MessageItem):
                self._close_text()
                self.answer += "\n\n" if self.answer else ""
            case ReasoningDelta():
                self._thinking()
            case ToolStarted():
                self._call(event.call)
            case ToolFinished():
                self._result(event)
            case ApprovalDecided():
                self._decided(event)
            case RoundBroken():
                self._close_text()
                if len(self.answer) > self._round_at:
                    self._line(ANSWERS_ANEW, "dim")
                self.answer = self.answer[: self._round_at]
            case Noted():
                self._line(f"note: {note_text(event.note)}", "dim")
            case RunEnded():
                self._close_text()
            case _:
                pass

    def print_prompt(self, text: str) -> None:
        """Write the person's message; of a long paste only the beginning."""
        self._close_text()
        first, *more = clean(text).rstrip("\n").split("\n")
        left = len(more) - SAID_LINES_MAX
        self._surface.write("\n")
        self._line(f"> {first}", "person")
        for line in more[:SAID_LINES_MAX] if left > 1 else more:
            self._line(f"{INDENT}{line}", "person")
        if left > 1:
            self._line(f"{INDENT}… {plural(left, 'more line')}, sent whole", "dim")

    def status(self, words: Iterable[str], ended: RunEnded) -> None:
        """Write the line about a finished turn."""
        self._close_text()
        if ended.error is not None:
            self.error(ended.error)
        parts = [*words]
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

    def print_line(self, text: str, style: str = "plain") -> None:
        """Write lines of our own."""
        self._close_text()
        for line in text.splitlines():
            self._line(line, style)

    def lines(self, lines: Iterable[Line]) -> None:
        """Write lines, each in its style."""
        self._close_text()
        for style, text in lines:
            self._line(text, style)

    def document(self, text: str) -> None:
        """Write a whole markdown text."""
        self._close_text()
        self._text(clean(text))
        self._close_text()

    def printed(self, line: str) -> None:
        """Write a line that a tool printed."""
        self._close_text()
        self._line(f"{INDENT}printed: {bounded(line)}", "dim")

    def recall(self, entries: Iterable[Entry]) -> None:
        """Write earlier messages as they were shown."""
        for entry in entries:
            item = item_of_entry(entry)
            match item:
                case MessageItem(role="user"):
                    self.print_prompt(text_of(item.content))
                case MessageItem(role="assistant"):
                    self.answer = text_of(item.content)
                    self.document(self.answer)
                case CallItem():
                    self._call(item)
                case ResultItem():
                    self._show_result(CallItem(call_id=item.call_id, name=item.name), item)
                case _:
                    pass

    def unfold(self) -> None:
        """Write more of the last result of this turn that was not shown whole; then of the one before it."""
        if not self._folded:
            self.print_line("nothing is folded")
            return
        folded = self._folded.pop()
        self._line(_summary(folded.call), "call")
        left = self._some(folded, self._folds.full_lines)
        if left:
            self._folded.append(msgspec.structs.replace(folded, lines=left))
            self._line(f"{INDENT}… {plural(len(left), 'more line')} (Ctrl-O or /full goes on)", "dim")

    def _text(self, text: str) -> None:
        self._is_thinking = False
        if not self.text_style.rich:
            self._surface.write(text)
            self._is_line_open = not text.endswith("\n") if text else self._is_line_open
            return
        self._commit(self._blocks.feed(text))

    def _commit(self, done: list[Block]) -> None:
        """Write finished blocks for good and leave the open one to the surface."""
        width = self._surface.size()[0]
        if done:
            self._surface.write("".join(self._finished(block, width) for block in done))
        self._surface.paint(self._open_lines if self._blocks.open_text.strip() else None)

    def _finished(self, block: Block, width: int) -> str:
        """Write a block as it stays: code is set in by two columns, and its fences are not shown."""
        match block.kind:
            case "markdown":
                return f"{render(block.text, width, self.text_style)}\n\n"
            case "code":
                return f"{INDENT}{self._code.line(block.text)}\n" if block.text else "\n"
            case "opened":
                self._code = HighlightedCode(language_of(block.text), self.text_style)
                return ""
            case "closed":
                return "\n"

    def _open_lines(self, width: int, height: int) -> list[str]:
        text = self._blocks.open_text
        if not text.strip():
            return []
        if self._blocks.is_code:
            lines = [self._code.plain(piece) for piece in chop(f"{INDENT}{text}", width)]
        else:
            lines = render(text, width, self.text_style).split("\n")
        return lines[-height:]

    def _close_text(self) -> None:
        """Finish the open text, so that a line of another kind can follow."""
        self._is_thinking = False
        if self.text_style.rich:
            done = self._blocks.finish()
            if done:
                self._commit(done)
        elif self._is_line_open:
            self._surface.write("\n")
        self._is_line_open = False

    def _thinking(self) -> None:
        if not self._is_thinking:
            self._close_text()
            self._line("thinking …", "dim")
            self._is_thinking = True

    def _call(self, call: CallItem) -> None:
        self._close_text()
        self._last_call = call.call_id
        self._line(_summary(call), "call")
        if len(call.arguments) > CONTENT_BYTES_MAX:
            self._folded.append(Folded(call=call, lines=result_lines(call.arguments, "call")))
            self._line(f"{INDENT}… {plural(len(call.arguments), 'character')} (Ctrl-O or /full shows them)", "dim")

    def _decided(self, event: ApprovalDecided) -> None:
        """Write who decided, where it was not simply refused for want of a person to ask."""
        if not event.approval_id:
            return
        by = f" by {event.by}" if event.by else ""
        why = f": {event.reason}" if event.reason else ""
        self._close_text()
        self._line(f"{INDENT}{event.call.name} {_VERDICTS.get(event.status, event.status)}{by}{why}", "dim")
        if event.arguments is not None and not event.by.startswith(POLICY):
            self._line(f"{INDENT}changed to {event.call.name}({bounded(event.arguments)})", "call")

    def _result(self, event: ToolFinished) -> None:
        """Write a result, below its call or, where another line stands between, below its name."""
        self._close_text()
        if self._last_call != event.call.call_id:
            self._line(_summary(event.call, "↳"), "call")
        self._show_result(event.call, event.result)
        took = f"{event.duration_s * 1000:.0f} ms"
        outcome = f"failed ({clean(event.result.rc)})" if event.result.is_error else "done"
        cut = ", output cut" if event.truncated else ""
        self._line(f"{INDENT}{outcome}, {took}{cut}", "dim")

    def _show_result(self, call: CallItem, result: ResultItem) -> None:
        self._last_call = ""
        style = "error" if result.is_error else "dim"
        whole = Folded(call=call, lines=result_lines(text_of(result.output), style))
        left = self._some(whole, self._folds.preview_lines)
        if left:
            self._folded.append(msgspec.structs.replace(whole, lines=left))
            self._line(f"{INDENT}… {plural(len(left), 'more line')} (Ctrl-O or /full shows them)", "dim")

    def _some(self, folded: Folded, count: int) -> list[Line]:
        """Write the first lines and return those that are left."""
        for style, line in folded.lines[:count]:
            self._line(f"{INDENT}{line}", style)
        return folded.lines[count:]

    def _line(self, text: str, style: str = "plain") -> None:
        """Write one line, on a screen broken between words and set in like its beginning."""
        if self._is_line_open:
            self._surface.write("\n")
            self._is_line_open = False
        lines = [clean(text)]
        if self.text_style.rich:
            lines = wrap(lines[0], self._surface.size()[0])
        self._surface.write("".join(f"{self.text_style.style(style, line)}\n" for line in lines))


def _summary(call: CallItem, sign: str = "●") -> str:
    return f"{sign} {call_summary(call.name, call.arguments)}".replace("\n", "⏎")
