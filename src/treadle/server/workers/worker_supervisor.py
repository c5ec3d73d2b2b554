"""Supervises several workers on one port: starts them, replaces one that dies, and forwards signals.

The port is opened once and inherited, so connections that wait while a worker dies or is replaced are not lost.
SIGTERM or Ctrl-C shuts all workers down gracefully, a second one at once, a third one kills them. SIGHUP replaces
them one after the other, each after its successor is ready, so that requests are always answered.
"""

import logging
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from treadle.server.workers import shared_metrics as numbers
from treadle.server.workers.control_channel import READY, VARIABLE, WorkerAssignment, write_assignment

log = logging.getLogger("treadle.server")

SHORT_LIFE_S = 5.0
"""A worker that dies sooner is replaced after a pause, which doubles each time."""
RESTART_PAUSE_S_MAX = 30.0
EXIT_S = 10.0
"""How long a worker may run after it closed its channel, before it is killed."""
ASSIGNED_MAX = 10
_STOPS = (signal.SIGTERM, signal.SIGINT)


class ServerWorker:
    """A worker process as its supervisor sees it."""

    def __init__(self, number: int, process: "subprocess.Popen[bytes]", line: socket.socket, owner: str) -> None:
        self.number = number
        self.process = process
        self.line = line
        self.owner = owner
        self.started_at = time.monotonic()
        self.is_ready = False
        self.is_leaving = False
        self.successor_of: ServerWorker | None = None
        self.assigned: list[str] = []

    def signal(self, number: int) -> None:
        """Send a signal, if the process is alive."""
        if self.process.poll() is None:
            self.process.send_signal(number)


class WorkerSupervisor:
    """Runs workers until a signal stops it."""

    def __init__(self, command: Sequence[str], count: int, listener: socket.socket, *, secret: str = "") -> None:
        self._command = list(command)
        self._count = count
        self._listener = listener
        self._secret = secret
        self._workers: list[ServerWorker] = []
        self._dead: list[str] = []
        self._due: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._to_replace: deque[ServerWorker] = deque()
        self._stops = 0
        self._has_served = False
        self._failed = 0
        self._numbers = Path(tempfile.mkdtemp(prefix="treadle-numbers-"))
        self._selector = selectors.DefaultSelector()
        self._wakeup_read, self._wakeup_write = socket.socketpair()

    def run(self) -> int:
        """Serve until stopped; return the exit code, which is not 0 if no worker could start."""
        self._wakeup_write.setblocking(False)
        self._wakeup_read.setblocking(False)
        self._selector.register(self._wakeup_read, selectors.EVENT_READ)
        old = signal.set_wakeup_fd(self._wakeup_write.fileno(), warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, self._on_signal) for number in (*_STOPS, signal.SIGHUP)}
        try:
            self._start(1)
            while self._workers or self._due:
                self._wait()
                self._restart_due()
            return self._failed
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(old)
            self._selector.close()
            self._wakeup_read.close()
            self._wakeup_write.close()
            shutil.rmtree(self._numbers, ignore_errors=True)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Do nothing here: the loop reads the number from the wake-up socket."""

    def _start(self, number: int, successor_of: ServerWorker | None = None) -> None:
        ours, theirs = socket.socketpair()
        owner = f"{socket.gethostname()}:worker{number}:{secrets.token_hex(6)}"
        post = WorkerAssignment(
            listener=self._listener.fileno(),
            line=theirs.fileno(),
            number=number,
            owner=owner,
            count=self._count,
            numbers=str(self._numbers),
            is_announcing=not self._has_served,
            dead=tuple(self._dead),
            secret=self._secret,
        )
        self._dead.clear()
        env = {**os.environ, VARIABLE: write_assignment(post)}
        with theirs:
            # In a separate process group, so that Ctrl-C reaches only the supervisor, which forwards it once.
            process = subprocess.Popen(
                self._command, env=env, pass_fds=(post.listener, post.line), process_group=0, stdin=subprocess.DEVNULL
            )
        worker = ServerWorker(number, process, ours, owner)
        worker.successor_of = successor_of
        self._workers.append(worker)
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _wait(self) -> None:
        """Wait for a signal, a message or the end of a worker, or the time of the next restart."""
        now = time.monotonic()
        timeout = max(0.0, min(self._due.values()) - now) if self._due else None
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                for number in self._wakeup_read.recv(64):
                    self._handle_signal(number)
            else:
                self._receive(key.data)

    def _handle_signal(self, number: int) -> None:
        if number in _STOPS:
            self._stop()
        elif number == signal.SIGHUP and not self._stops and not self._to_replace:
            log.info("replacing all workers, one after the other")
            self._to_replace.extend(worker for worker in self._workers if not worker.is_leaving)
            self._replace_next()

    def _stop(self) -> None:
        self._stops += 1
        self._due.clear()
        self._to_replace.clear()
        self._listener.close()
        for worker in self._workers:
            worker.is_leaving = True
            worker.signal(signal.SIGTERM if self._stops < 3 else signal.SIGKILL)

    def _receive(self, worker: ServerWorker) -> None:
        try:
            received = worker.line.recv(len(READY))
        except OSError:
            received = b""
        if not received:
            self._on_exit(worker)
        elif not worker.is_ready:
            worker.is_ready = True
            self._on_ready(worker)

    def _on_ready(self, worker: ServerWorker) -> None:
        """Handle a ready worker: the first one lets the others start, a successor stops its predecessor."""
        self._failures.pop(worker.number, None)
        if not self._has_served:
            self._has_served = True
            for number in range(2, self._count + 1):
                self._start(number)
        if worker.successor_of is not None:
            worker.successor_of.is_leaving = True
            worker.successor_of.signal(signal.SIGTERM)
            worker.successor_of = None
            self._replace_next()

    def _replace_next(self) -> None:
        """Start the successor of the next worker that is to be replaced."""
        while self._to_replace:
            worker = self._to_replace.popleft()
            if worker in self._workers and not worker.is_leaving:
                self._start(worker.number, successor_of=worker)
                return

    def _on_exit(self, worker: ServerWorker) -> None:
        """Handle a worker's end: have its runs recovered, and replace it unless it was stopping."""
        self._selector.unregister(worker.line)
        worker.line.close()
        self._workers.remove(worker)
        code = self._exit_code(worker)
        numbers.keep_counts_of_dead(self._numbers, worker.owner)
        if self._stops or not self._has_served:
            self._failed = self._failed or (0 if self._stops else code or 1)
            return
        # It may not have read what it was assigned last. Assigning a dead owner twice is harmless.
        for owner in (worker.owner, *worker.assigned):
            self._assign_dead(owner)
        is_succeeded = any(each.successor_of is worker for each in self._workers)
        if worker.successor_of is not None:
            log.error("a worker's successor could not start; the others stay", extra={"worker": worker.number})
            self._to_replace.clear()
        elif not (worker.is_leaving or is_succeeded):
            self._replace(worker, code)

    def _exit_code(self, worker: ServerWorker) -> int:
        try:
            return worker.process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            return worker.process.wait()

    def _replace(self, worker: ServerWorker, code: int) -> None:
        is_short = time.monotonic() - worker.started_at < SHORT_LIFE_S or not worker.is_ready
        failures = self._failures.get(worker.number, 0) + 1 if is_short else 0
        self._failures[worker.number] = failures
        pause_s = min(RESTART_PAUSE_S_MAX, 2.0 ** (failures - 1)) if failures else 0.0
        about = {"worker": worker.number, "pid": worker.process.pid, "code": code, "pause_s": pause_s}
        log.warning("a worker died and is replaced", extra=about)
        self._due[worker.number] = time.monotonic() + pause_s

    def _restart_due(self) -> None:
        now = time.monotonic()
        for number in [number for number, at in self._due.items() if at <= now]:
            del self._due[number]
            self._start(number)

    def _assign_dead(self, owner: str) -> None:
        """Have a ready worker recover a dead one's runs at once; if there is none, the next that starts."""
        for worker in self._workers:
            if worker.is_ready and not worker.is_leaving:
                try:
                    worker.line.sendall(f"dead {owner}\n".encode())
                except OSError:
                    continue
                worker.assigned = [*worker.assigned[-ASSIGNED_MAX:], owner]
                return
        self._dead.append(owner)
