"""The output formats of `treadle run`: streamed text, one JSON object, or one event a line; and the exit code."""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ItemAdded,
    Noted,
    RefusalDelta,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolFinished,
)
from treadle.core.items import MessageItem
from treadle.core.journal_entries import call_summary
from treadle.core.json import write_json
from treadle.core.usage import Usage
from treadle.protocols.stream_deduplication import ReplayDiff
from treadle.terminal import exit_codes as exits
from treadle.terminal.rendering.event_messages import ANSWERS_ANEW, error_lines, limit_text, note_text
from treadle.terminal.rendering.jsonl_output import finished_line, line_of
from treadle.terminal.rendering.progress_line import ProgressLine
from treadle.terminal.rendering.sanitize import clean
from treadle.terminal.rendering.styles import detect_style

if TYPE_CHECKING:
    from treadle.terminal.conversation.host_interface import SessionInfo

_STATUS_CODES = {"completed": exits.OK, "cancelled": exits.CANCELLED}
_CUT_WORDS = {"length": "the model reached its length limit", "filtered": "the provider's filter stopped the answer"}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What `--output json` prints."""

    session: str | None
    run: str
    result: str
    status: str
    limit: str | None
    usage: Usage | None
    cost: float | None
    error: ErrorInfo | None


class RunOutput:
    """Follows a turn. `out` gets what was asked for, `notes` what a person may want to know."""

    def __init__(self, out: TextIO, notes: TextIO) -> None:
        self.out = out
        self.notes = notes
        self.waiting = ProgressLine(notes, is_shown=detect_style(notes, os.environ).rich)
        self.limit: str | None = None
        self.error: ErrorInfo | None = None
        self.cost: float | None = None
        self._is_line_open = False
        self._began = time.monotonic()
        self._session: SessionInfo | None = None
        self._run_id = ""
        self._ended: RunEnded | None = None
        self._is_denied = False
        self._pieces: list[str] = []
        self._mend = ReplayDiff(closes=True)
        self._round = self._round_at = self._withdrawable = 0

    def begin(self, session: "SessionInfo | None", model: str) -> None:
        """Set the conversation of the turn."""
        self._session = session

    def write(self, event: RunEvent) -> None:
        """Write one event; what a repeated model call produces again is written once."""
        self.waiting.follow(event)
        if isinstance(event, RunStarted):
            self._mend = ReplayDiff(closes=True)
        for each in self._mend.feed(event):
            self._take(each)

    def _take(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self._run_id = event.run_id
            case RoundStarted() if event.round != self._round:
                self._round, self._round_at, self._withdrawable = event.round, len(self._pieces), 0
            case RoundBroken():
                # The repeated model call answers differently, so its first text does not count.
                del self._pieces[self._round_at :]
                self._withdraw(self._withdrawable)
                self._withdrawable = 0
            case ItemAdded() if self._pieces and isinstance(event.item, MessageItem):
                self._write_text("\n\n")
            case TextDelta() | RefusalDelta():
                self._withdrawable += len(event.text)
                self._write_text(event.text)
            case ToolFinished():
                self._is_denied = self._is_denied or event.result.rc == "denied"
            case RunEnded():
                self._ended = event
            case _:
                pass

    def finish(self) -> None:
        """Write what comes last."""
        self.waiting.clear()

    def fail(self, error: ErrorInfo) -> None:
        """Note that there is no turn; JSON output writes the error, the other formats leave that to the command."""
        self.waiting.clear()

    def tick(self) -> None:
        """Update the status line, unless it would stand in the middle of text."""
        if not self._is_line_open:
            self.waiting.tick()

    def progress(self, text: str) -> None:
        """Set the progress text of a tool."""
        self.waiting.activity.progress(text)

    def printed(self, line: str) -> None:
        """Pass on a line that a tool printed."""
        self._note(clean(line))

    @property
    def ended(self) -> RunEnded | None:
        """Return how the run ended, once it has."""
        return self._ended

    @property
    def seconds(self) -> float:
        """Return how long the turn lasts."""
        return time.monotonic() - self._began

    @property
    def text(self) -> str:
        """Return the whole answer so far."""
        return "".join(self._pieces)

    @property
    def result(self) -> Result:
        """Return the turn in one object."""
        ended = self._ended
        return Result(
            session=None if self._session is None else self._session.id,
            run=self._run_id,
            result=self.text,
            status=ended.status if ended else "failed",
            limit=self.limit or (ended.limit if ended else None),
            usage=ended.usage if ended else None,
            cost=self.cost,
            error=self.error or (ended.error if ended else None),
        )

    @property
    def exit_code(self) -> int:
        """Return how the turn ended, as a number."""
        result = self.result
        if self.limit is not None:
            return exits.LIMIT
        code = _STATUS_CODES.get(result.status, exits.ERROR)
        if code != exits.OK or result.error is not None:
            return code or exits.ERROR
        if result.limit is not None:
            return exits.LIMIT
        return exits.DENIED if self._is_denied else exits.OK

    def note(self, text: str) -> None:
        """Write a line for the person at the terminal."""
        self._note(f"treadle: {clean(text)}")

    def _note(self, line: str) -> None:
        self.waiting.clear()
        if self._is_line_open:
            self.notes.write("\n")
            self._is_line_open = False
        print(line, file=self.notes, flush=True)

    def note_end(self) -> None:
        """Write how the turn ended, if not simply with an answer."""
        result, ended = self.result, self._ended
        if result.error is not None:
            first, *more = error_lines(result.error)
            self._note("\n".join([f"treadle: {first}", *more]))
        elif result.limit is not None:
            self.note(f"the limit {limit_text(result.limit)} was reached; the answer may be incomplete")
        elif ended is not None and ended.status == "incomplete":
            self.note(f"{_CUT_WORDS.get(ended.stop, 'the answer was cut')}; the answer is incomplete")
        elif ended is not None and ended.status == "cancelled":
            self.note("cancelled")

    def _write_text(self, text: str) -> None:
        self._pieces.append(text)

    def _withdraw(self, chars: int) -> None:
        """Write that the end of the answer, of this length, does not count."""


class PlainTextOutput(RunOutput):
    """The answer as it streams; calls and errors as notes."""

    def _take(self, event: RunEvent) -> None:
        super()._take(event)
        match event:
            case ToolFinished():
                call = call_summary(event.call.name, event.call.arguments)
                self.note(f"{call} → {event.result.rc}, {event.duration_s * 1000:.0f} ms")
            case Noted():
                self.note(note_text(event.note))
            case _:
                pass

    def finish(self) -> None:
        """End the last line of the answer, then write how the turn ended."""
        super().finish()
        if self._pieces and not self.text.endswith("\n"):
            self._put("\n")
        self.note_end()

    def _write_text(self, text: str) -> None:
        super()._write_text(text)
        if text:
            self._put(clean(text))

    def _withdraw(self, chars: int) -> None:
        if chars:
            self._put("\n")
            self.note(ANSWERS_ANEW)

    def _put(self, text: str) -> None:
        """Write some of the answer; where it shares a screen with the notes, they must know of an open line."""
        self.waiting.clear()
        self.out.write(text)
        self.out.flush()
        self._is_line_open = self.out.isatty() and not text.endswith("\n")


class JsonWriter(RunOutput):
    """One JSON object at the end."""

    def fail(self, error: ErrorInfo) -> None:
        """Write the object with the error."""
        self.error = error
        self.finish()

    def finish(self) -> None:
        """Write the object."""
        super().finish()
        self.out.write(write_json(self.result).decode() + "\n")
        self.out.flush()


class JsonlWriter(RunOutput):
    """Every event on a line of its own, at once; `jsonl_output.DOCUMENTED` lists them."""

    def begin(self, session: "SessionInfo | None", model: str) -> None:
        """Write the conversation."""
        super().begin(session, model)
        about = {"session": None, "name": ""} if session is None else {"session": session.id, "name": session.name}
        self._line({"type": "session.started", **about, "model": model})

    def _take(self, event: RunEvent) -> None:
        super()._take(event)
        if (line := line_of(event)) is not None:
            self._line(line)

    def _withdraw(self, chars: int) -> None:
        if chars:
            self._line({"type": "text.withdrawn", "chars": chars})

    def fail(self, error: ErrorInfo) -> None:
        """Write the error."""
        self.error = error
        self.finish()

    def progress(self, text: str) -> None:
        """Write the progress of a tool."""
        self._line({"type": "tool.output.delta", "text": text})

    def finish(self) -> None:
        """Write the end, and the error if there is one."""
        super().finish()
        result = self.result
        if result.error is not None:
            error = result.error
            self._line({"type": "error", "code": error.code, "message": error.message, "hint": error.hint})
        if self._ended is not None:
            ended = msgspec.structs.replace(self._ended, limit=result.limit)
            self._line(finished_line(ended, self.cost, self.seconds))

    def _line(self, value: dict[str, Any]) -> None:
        self.waiting.clear()
        self.out.write(write_json(value).decode() + "\n")
        self.out.flush()


WRITERS: dict[str, Callable[[TextIO, TextIO], RunOutput]] = {
    "text": PlainTextOutput,
    "json": JsonWriter,
    "jsonl": JsonlWriter,
}
