"""The form of log lines. Arguments, results and keys are never logged; sizes and names are."""

import logging
from itertools import islice

import msgspec

from treadle.telemetry.redaction import Redactor


class JsonLines(logging.Formatter):
    """Log records as one JSON object a line: time, level, logger, message, and the fields given as `extra`."""

    _usual = len(vars(logging.makeLogRecord({})))
    _plain = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
    """What every record has, before its `extra`; formatters may add to it."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        super().__init__()
        self._redactor = redactor or Redactor()

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        line: dict[str, object] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in islice(vars(record).items(), self._usual, None):
            if name not in self._plain and name not in line and not name.startswith("_"):
                line[name] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(self._redactor.fields(line)).decode()
