"""A command that the person runs with `!`: as themselves, outside the sandbox, shown line by line."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

LINE_BYTES_MAX = 65_536
KEPT_CHARS_MAX = 1_048_576


class Shell:
    """Runs one command at a time and keeps what the last one wrote."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self.command = ""
        self.kept = ""

    @property
    def is_running(self) -> bool:
        """Tell whether a command is going on."""
        return self._process is not None

    def stop(self) -> None:
        """End the command and what it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)

    async def run(self, command: str, told: Callable[[str], None]) -> int:
        """Run a command, tell each of its lines, and return its exit code.

        Raises: OSError.
        """
        self.command, self.kept = command, ""
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
            while line := await _line(self._process.stdout):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                self.kept += f"{text}\n" if len(self.kept) < KEPT_CHARS_MAX else ""
                told(text)
            return await self._process.wait()
        finally:
            self.stop()
            self._process = None


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, or as much of one as may be held."""
    try:
        return await stream.readline()
    except ValueError:  # longer than the limit: what was held of it is gone
        return b"[a line was too long to be shown]\n"
