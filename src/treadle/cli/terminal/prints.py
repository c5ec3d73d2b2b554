"""Standard output for one: the answer gets it alone, and what tools print goes another way.

A tool may print whenever it likes, from any thread or from a program that it starts. On standard output that would
stand in the middle of the answer, or of the JSON that another program reads.
"""

import asyncio
import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable, Generator
from typing import TextIO

LINE_CHARS_MAX = 2_000


@contextlib.contextmanager
def own_stdout() -> Generator[TextIO]:
    """Lend standard output to the caller alone: what anybody else writes there comes out on standard error."""
    shared, notes = sys.stdout, sys.stderr
    try:
        number, other = shared.fileno(), notes.fileno()
        shared.flush()
    except (OSError, ValueError, AttributeError):  # not a real stream, as in a test
        with contextlib.redirect_stdout(notes):
            yield shared
        return
    kept = os.dup(number)
    # Another program may have made the pipe non-blocking; then a slow reader would cut our output.
    with contextlib.suppress(OSError):
        os.set_blocking(kept, True)
    with open(kept, "w", encoding=shared.encoding, errors=shared.errors) as out:
        os.dup2(other, number)
        try:
            with contextlib.redirect_stdout(notes):
                yield out
        finally:
            os.dup2(kept, number)


class Prints(io.TextIOBase):
    """Stands in for `sys.stdout`: hands each printed line to the loop that it was made in."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._line = ""

    def writable(self) -> bool:
        """Say yes."""
        return True

    def fileno(self) -> int:
        """Return where a program that a tool starts may write."""
        return sys.stderr.fileno()

    def write(self, text: str, /) -> int:
        """Take in what was printed; a line is told when it is complete, or too long."""
        with self._lock:
            *lines, self._line = (self._line + text).split("\n")
            if len(self._line) > LINE_CHARS_MAX:
                lines.append(self._line)
                self._line = ""
        for line in lines:
            # A thread may outlive the loop; then nobody watches any more.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell, line)
        return len(text)

    def finish(self) -> None:
        """Tell the line that is still open; only for the loop itself."""
        line, self._line = self._line, ""
        if line:
            self._tell(line)
