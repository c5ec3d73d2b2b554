"""How log lines are written: together where they can wait, at once where they must not."""

import asyncio
import io
import logging
import sys

import msgspec
import pytest

from treadle.telemetry import REDACTED, BatchedLogHandler, JsonLines, Redactor, log_line
from treadle.telemetry.log_lines import PIPE_BYTES, WAITING_MAX


class Paper(io.StringIO):
    """Remembers each write, and tells of it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[str]] = []
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        """Take one write."""
        self.writes.append([msgspec.json.decode(line)["message"] for line in text.splitlines()])
        self.written.set()
        return len(text)


def logger_to(handler: logging.Handler) -> logging.Logger:
    """Return a logger that writes by this handler alone."""
    logger = logging.Logger("treadle.x", logging.INFO)
    logger.addHandler(handler)
    return logger


async def test_lines_are_written_together_soon() -> None:
    """Those of a few milliseconds in one write, in their order; then those after it."""
    paper = Paper()
    logger = logger_to(BatchedLogHandler(paper, JsonLines()))
    for said in (["one", "two", "three"], ["four", "five"]):
        paper.written.clear()
        for word in said:
            logger.info(word)
        await asyncio.wait_for(paper.written.wait(), 5)
    assert paper.writes == [["one", "two", "three"], ["four", "five"]]


async def test_a_warning_does_not_wait() -> None:
    """Whatever comes after it, perhaps the end of the process, it is written, behind what waited."""
    paper = Paper()
    logger = logger_to(BatchedLogHandler(paper, JsonLines()))
    logger.info("before")
    assert paper.writes == []
    logger.warning("beware")
    assert paper.writes == [["before", "beware"]]


def test_where_no_loop_runs_every_line_is_written_at_once() -> None:
    """Nobody would come back to it."""
    paper = Paper()
    logger = logger_to(BatchedLogHandler(paper, JsonLines()))
    logger.info("one")
    logger.info("two")
    assert paper.writes == [["one"], ["two"]]


async def test_only_so_many_lines_wait() -> None:
    """A busy loop must not gather them without end."""
    paper = Paper()
    logger = logger_to(BatchedLogHandler(paper, JsonLines()))
    for number in range(WAITING_MAX):
        logger.info("%d", number)
    assert sum(len(lines) for lines in paper.writes) == WAITING_MAX


async def test_what_waits_is_written_when_logging_ends() -> None:
    """A process that leaves has said everything."""
    paper = Paper()
    handler = BatchedLogHandler(paper, JsonLines())
    logger_to(handler).info("last")
    handler.close()
    assert paper.writes == [["last"]]


async def test_a_line_that_cannot_be_made_is_no_loss_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told of where logging tells of such things."""
    paper, told = Paper(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    logger = logger_to(BatchedLogHandler(paper, JsonLines()))
    logger.info("one")
    logger.info("%d", "no number")
    logger.warning("two")
    assert paper.writes == [["one", "two"]]
    assert "no number" in told.getvalue()


def test_a_broken_stream_breaks_nothing_else() -> None:
    """Whoever logs goes on, though nobody reads the log any more."""
    paper = io.StringIO()
    paper.close()
    logger_to(BatchedLogHandler(paper, JsonLines())).info("into nothing")


def test_what_is_said_with_every_request_is_a_record_like_others(caplog: pytest.LogCaptureFixture) -> None:
    """It has all that formatters may ask for, and its fields."""
    logger = logging.getLogger("treadle.x")
    with caplog.at_level(logging.INFO, "treadle.x"):
        logger.info("%s: %d", "usual", 1)
        log_line(logger, logging.INFO, {"run_id": "run_1"}, "%s: %d", "quick", 2)
    usual, quick = caplog.records
    assert vars(quick).keys() - vars(usual).keys() == {"run_id"}
    assert vars(usual).keys() <= vars(quick).keys()
    assert (quick.name, quick.levelno, quick.levelname) == (usual.name, usual.levelno, usual.levelname)
    assert 0 <= quick.created - usual.created < 5
    assert abs(quick.relativeCreated - usual.relativeCreated) < 60_000
    line = msgspec.json.decode(JsonLines().format(quick))
    expected = {"level": "info", "logger": "treadle.x", "message": "quick: 2", "run_id": "run_1"}
    assert line == {"at": round(quick.created, 3), **expected}


@pytest.mark.parametrize("secret", ['quoted"secret', "back\\slashed", "lines\nof\tit", "schlüssel-ß", "plain-secret"])
def test_a_secret_is_found_however_json_spells_it(secret: str) -> None:
    """Lines are looked through as they are written."""
    record = logging.makeLogRecord({"msg": f"it is {secret}!", "levelname": "INFO", "route": "/x"})
    line = msgspec.json.decode(JsonLines(Redactor([secret])).format(record))
    assert (line["message"], line["route"]) == (f"it is {REDACTED}!", "/x")


def test_a_secret_that_is_no_text_is_not_written_either() -> None:
    """What stands in the environment may be any bytes."""
    record = logging.makeLogRecord({"msg": "it is half\udcffsecret!", "levelname": "INFO"})
    line = msgspec.json.decode(JsonLines(Redactor(["half\udcffsecret", "another"])).format(record))
    assert line["message"] == f"it is {REDACTED}!"


async def test_what_is_written_at_once_is_whole_lines_and_fits_into_a_pipe() -> None:
    """Workers share one stderr: a longer piece could be cut by another's."""
    paper = Paper()
    pieces: list[int] = []
    real = paper.write

    def write(text: str) -> int:
        pieces.append(len(text.encode()))
        return real(text)

    paper.write = write  # type: ignore[method-assign]
    logger = logger_to(BatchedLogHandler(paper, JsonLines()))
    for number in range(WAITING_MAX):
        logger.info("%d %s", number, "ü" * 100)
    assert [message.split()[0] for lines in paper.writes for message in lines] == [*map(str, range(WAITING_MAX))]
    assert max(pieces) <= PIPE_BYTES
    assert len(pieces) < WAITING_MAX / 4
    logger.warning("x" * 2 * PIPE_BYTES)
    assert len(paper.writes[-1]) == 1
