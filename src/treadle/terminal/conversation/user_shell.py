"""Runs the person's own `!` commands: with their rights, outside the sandbox, output shown line by line."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

LINE_BYTES_MAX = 65_536
POLL_S = 0.05
DRAIN_S = 0.25
"""How long output is still awaited when the command has ended, but something that it started has not."""
KEPT_CHARS_MAX = 1_048_576


class Shell:
    """Runs one command at a time for the person, and holds the output of the last one."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._is_asked = False
        self.command = ""
        self.output = ""

    @property
    def is_running(self) -> bool:
        """Return whether a command is running."""
        return self._process is not None

    def stop(self) -> None:
        """Stop the command and its processes: with SIGTERM first, with SIGKILL the second time."""
        self._signal(signal.SIGKILL if self._is_asked else signal.SIGTERM)
        self._is_asked = True

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def run(self, command: str, on_line: Callable[[str], None]) -> int:
        """Run a command, pass on each line of output, and return its exit code. Processes it leaves behind are ended.

        Raises: OSError.
        """
        self.command, self.output, self._is_asked = command, "", False
        self._process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self._folder,
            start_new_session=True,
            limit=LINE_BYTES_MAX,
        )
        try:
            assert self._process.stdout is not None
            reading = asyncio.ensure_future(self._forward(self._process.stdout, on_line))
            code = await _exit_code(self._process, reading)
            # A program in the background may hold the pipe for ever; what was written before is still read.
            await asyncio.wait({reading}, timeout=DRAIN_S)
            reading.cancel()
            return code
        finally:
            self._signal(signal.SIGKILL)
            self._process = None

    async def _forward(self, stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
        while line := await _line(stream):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            self.output += f"{text}\n" if len(self.output) < KEPT_CHARS_MAX else ""
            on_line(text)


async def _exit_code(process: asyncio.subprocess.Process, reading: asyncio.Future[None]) -> int:
    """Wait for the end of a command, not of its output: some Python versions wait for both."""
    while process.returncode is None and not reading.done():
        await asyncio.wait({reading}, timeout=POLL_S)
    return await process.wait() if process.returncode is None else process.returncode


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, or as much of one as may be held."""
    try:
        return await stream.readline()
    except ValueError:  # longer than the limit: what was held of it is gone
        return b"[a line was too long to be shown]\n"
