"""The helper process: waits for orders and forks a supervisor for each. Standard library only, one thread.

A supervisor watches over one command and leaves nothing of it alive. It ends with the command, at its time limit, when
too much is used, and when the other side of its socket goes away, which is how a call is cancelled and how a gateway
that was killed is noticed.

A fork of this small process costs a fraction of starting an interpreter, and takes no threads or locks of the gateway
along. It ends when its socket is closed. What a supervisor that was killed leaves behind comes here and is ended.
"""

import contextlib
import dataclasses
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from types import FrameType

from treadle.tools.sandbox import confinement as confine
from treadle.tools.sandbox import path_guard as guard
from treadle.tools.sandbox import process_tree as processes
from treadle.tools.sandbox import syscalls as kernel
from treadle.tools.sandbox.helper_messages import CommandEnded, CommandOrder, Ending, read, send

FDS_PER_ORDER = 2
FDS_MAX = 3
"""With a network there is the ruleset of ports too."""
NOTE_BYTES = 16
FAST_TICKS = 20
TICK_S, SLOW_TICK_S = 0.05, 0.25
CANCEL_TERM_S = 0.2
TIMEOUT_CODE = 124
KILLED_CODE = 137


def main() -> None:
    """Serve the socket on descriptor 0 until it is closed."""
    inbox = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kernel.become_reaper()
    wake, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.signal(signal.SIGCHLD, _hear)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    _serve(inbox, wake)


def _hear(number: int, frame: FrameType | None) -> None:
    """Do nothing: that a child ended is read from the pipe that wakes us."""


def _serve(inbox: socket.socket, wake: int) -> None:
    own: set[int] = set()
    while True:
        ready, _, _ = select.select([inbox, wake], [], [])
        if wake in ready:
            os.read(wake, 1024)
            ended = processes.reap() or []
            if any(code != 0 or pid not in own for pid, code in ended):
                _end_orphans(own)
            own.difference_update(pid for pid, _ in ended)
        if inbox in ready:
            note, fds, _, _ = socket.recv_fds(inbox, NOTE_BYTES, FDS_MAX)
            if not note:
                return
            if len(fds) >= FDS_PER_ORDER:
                own.add(_fork(inbox, wake, fds))
            for fd in fds:
                os.close(fd)


def _fork(inbox: socket.socket, wake: int, fds: list[int]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            inbox.close()
            os.close(wake)
            for fd in fds:
                os.set_inheritable(fd, False)
            supervise(socket.socket(fileno=fds[0]), fds[1], fds[2] if len(fds) > FDS_PER_ORDER else -1)
        finally:
            os._exit(0)
    return pid


def _end_orphans(own: set[int]) -> None:
    """End what came here because its supervisor was killed."""
    for each in processes.every():
        if each.parent == os.getpid() and each.pid not in own:
            with contextlib.suppress(OSError):
                os.kill(each.pid, signal.SIGKILL)


def supervise(control: socket.socket, out_fd: int, net_rules: int = -1) -> None:
    """Read one order, run it, and send how it ended."""
    try:
        order = dataclasses.replace(CommandOrder(**read(control)), net_rules=net_rules)
    except (EOFError, OSError, ValueError, TypeError):
        return
    os.setsid()
    kernel.become_reaper()
    wake, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.signal(signal.SIGCHLD, _hear)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    ended = _guarded(order, lambda: _run(order, control, wake, out_fd))
    # The gateway may be gone.
    with contextlib.suppress(OSError):
        send(control, ended)


def _run(order: CommandOrder, control: socket.socket, wake: int, out_fd: int) -> CommandEnded:
    pid, error_in = confine.start(order, confine.execute(order, out_fd))
    os.close(out_fd)
    return _Watch(order, control, wake, pid, error_in).run()


def _guarded(order: CommandOrder, run: Callable[[], CommandEnded]) -> CommandEnded:
    """Run with the protected paths guarded; when `run` returns, nothing of the command is alive."""
    watch = guard.PathGuard(order)
    try:
        watch.begin()
        ended = run()
    except OSError as error:
        ended = CommandEnded(ending="refused", code=confine.REFUSED_CODE, message=f"protected paths: {error}")
    return dataclasses.replace(ended, undone=watch.end())


class _Watch:
    """Waits for the command's end, whichever it will be."""

    def __init__(self, order: CommandOrder, control: socket.socket, wake: int, pid: int, error_in: int) -> None:
        self._order = order
        self._control = control
        self._wake = wake
        self._pid = pid
        self._error_in = error_in
        self._ticks = 0
        self._code: int | None = None

    def run(self) -> CommandEnded:
        ending = self._until_over(time.monotonic() + self._order.timeout_s)
        if ending in ("timeout", "cancelled"):
            self._ask_to_end(self._order.term_s if ending == "timeout" else CANCEL_TERM_S)
        leftovers = processes.kill_below(os.getpid())
        message = os.read(self._error_in, confine.MESSAGE_BYTES_MAX).decode("utf-8", "replace")
        if message:
            return CommandEnded(ending="refused", code=confine.REFUSED_CODE, message=message)
        return CommandEnded(ending=ending, code=self._exit_code(ending), leftovers=leftovers)

    def _until_over(self, deadline: float) -> Ending:
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return "timeout"
            ready = self._wait(min(left, TICK_S if self._ticks < FAST_TICKS else SLOW_TICK_S))
            if self._has_ended():
                return "exited"
            if self._control in ready:
                return "cancelled"
            if not ready:
                self._ticks += 1
                if (excess := self._excess()) is not None:
                    return excess

    def _wait(self, seconds: float) -> Sequence[object]:
        ready, _, _ = select.select([self._control, self._wake], [], [], seconds)
        if self._wake in ready:
            os.read(self._wake, 1024)
        return ready

    def _has_ended(self) -> bool:
        for pid, code in processes.reap() or ():
            if pid == self._pid:
                self._code = code
        return self._code is not None

    def _excess(self) -> Ending | None:
        found = processes.below(os.getpid())
        if len(found) > self._order.processes_max:
            return "processes"
        return "memory" if sum(each.memory_bytes for each in found) > self._order.memory_bytes_max else None

    def _ask_to_end(self, seconds: float) -> None:
        processes.signal_tree(os.getpid(), signal.SIGTERM)
        until = time.monotonic() + seconds
        while not self._has_ended() and (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self._wake], [], [], left)
            if ready:
                os.read(self._wake, 1024)

    def _exit_code(self, ending: Ending) -> int:
        if ending == "timeout":
            return TIMEOUT_CODE
        return KILLED_CODE if self._code is None else self._code
