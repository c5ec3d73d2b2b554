"""Python programs that begin at once: forked from a process that has imported Treadle already (`warm.program`).

`Popen` and `run` are those of `subprocess`, for commands that begin with `sys.executable` and `-c`, `-m` or a file. The
programs are processes as any other, with their own arguments, environment, folder and streams; only the half second
in which Python and Treadle are loaded is saved. Where just that is of interest, `subprocess` itself is the right one.
"""

import array
import atexit
import functools
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from warm.program import Order

TESTS = Path(__file__).parents[1]


class _Nursery:
    """The process that programs are forked from, as this process sees it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "error"}
            command = [sys.executable, "-m", "warm.program", str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=env, cwd=TESTS)
        self._socket = ours
        self._pid = os.getpid()
        atexit.register(self._end)

    def fork(self, order: Order, fds: list[int]) -> int:
        """Have a program begin with these files for its streams, the last to hear its end; return its process id."""
        body = msgspec.msgpack.encode(order)
        given = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        self._socket.sendmsg([len(body).to_bytes(4, "little")], given)
        self._socket.sendall(body)
        answer = self._socket.recv(4, socket.MSG_WAITALL)
        assert len(answer) == 4, "the process to fork from has died"
        return int.from_bytes(answer, "little")

    def _end(self) -> None:
        if os.getpid() == self._pid:
            self._socket.close()
            self._process.wait(10)


@functools.cache
def _nursery() -> _Nursery:
    return _Nursery()


class Popen(subprocess.Popen[Any]):
    """A program that was forked and is waited for by way of the process that forked it."""

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *rest: Any) -> None:
        _, cwd, env, _, _, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *more = rest
        assert args[0] == sys.executable, f"not a program of this Python: {args}"
        assert (executable, preexec_fn, shell) == (None, None, False)
        variables = os.environ if env is None else env
        order = Order(
            arguments=[os.fspath(each) for each in args[1:]],
            cwd=os.fspath(cwd or os.getcwd()),
            env={os.fspath(name): os.fspath(value) for name, value in variables.items()},
            starts_session=bool(more[5]),
        )
        self._told, tells = os.pipe()
        streams = [given if given != -1 else own for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        try:
            self.pid = _nursery().fork(order, [*streams, tells])
        finally:
            os.close(tells)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """Return the process id and how it ended, or zero while it goes on and nobody wants to wait."""
        if wait_flags & os.WNOHANG and not select.select([self._told], [], [], 0)[0]:
            return 0, 0
        told = os.read(self._told, 4)
        os.close(self._told)
        return self.pid, int.from_bytes(told, "little") if told else signal.SIGKILL

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def run(
    command: list[str], *, input: str | None = None, timeout: float = 60.0, **more: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end, keep what it writes, and return that."""
    source = {"stdin": subprocess.PIPE} if input is not None else {}
    pipe = subprocess.PIPE
    with Popen(command, stdout=pipe, stderr=pipe, text=True, **(source | more)) as process:  # pyright: ignore[reportCallIssue]
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
