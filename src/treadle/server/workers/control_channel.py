"""What a worker is told by its master when it starts, and the line between the two.

The line is a socket pair. The worker says `ready` when it answers requests; the master says `dead OWNER` when another
worker died, whose runs can be gone on with at once. When the master is gone the line ends, and the worker leaves.
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
    """One worker's place: the port's and the line's file descriptors, its name in leases, how many there are.

    `numbers` is the folder where all keep what they count, `dead` are owners whose runs nobody has gone on with yet,
    and `secret` signs logins where no other secret is shared.
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
    """Write what a worker finds in its environment."""
    return msgspec.json.encode(post).decode()


def read_assignment(env: MutableMapping[str, str]) -> WorkerAssignment | None:
    """Return what this process was told, if it is a worker; nobody that it starts is told too."""
    text = env.pop(VARIABLE, "")
    return msgspec.json.decode(text, type=WorkerAssignment) if text else None


class ControlChannel:
    """The worker's end of the line. Use it in the loop that serves."""

    def __init__(self, post: WorkerAssignment, bury: Callable[[str], Awaitable[None]]) -> None:
        self._socket = socket.socket(fileno=post.line)
        self._socket.setblocking(False)
        self._take_over_runs = bury
        self._buffer = b""
        self.is_orphaned = False
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Listen to the master."""
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    def ready(self) -> None:
        """Say that requests are answered."""
        try:
            self._socket.send(READY)
        except OSError:
            log.warning("the master cannot be told that this worker is ready")

    async def close(self) -> None:
        """Hang up."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _receive(self) -> None:
        try:
            said = self._socket.recv(_LINE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            asyncio.get_running_loop().remove_reader(self._socket)
            self.is_orphaned = True
            log.warning("the master is gone; this worker leaves")
            os.kill(os.getpid(), signal.SIGTERM)
            return
        *lines, self._buffer = (self._buffer + said).split(b"\n")
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
            # Its leases end by themselves a little later.
            log.warning("runs of a dead worker not taken over yet", extra={"owner": owner, "code": error.info.code})
