"""What `treadle run` writes: text as it streams, one JSON object, or one event a line; and the exit code of a run."""

from collections.abc import Callable
from typing import TextIO

import msgspec

from treadle.canon.errors import ErrorInfo
from treadle.canon.events import ItemAdded, Noted, RefusalDelta, RunEnded, RunEvent, RunStarted, TextDelta, ToolFinished
from treadle.canon.items import MessageItem
from treadle.canon.messages import call_summary
from treadle.canon.usage import Usage
from treadle.cli import command
from treadle.cli.terminal.clean import clean

_STATUS_CODES = {"completed": command.OK, "cancelled": command.CANCELLED}
_CUT_WORDS = {"length": "the model reached its length limit", "filtered": "the provider's filter stopped the answer"}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What `--output json` prints."""

    run_id: str
    response_id: str
    text: str
    usage: Usage | None
    status: str
    limit: str | None
    error: ErrorInfo | None


class Writer:
    """Follows a run. `out` gets what was asked for, `notes` what a person may want to know."""

    def __init__(self, out: TextIO, notes: TextIO) -> None:
        self.out = out
        self.notes = notes
        self._started: RunStarted | None = None
        self._ended: RunEnded | None = None
        self._is_denied = False
        self._pieces: list[str] = []

    def write(self, event: RunEvent) -> None:
        """Take in one event."""
        match event:
            case RunStarted():
                self._started = event
            case ItemAdded() if self._pieces and isinstance(event.item, MessageItem):
                self._say("\n\n")
            case TextDelta() | RefusalDelta():
                self._say(event.text)
            case ToolFinished():
                self._is_denied = self._is_denied or event.result.rc == "denied"
            case RunEnded():
                self._ended = event
            case _:
                pass

    def finish(self) -> None:
        """Write what comes last."""

    @property
    def text(self) -> str:
        """Return the whole answer so far."""
        return "".join(self._pieces)

    @property
    def result(self) -> Result:
        """Return the run in one object."""
        started, ended = self._started, self._ended
        return Result(
            run_id=started.run_id if started else "",
            response_id=started.response_id if started else "",
            text=self.text,
            usage=ended.usage if ended else None,
            status=ended.status if ended else "failed",
            limit=ended.limit if ended else None,
            error=ended.error if ended else None,
        )

    @property
    def exit_code(self) -> int:
        """Return how the run ended, as a number."""
        result = self.result
        code = _STATUS_CODES.get(result.status, command.ERROR)
        if code != command.OK:
            return code
        if result.limit is not None:
            return command.LIMIT
        return command.DENIED if self._is_denied else command.OK

    def note(self, text: str) -> None:
        """Tell the person at the terminal."""
        print(f"treadle: {clean(text)}", file=self.notes, flush=True)

    def note_end(self) -> None:
        """Tell how the run ended, where that is not simply an answer."""
        ended = self._ended
        if ended is None:
            return
        if ended.error is not None:
            self.note(ended.error.message)
            if ended.error.hint:
                print(f"  hint: {clean(ended.error.hint)}", file=self.notes)
        elif ended.limit is not None:
            self.note(f"the limit {ended.limit} was reached; the answer may be incomplete")
        elif ended.status == "incomplete":
            self.note(f"{_CUT_WORDS.get(ended.stop, 'the answer was cut')}; the answer is incomplete")
        elif ended.status == "cancelled":
            self.note("cancelled")

    def _say(self, text: str) -> None:
        self._pieces.append(text)


class TextWriter(Writer):
    """The answer as it streams; calls and trouble as notes."""

    def write(self, event: RunEvent) -> None:
        """Take in one event."""
        super().write(event)
        match event:
            case ToolFinished():
                call = call_summary(event.call.name, event.call.arguments)
                self.note(f"{call} → {event.result.rc}, {event.duration_s * 1000:.0f} ms")
            case Noted():
                self.note(event.note.message)
            case _:
                pass

    def finish(self) -> None:
        """End the last line of the answer, then tell how it ended."""
        if self._pieces and not self.text.endswith("\n"):
            self.out.write("\n")
        self.out.flush()
        self.note_end()

    def _say(self, text: str) -> None:
        super()._say(text)
        self.out.write(clean(text))
        self.out.flush()


class JsonWriter(Writer):
    """One object when all is over."""

    def finish(self) -> None:
        """Write the object."""
        self.out.write(msgspec.json.encode(self.result).decode() + "\n")
        self.out.flush()


class JsonlWriter(Writer):
    """Every event on a line of its own, at once."""

    def write(self, event: RunEvent) -> None:
        """Take in one event and write it."""
        super().write(event)
        self.out.write(msgspec.json.encode(event).decode() + "\n")
        self.out.flush()


WRITERS: dict[str, Callable[[TextIO, TextIO], Writer]] = {"text": TextWriter, "json": JsonWriter, "jsonl": JsonlWriter}
