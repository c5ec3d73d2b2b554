"""The form of log lines, and how they are written. What tools are given and give is never logged, nor keys; sizes and
names are."""

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
"""How long a line waits for others to be written with it."""
WAITING_MAX = 64
"""So many are written at once: it takes less than a millisecond, in which nothing else is done."""
PAGE_BYTES = 4_096
"""What a pipe takes in one piece: workers share one, and a line must not end in the middle of another's."""

_BLANK = vars(logging.LogRecord("", logging.NOTSET, "", 0, "", (), None))
"""What every record has, before its `extra`."""


class Line(logging.LogRecord):
    """A record for what is logged with every request. It does not say which thread, process or place in the code it is
    from: to find that out takes longer than all the rest. Its `fields` are its `extra`."""

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
    """Log what is logged with every request; whoever asks knows that the level is enabled."""
    logger.handle(Line(logger, level, message, args, fields))


class JsonLines(logging.Formatter):
    """Log records as one JSON object a line: time, level, logger, message, and the fields given as `extra`."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        super().__init__()
        self._redactor = redactor or Redactor()

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
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
"""What is no field, whoever says so: parts of every line, and what every record has or formatters add to it."""


def _is_field(name: str) -> bool:
    return name not in _OWN and not name.startswith("_")


@lru_cache(maxsize=256)
def _are_fields(names: tuple[str, ...]) -> bool:
    """Tell whether all of them are; lines of one kind have the same."""
    return all(map(_is_field, names))


class BatchedLogHandler(logging.Handler):
    """Writes the lines of some milliseconds at once, and a warning at once with whatever waits.

    To make and write one line between other work takes twice as long as among its like.
    """

    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__()
        self._stream = stream
        self._waiting: list[logging.LogRecord] = []
        self._lines = _Lines()
        self._writer = logging.StreamHandler(self._lines)
        self._writer.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record."""
        self._waiting.append(record)
        count = len(self._waiting)
        if count >= WAITING_MAX or record.levelno >= logging.WARNING:
            self.flush()
        elif count == 1:
            try:
                asyncio.get_running_loop().call_later(WAIT_S, self.flush)
            except RuntimeError:
                self.flush()  # nobody would come back to it

    def flush(self) -> None:
        """Write what waits. Where nothing can be written nobody can be told."""
        assert self.lock is not None
        with self.lock:
            waiting, self._waiting = self._waiting, []
            for record in waiting:
                self._writer.emit(record)
            for page in _pages(self._lines):
                with contextlib.suppress(OSError, ValueError):
                    self._stream.write(page)
                    self._stream.flush()
            self._lines.clear()

    def close(self) -> None:
        """Write what waits, and leave."""
        self.flush()
        super().close()


class _Lines(list[str]):
    """Where a handler writes lines: they stay there, each by itself."""

    def write(self, line: str) -> None:
        """Keep one."""
        self.append(line)


def _pages(lines: list[str]) -> Iterator[str]:
    """Join lines, whole, to pieces that are written at once."""
    first = size = 0
    for place, line in enumerate(lines):
        length = len(line.encode("utf-8", "replace"))
        if size and size + length > PAGE_BYTES:
            yield "".join(lines[first:place])
            first, size = place, 0
        size += length
    if size:
        yield "".join(lines[first:])
