"""The calls of the Linux kernel that Python has no name for, by ctypes. Standard library only."""

import ctypes
import functools
import os
import resource
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CLOSE_RANGE = 436
CLOSE_RANGE_CLOEXEC = 4
FIRST_FD = 3
FDS_MAX = 4_096
CAPABILITIES_MAX = 64
_SECUREBITS_LOCKED = 0x2F
"""No privilege for uid 0, none kept over setuid, and neither of it to be undone."""
_CAPABILITY_VERSION = 0x20080522


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def _syscall() -> Callable[..., int]:
    function = _library().syscall
    function.restype = ctypes.c_long
    return function


def call(number: int, *arguments: object) -> int:
    """Make a system call.

    Raises: OSError.
    """
    made = _syscall()(ctypes.c_long(number), *(_argument(each) for each in arguments))
    if made < 0:
        raise _failed(f"system call {number}")
    return made


def prctl(option: int, *arguments: int) -> int:
    """Change something about this process.

    Raises: OSError.
    """
    padded = [ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0, 0)[:4]]
    made = _library().prctl(option, *padded)
    if made < 0:
        raise _failed(f"prctl {option}")
    return made


def become_reaper() -> bool:
    """Become the reaper of orphaned descendants; return whether the system can do that."""
    if sys.platform != "linux":
        return False
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    return True


def drop_privileges() -> None:
    """Give every capability up, for good, and gain nothing by executing a file.

    Raises: OSError.
    """
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    try:
        for number in range(CAPABILITIES_MAX):
            prctl(PR_CAPBSET_DROP, number)
        prctl(PR_SET_SECUREBITS, _SECUREBITS_LOCKED)
    except OSError:
        # Without CAP_SETPCAP there is nothing to take out of the bounding set; numbers past the last are refused.
        pass
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    empty = (ctypes.c_uint32 * 6)()
    if _library().capset(ctypes.byref(header), ctypes.byref(empty)) < 0:
        raise _failed("capset")


def close_later(first: int = FIRST_FD) -> None:
    """Have every descriptor but the standard ones closed by the next exec."""
    try:
        call(CLOSE_RANGE, first, 0xFFFFFFFF, CLOSE_RANGE_CLOEXEC)
    except (OSError, AttributeError):
        for fd in range(first, FDS_MAX):
            try:
                os.set_inheritable(fd, False)
            except OSError:
                continue


def set_limit(kind: int, value: int) -> None:
    """Lower a resource limit; one that is lower already stays."""
    _, hard = resource.getrlimit(kind)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def _argument(value: object) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else value


def _failed(what: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{what}: {os.strerror(code)}")
