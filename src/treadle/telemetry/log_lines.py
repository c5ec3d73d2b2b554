"""The format of log lines, and a handler that writes them in batches.

Arguments and results of tools and API keys are never logged; names and sizes are.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import TextIO

from treadle.telemetry.redaction import Redactor

WAIT_S = 0.02
"""How long a line waits for others before the batch is written."""
WAITING_MAX = 64
"""How many lines are written at once: this blocks the event loop for less than a millisecond."""
PIPE_BYTES = 4_096
"""What a pipe writes atomically (PIPE_BUF): workers share one, and must not interleave their lines."""

_BLANK = vars(logging.LogRecord("", logging.NOTSET, "", 0, "", (), None))
"""The attributes that every record has before its `extra`."""


class Line(logging.LogRecord):
    """A record for a line that every request logs; its `fields` are its `extra`.

    It has no thread, process or source location: finding those takes longer than everything else about the line.
    """

    __slots__ = ("fields",)

    def __init__(
        self, logger: logging.Logger, level: int, message: str, args: tuple[object, ...], fields: dict[str, object]
    ) -> None:
        self.fields = fields
        now = time.time()
        own = {
            "name": logger.name,
            "msg": message,
            "args": args,
            "levelname": logging.getLevelName(level),
            "levelno": level,
            "created": now,
            "msecs": now % 1 * 1000,
            "relativeCreated": (now - _BLANK["created"]) * 1000,
        }
        self.__dict__ = _BLANK | own | fields


def log_line(logger: logging.Logger, level: int, fields: dict[str, object], message: str, *args: object) -> None:
    """Log a line that every request logs, with less overhead; the caller has checked that the level is enabled."""
    logger.handle(Line(logger, level, message, args, fields))


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, message, and the fields of `extra`."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        super().__init__()
        self._redactor = redactor or Redactor()

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        line: dict[str, object] = {
            "at": round(record.created * 1000) / 1000,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = record.fields if type(record) is Line else dict(islice(vars(record).items(), len(_BLANK), None))
        line.update(extra if _are_fields(tuple(extra)) else {name: extra[name] for name in extra if _is_field(name)})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return self._redactor.json(line)


_OWN = frozenset(_BLANK) | {"message", "asctime", "taskName", "at", "level", "logger"}
"""Names that `extra` cannot set: the standard parts of a line, and attributes of records and formatters."""


def _is_field(name: str) -> bool:
    return name not in _OWN and not name.startswith("_")


@lru_cache(maxsize=256)
def _are_fields(names: tuple[str, ...]) -> bool:
    """Return whether all names are fields. Cached, because lines of one kind have the same names."""
    return all(map(_is_field, names))


class BatchedLogHandler(logging.Handler):
    """Writes lines in batches of some milliseconds; a warning flushes the batch at once.

    Formatting and writing a line between other work takes twice as long as in a batch.
    """

    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__()
        self._stream = stream
        self._waiting: list[logging.LogRecord] = []
        self._lines = _Lines()
        self._writer = logging.StreamHandler(self._lines)
        self._writer.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record to the batch."""
        self._waiting.append(record)
        count = len(self._waiting)
        if count >= WAITING_MAX or record.levelno >= logging.WARNING:
            self.flush()
        elif count == 1:
            try:
                asyncio.get_running_loop().call_later(WAIT_S, self.flush)
            except RuntimeError:
                self.flush()  # without an event loop no timer would flush it

    def flush(self) -> None:
        """Write the batch. A stream that cannot be written is ignored: there is nowhere left to report it."""
        assert self.lock is not None
        with self.lock:
            waiting, self._waiting = self._waiting, []
            for record in waiting:
                self._writer.emit(record)
            for text in _join_writes(self._lines):
                with contextlib.suppress(OSError, ValueError):
                    self._stream.write(text)
                    self._stream.flush()
            self._lines.clear()

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        super().close()


class _Lines(list[str]):
    """A stream for a `StreamHandler` that collects its lines in a list."""

    def write(self, line: str) -> None:
        """Add a line."""
        self.append(line)


def _join_writes(lines: list[str]) -> Iterator[str]:
    """Join whole lines to writes of at most `PIPE_BYTES`, unless one line is longer."""
    first = size = 0
    for place, line in enumerate(lines):
        length = len(line.encode("utf-8", "replace"))
        if size and size + length > PIPE_BYTES:
            yield "".join(lines[first:place])
            first, size = place, 0
        size += length
    if size:
        yield "".join(lines[first:])
