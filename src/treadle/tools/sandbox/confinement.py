"""Starting one command in its confinement. Runs in a forked child of the helper; standard library only.

`start` returns the child to wait for. Between that child and the command there may be the first process of a PID
namespace, which ends with the command and takes the whole namespace with it.
"""

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from treadle.tools.sandbox import landlock, namespaces, seccomp
from treadle.tools.sandbox import process_tree as processes
from treadle.tools.sandbox import syscalls as kernel
from treadle.tools.sandbox.helper_messages import CommandOrder

REFUSED_CODE = 126
OPEN_FILES_MAX = 1_024
MESSAGE_BYTES_MAX = 1_000
_DEFAULT_AGAIN = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Body = Callable[[], None]


def start(order: CommandOrder, body: Body) -> tuple[int, int]:
    """Fork, confine the child and run the body in it; return the child and the pipe for its error message.

    What can be read there at once is a message, and nothing when the body has replaced the process by exec.
    """
    error_in, error_out = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(error_in)
        _guarded(error_out, lambda: _enter(order, error_out, body))
    os.close(error_out)
    return pid, error_in


def execute(order: CommandOrder, out_fd: int) -> Body:
    """Return the body that becomes the command."""

    def body() -> None:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(out_fd, 1)
        os.dup2(out_fd, 2)
        kernel.close_later()
        os.execve(order.argv[0], order.argv, order.env)

    return body


def confine(order: CommandOrder) -> None:
    """Take away from this process what its level takes away.

    Raises: OSError.
    """
    if order.read_only and order.level < 1:
        raise OSError(errno.EOPNOTSUPP, "nothing keeps this command from writing")
    os.umask(0o022)
    _set_limits(order)
    if order.level > 0:
        kernel.drop_privileges()
        write = [*order.write, *([namespaces.SHARED_MEMORY] if order.level > 2 else [])]
        if order.read_only:
            landlock.restrict(
                order.abi,
                order.read,
                write,
                network=False,
                listed=order.listed,
                parts=order.parts,
                devices=landlock.READ_DEVICES,
            )
        else:
            landlock.restrict(
                order.abi, order.read, write, network=order.network, listed=order.listed, parts=order.parts
            )
        if order.network:
            if order.net_rules < 0:
                raise OSError(errno.EPERM, "nothing here keeps a network command from Treadle's own ports")
            landlock.enforce(order.net_rules)
    # After the rules, so that a folder outside cannot be the working folder by a link that was swapped in.
    os.chdir(order.cwd)
    if order.level > 0:
        _check_inside(order)
        own = order.level > 2
        if order.read_only:
            seccomp.restrict_to_reading(
                own_memory=own,
                own_processes=own or order.abi >= landlock.ABI_SCOPES,
                truncation_is_guarded=order.abi >= landlock.ABI_TRUNCATES,
            )
        else:
            seccomp.restrict(network=order.network, own_memory=own, spared=0 if own else os.getppid())


def _check_inside(order: CommandOrder) -> None:
    """Refuse a working folder that a link led out of what may be reached."""
    here = os.getcwd()
    allowed = [os.path.realpath(path) for path in (*order.write, *order.read, *order.listed)]
    if not any(here == path or here.startswith(path.rstrip("/") + "/") for path in allowed):
        raise OSError(errno.EXDEV, "the working folder is outside", order.cwd)


def _enter(order: CommandOrder, error_out: int, body: Body) -> None:
    if order.level > 2:
        _enter_namespaces(order, error_out, body)
    _become(order, body)


def _enter_namespaces(order: CommandOrder, error_out: int, body: Body) -> NoReturn:
    for number in _DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    namespaces.leave(order)
    first = os.fork()
    if first == 0:
        _guarded(error_out, lambda: _be_first(order, error_out, body))
    os.close(error_out)
    os._exit(_wait_for(first))


def _be_first(order: CommandOrder, error_out: int, body: Body) -> None:
    """Be the first process of a PID namespace: when it ends, the kernel ends all others."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    namespaces.arrange(order)
    pid = os.fork()
    if pid == 0:
        _guarded(error_out, lambda: _become(order, body))
    os.close(error_out)
    os._exit(_wait_for(pid))


def _become(order: CommandOrder, body: Body) -> None:
    os.setsid()
    _hear_again()
    confine(order)
    body()


def _wait_for(wanted: int) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == wanted:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _hear_again() -> None:
    for number in _DEFAULT_AGAIN:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _set_limits(order: CommandOrder) -> None:
    kernel.set_limit(resource.RLIMIT_CORE, 0)
    kernel.set_limit(resource.RLIMIT_CPU, order.cpu_s)
    kernel.set_limit(resource.RLIMIT_FSIZE, order.file_bytes_max)
    kernel.set_limit(resource.RLIMIT_NOFILE, OPEN_FILES_MAX)
    if sys.platform == "linux" and os.getuid() != 0:
        # The kernel counts all threads of the user, in a user namespace only those of the namespace.
        others = 0 if order.level > 2 else processes.threads_of_user()
        kernel.set_limit(resource.RLIMIT_NPROC, others + order.processes_max)


def _guarded(error_out: int, work: Body) -> NoReturn:
    """Do the work in a forked child, which never returns into the code of its parent."""
    code = REFUSED_CODE
    try:
        work()
        code = 0
    except (OSError, ValueError, LookupError) as error:
        os.write(error_out, str(error).encode("utf-8", "replace")[:MESSAGE_BYTES_MAX])
    finally:
        os._exit(code)
