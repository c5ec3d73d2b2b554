"""The assignment that a worker gets from its supervisor at start, and the control channel between them.

The channel is a socket pair. The worker sends `ready` when it answers requests. The supervisor sends `dead OWNER` when
another worker died, so that its runs are recovered at once. When the supervisor is gone, the worker shuts down.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, MutableMapping

import msgspec

from treadle.core.errors import TreadleError

log = logging.getLogger("treadle.server")

VARIABLE = "TREADLE_WORKER"
READY = b"ready\n"
_LINE_BYTES_MAX = 4_096


class WorkerAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's file descriptors (`listener`, and the channel as `line`), its name in leases, and the worker count.

    `numbers` is the folder of the shared metrics, `dead` are owners whose runs have not been recovered yet, and
    `secret` signs logins where no other secret is shared.
    """

    listener: int
    line: int
    number: int
    owner: str
    count: int
    numbers: str
    is_announcing: bool = False
    dead: tuple[str, ...] = ()
    secret: str = ""

    def listening(self) -> socket.socket:
        """Return the port that all workers share."""
        shared = socket.socket(fileno=self.listener)
        shared.setblocking(False)
        return shared


def write_assignment(post: WorkerAssignment) -> str:
    """Write the value of the worker's environment variable."""
    return msgspec.json.encode(post).decode()


def read_assignment(env: MutableMapping[str, str]) -> WorkerAssignment | None:
    """Remove and return this process's assignment if it is a worker, so that its children do not inherit it."""
    text = env.pop(VARIABLE, "")
    return msgspec.json.decode(text, type=WorkerAssignment) if text else None


class ControlChannel:
    """The worker's end of the channel. Use it in the event loop that serves."""

    def __init__(self, post: WorkerAssignment, bury: Callable[[str], Awaitable[None]]) -> None:
        self._socket = socket.socket(fileno=post.line)
        self._socket.setblocking(False)
        self._take_over_runs = bury
        self._buffer = b""
        self.is_orphaned = False
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Start receiving messages."""
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    def ready(self) -> None:
        """Report that requests are answered."""
        try:
            self._socket.send(READY)
        except OSError:
            log.warning("the master cannot be told that this worker is ready")

    async def close(self) -> None:
        """Close the channel after the recoveries that it started."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _receive(self) -> None:
        try:
            received = self._socket.recv(_LINE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            asyncio.get_running_loop().remove_reader(self._socket)
            self.is_orphaned = True
            log.warning("the master is gone; this worker leaves")
            os.kill(os.getpid(), signal.SIGTERM)
            return
        *lines, self._buffer = (self._buffer + received).split(b"\n")
        for line in lines:
            word, _, owner = line.decode(errors="replace").partition(" ")
            if word == "dead" and owner:
                task = asyncio.create_task(self._take_over(owner))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _take_over(self, owner: str) -> None:
        try:
            await self._take_over_runs(owner)
        except TreadleError as error:
            # Its leases expire soon, and then any process recovers the runs.
            log.warning("runs of a dead worker not taken over yet", extra={"owner": owner, "code": error.info.code})
