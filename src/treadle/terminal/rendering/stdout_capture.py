"""Reserves standard output for the answer; what tools print goes elsewhere.

A tool may print whenever it likes, from any thread or from a program that it starts. On standard output that would
stand in the middle of the answer, or of the JSON that another program reads.
"""

import asyncio
import codecs
import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable, Generator
from typing import TextIO

LINE_CHARS_MAX = 2_000
READ_BYTES = 65_536
JOIN_S = 0.2


@contextlib.contextmanager
def own_stdout() -> Generator[TextIO]:
    """Give standard output to the caller alone: what other code writes there goes to standard error."""
    shared, notes = sys.stdout, sys.stderr
    try:
        number, other = shared.fileno(), notes.fileno()
        shared.flush()
    except (OSError, ValueError, AttributeError):  # not a real stream, as in a test
        with contextlib.redirect_stdout(notes):
            yield shared
        return
    saved = os.dup(number)
    # Another program may have made the pipe non-blocking; then a slow reader would cut our output.
    with contextlib.suppress(OSError):
        os.set_blocking(saved, True)
    with open(saved, "w", encoding=shared.encoding, errors=shared.errors) as out:
        os.dup2(other, number)
        try:
            with contextlib.redirect_stdout(notes):
                yield out
        finally:
            os.dup2(saved, number)


@contextlib.contextmanager
def capture_prints(on_line: Callable[[str], None]) -> Generator[None]:
    """Keep other output off the screen: lines that tools print to it are passed to the callback.

    Only where standard error is the screen too; a person who sent it elsewhere wants it there.
    """
    if not _is_screen(sys.stderr):
        with contextlib.redirect_stdout(PrintedLines(on_line)):
            yield
        return
    reader, writer = os.pipe()
    saved = {number: os.dup(number) for number in (1, 2)}
    for number in saved:
        os.dup2(writer, number)
    os.close(writer)
    prints = PrintedLines(on_line)
    copying = threading.Thread(target=_copy, args=(reader, prints), name="treadle-prints", daemon=True)
    copying.start()
    try:
        with contextlib.redirect_stdout(prints), contextlib.redirect_stderr(prints):
            yield
    finally:
        for number, screen in saved.items():
            os.dup2(screen, number)
            os.close(screen)
        # A program that outlives its tool holds the pipe: it is not waited for.
        copying.join(timeout=JOIN_S)
        prints.finish()


def _is_screen(stream: TextIO | None) -> bool:
    try:
        return stream is not None and os.isatty(2) and stream.fileno() == 2
    except (OSError, ValueError):
        return False


def _copy(reader: int, prints: "PrintedLines") -> None:
    """Copy what comes through a pipe; in a thread, so that a program that prints much never waits for the loop."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with contextlib.suppress(OSError):
        while data := os.read(reader, READ_BYTES):
            prints.write(decoder.decode(data))
    os.close(reader)


class PrintedLines(io.TextIOBase):
    """Replaces `sys.stdout`: passes each printed line to the loop that it was created in."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._line = ""
        self._errors = 2
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._errors = sys.stderr.fileno()

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return where a program that a tool starts may write."""
        return self._errors

    def write(self, text: str, /) -> int:
        """Buffer printed text; pass on each line that is complete or too long."""
        with self._lock:
            *lines, self._line = (self._line + text).replace("\r\n", "\n").split("\n")
            if len(self._line) > LINE_CHARS_MAX:
                lines.append(self._line)
                self._line = ""
        for line in lines:
            # The thread may outlive the loop; then the rest is dropped.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._on_line, line)
        return len(text)

    def finish(self) -> None:
        """Pass on the unfinished line; only for the loop itself."""
        line, self._line = self._line, ""
        if line:
            self._on_line(line)
