"""MCP over stdio: a server as a child process, one JSON message per line, within limits.

The SDK has such a transport too; this one limits the length of a line, tolerates noise and bytes that are not text,
keeps the server's standard error apart, and ends the whole process group even if the server itself has exited.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from treadle.core.json import cut_text
from treadle.tools.mcp.server_isolation import Hiding
from treadle.tools.mcp.server_options import ServerOptions
from treadle.tools.mcp.tool_discovery import visible

log = logging.getLogger("treadle.mcp")

LINE_BYTES_MAX = 16_777_216
READ_BYTES = 65_536
CLOSE_GRACE_S = 1.0
"""How long a server may take to exit after its input is closed, and again after SIGTERM."""
STDERR_LINES_LOGGED_MAX = 200
STDERR_LINE_CHARS_MAX = 500
STDERR_TAIL_LINES = 5
_INHERITED = (
    "APPDATA",
    "COMSPEC",
    "HOME",
    "LANG",
    "LC_ALL",
    "LOCALAPPDATA",
    "LOGNAME",
    "PATH",
    "PATHEXT",
    "SHELL",
    "SYSTEMROOT",
    "TEMP",
    "TERM",
    "TMPDIR",
    "USER",
    "USERPROFILE",
)
"""The environment variables a server inherits; keys and tokens only if its options name them."""

Incoming = SessionMessage | Exception
Streams = tuple[ObjectReceiveStream[Incoming], ObjectSendStream[SessionMessage]]


class StdioProcess:
    """One process of a server's command, as an SDK transport. `ended` is set when its output has ended."""

    def __init__(self, options: ServerOptions, environ: Mapping[str, str], hiding: Hiding | None = None) -> None:
        self._options = options
        self._hiding = None if options.trusted else hiding
        self._environ = {name: environ[name] for name in _INHERITED if name in environ} | options.env
        self._stderr_tail: deque[str] = deque(maxlen=STDERR_TAIL_LINES)
        self._is_noisy = False
        self.reason = ""
        self.ended = asyncio.Event()

    @property
    def last_words(self) -> str:
        """Return the last lines of its standard error."""
        return " | ".join(self._stderr_tail)

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncGenerator[Streams, None]:
        """Start the process and yield its incoming and outgoing streams; on exit the process group is killed.

        Raises: OSError, when it cannot be started.
        """
        command: Sequence[str] = self._options.command
        inherited_fds: tuple[int, ...] = ()
        if self._hiding is not None:
            command, inherited_fds = await self._hiding.around(
                command, cwd=self._options.cwd, search_path=self._environ.get("PATH", "")
            )
        process = await asyncio.create_subprocess_exec(
            *command,
            pass_fds=inherited_fds,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._options.cwd,
            env=self._environ,
            start_new_session=sys.platform != "win32",
        )
        received, incoming = anyio.create_memory_object_stream[Incoming](0)
        outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(self._read_messages(process, received)),
            asyncio.create_task(self._write_messages(process, to_send)),
            asyncio.create_task(self._log_stderr(process)),
        ]
        try:
            yield incoming, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                for stream in (incoming, outgoing, received, to_send):
                    stream.close()
                await _terminate(process)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_messages(self, process: asyncio.subprocess.Process, received: ObjectSendStream[Incoming]) -> None:
        assert process.stdout is not None, "it is started with pipes"
        buffer = bytearray()
        try:
            while chunk := await process.stdout.read(READ_BYTES):
                buffer += chunk
                if b"\n" in chunk:
                    *lines, buffer = buffer.split(b"\n")
                    for line in lines:
                        message = self._decode(bytes(line))
                        if message is not None:
                            await received.send(message)
                if len(buffer) > LINE_BYTES_MAX:
                    self.reason = f"it sent a line of more than {LINE_BYTES_MAX} bytes"
                    return
            self.reason = "it ended"
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            self.reason = self.reason or "it was closed"
        finally:
            await received.aclose()
            self.ended.set()

    def _decode(self, line: bytes) -> SessionMessage | None:
        """Decode one line; anything that is not a message is dropped, and logged once."""
        if not line.strip():
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except (ValueError, RecursionError):
            if not self._is_noisy:
                self._is_noisy = True
                log.warning("MCP server %s writes to its standard output what is no message", self._options.name)
            return None

    async def _write_messages(
        self, process: asyncio.subprocess.Process, to_send: ObjectReceiveStream[SessionMessage]
    ) -> None:
        assert process.stdin is not None, "it is started with pipes"
        with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for message in to_send:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()

    async def _log_stderr(self, process: asyncio.subprocess.Process) -> None:
        """Log the first lines of standard error and remember the last ones."""
        assert process.stderr is not None, "it is started with pipes"
        count = 0
        rest = b""
        while chunk := await process.stderr.read(READ_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-READ_BYTES:]
            for line in lines:
                # The log may be shown on a terminal, which interprets control characters.
                line_text = visible(line[: 4 * STDERR_LINE_CHARS_MAX].decode("utf-8", "replace"))
                text = cut_text(line_text.strip(), STDERR_LINE_CHARS_MAX)
                if not text:
                    continue
                self._stderr_tail.append(text)
                count += 1
                if count <= STDERR_LINES_LOGGED_MAX:
                    log.info("MCP server %s says: %s", self._options.name, text)


async def _terminate(process: asyncio.subprocess.Process) -> None:
    """Close its input, wait, then kill the group: a server that exited may have left children behind."""
    if process.stdin is not None:
        process.stdin.close()
    if not await _exits_soon(process):
        _signal(process, signal.SIGTERM)
        await _exits_soon(process)
    _signal(process, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
    await _exits_soon(process)
    # A pipe not read to its end keeps the transport open, and asyncio has no public way to close it.
    close = getattr(getattr(process, "_transport", None), "close", None)
    if close is not None:
        close()


async def _exits_soon(process: asyncio.subprocess.Process) -> bool:
    """Wait briefly for the process. `Process.wait` would also wait for children that hold its pipes open."""
    deadline = anyio.current_time() + CLOSE_GRACE_S
    while process.returncode is None and anyio.current_time() < deadline:  # noqa: ASYNC110 - no event exists for this
        await asyncio.sleep(0.01)
    return process.returncode is not None


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.send_signal(number)
        else:
            os.killpg(process.pid, number)
