"""The process that programs are forked from: it imports what they will need, and then only waits for orders.

It opens nothing and starts no thread, so that what is forked begins as a new process does. Orders come through the
socket that its argument numbers, each with four open files: the streams of the program, and where to tell its end.
"""

import atexit
import fcntl
import gc
import importlib
import io
import os
import runpy
import select
import signal
import socket
import sys
import termios
import threading
import types
import warnings
from typing import NoReturn

import msgspec

IMPORTED = (
    "apsw",
    "uvloop",
    "treadle.cli.commands.chat_command",
    "treadle.terminal.permissions.shell_command_analysis",
    "treadle.terminal.editor.screen_app",
    "treadle.cli.main",
    "treadle.cli.commands.run_command",
    "treadle.cli.commands.serve_command",
    "treadle.terminal.conversation.local_host",
    "treadle.cli.trust_question",
    "treadle.config",
    "treadle.evals.scenario_from_run",
    "treadle.runtime",
    "treadle.server.server_process",
    "treadle.journal.sqlite.store",
    "treadle.providers.fakes.fake_server",
    "treadle.providers.fakes.scripted_model",
)


class Order(msgspec.Struct, frozen=True):
    """What to run: the arguments of a Python, and where. A session of its own takes the terminal of its input."""

    arguments: list[str]
    cwd: str
    env: dict[str, str]
    starts_session: bool = False


def main(orders: socket.socket) -> None:
    """Fork a program for each order, and tell how each ended."""
    for name in IMPORTED:
        importlib.import_module(name)
    assert threading.active_count() == 1
    sys.path[:] = [path for path in sys.path if path != os.getcwd()]  # the tests' own modules are not the programs'
    gc.collect()
    gc.freeze()
    ended, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which then close the socket
    listeners: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([orders, ended], [], [])
        if ended in ready:
            os.read(ended, 4_096)
            reap(listeners)
        if orders in ready:
            head, fds, _, _ = socket.recv_fds(orders, 4, 4)
            if len(head) < 4:
                return
            body = orders.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL)
            pid = os.fork()
            if not pid:
                begin(msgspec.msgpack.decode(body, type=Order), fds, [orders.detach(), ended, wakes])
            listeners[pid] = fds[3]
            for fd in fds[:3]:
                os.close(fd)
            orders.sendall(pid.to_bytes(4, "little"))


def reap(listeners: dict[int, int]) -> None:
    """Tell of each program that has ended, to whoever waits for it."""
    while listeners:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        told = listeners.pop(pid)
        os.write(told, status.to_bytes(4, "little"))
        os.close(told)


def begin(order: Order, fds: list[int], others: list[int]) -> NoReturn:
    """Become the program."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, fd in enumerate(fds[:3]):
        os.dup2(fd, stream)
    if order.starts_session:
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for fd in {*fds, *others} - {0, 1, 2}:
        os.close(fd)
    os.environ.clear()
    os.environ.update(order.env)
    os.chdir(order.cwd)
    warnings.resetwarnings()
    if order.env.get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    open_streams()
    os._exit(end_of(order.arguments))


def open_streams() -> None:
    """Open the standard streams as Python does."""
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), encoding="utf-8")
    is_bare = bool(os.environ.get("PYTHONUNBUFFERED"))
    out = os.fdopen(1, "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", line_buffering=os.isatty(1), write_through=is_bare)
    err = os.fdopen(2, "wb", closefd=False)
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", errors="backslashreplace", line_buffering=True)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr


def end_of(arguments: list[str]) -> int:
    """Run to the end as the interpreter does, and return the exit code."""
    code = 0
    try:
        play(*arguments)
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
        if isinstance(asked.code, str):
            print(asked.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    if code < 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code


def play(kind: str, *rest: str) -> None:
    """Run a text, a module or a file as the main program."""
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*(path for path in own if path and path not in sys.path), *sys.path]
    match kind:
        case "-c":
            sys.argv = ["-c", *rest[1:]]
            sys.path.insert(0, "")
            sys.modules["__main__"] = module = types.ModuleType("__main__")
            exec(compile(rest[0], "<string>", "exec"), module.__dict__)
        case "-m":
            sys.argv = [rest[0], *rest[1:]]
            sys.path.insert(0, os.getcwd())
            sys.modules.pop(rest[0], None)
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        case _:
            sys.argv = [kind, *rest]
            sys.path.insert(0, os.path.dirname(os.path.abspath(kind)))
            runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        main(given)
