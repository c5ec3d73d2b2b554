"""Namespaces of a command's own: users, mounts, processes, network, shared memory. Standard library only.

Everything outside what may be written becomes read-only, so that not even a mode can be changed there; /proc shows only
the command's own processes; what is masked reads as empty.
"""

import ctypes
import os
from collections.abc import Iterable

from treadle.tools.sandbox import syscalls as kernel
from treadle.tools.sandbox.helper_messages import CommandOrder

_UNSHARE = {"x86_64": 272, "aarch64": 97}
_MOUNT = {"x86_64": 165, "aarch64": 40}
_MOUNT_SETATTR = 442
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_ATTR_READ_ONLY = 1
SHARED_MEMORY = "/dev/shm"
SHARED_MEMORY_OPTIONS = b"size=256m,mode=1777"
VANISHING_OPTIONS = b"size=256m,mode=700"
PRIVATE_TMP = "/tmp"


def leave(order: CommandOrder) -> None:
    """Leave the namespaces of the machine; the next child is the first process of the new ones.

    Raises: OSError, where that is not allowed.
    """
    _leave(_NEWUSER | _NEWNS | _NEWPID | _NEWIPC | _NEWUTS | (0 if order.network else _NEWNET))


def hide(paths: Iterable[str]) -> None:
    """Let paths read as empty to this process and its descendants, which share everything else with the machine.

    Raises: OSError, where there are no namespaces for it.
    """
    _leave(_NEWUSER | _NEWNS)
    _mount(None, "/", None, _REC | _PRIVATE)
    for path in paths:
        _mask(path)


def _leave(flags: int) -> None:
    user, group = os.getuid(), os.getgid()
    kernel.call(_UNSHARE[os.uname().machine], flags)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def arrange(order: CommandOrder) -> None:
    """Arrange what the command sees of the file system. To be called by the first process of the namespaces.

    Raises: OSError.
    """
    _mount(None, "/", None, _REC | _PRIVATE)
    writable = [path for path in order.write if os.path.exists(path)]
    for path in writable:
        _mount(path, path, None, _BIND | _REC)
    # A mount point can be neither renamed nor removed, so what is `pinned` stays where it is.
    fixed = [path for path in sorted(order.fixed, key=len) if os.path.lexists(path) and not os.path.islink(path)]
    for path in (*order.pinned, *fixed):
        _mount(path, path, None, _BIND)
    for path in order.vanishing:
        _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, VANISHING_OPTIONS)
    writable += _private_folders(order)
    _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _set_read_only("/", recursive=True)
    for path in writable:
        _set_read_only(path, recursive=True, on=False)
    for path in fixed:
        _set_read_only(path)
    for path in order.masked:
        _mask(path)


def _private_folders(order: CommandOrder) -> list[str]:
    """Give the command a /tmp and shared memory of its own, unless something it works on lies there."""
    made: list[str] = []
    used = (order.cwd, *order.write, *order.read, *order.listed)
    if order.scratch and not any(path == PRIVATE_TMP or path.startswith(f"{PRIVATE_TMP}/") for path in used):
        _mount(order.scratch, PRIVATE_TMP, None, _BIND)
        made.append(PRIVATE_TMP)
    if os.path.isdir(SHARED_MEMORY):
        _mount("tmpfs", SHARED_MEMORY, "tmpfs", _NOSUID | _NODEV, SHARED_MEMORY_OPTIONS)
        made.append(SHARED_MEMORY)
    return made


def _mask(path: str) -> None:
    if os.path.islink(path) or not os.path.exists(path):
        return
    if os.path.isdir(path):
        _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV | _NOEXEC, b"size=4k,mode=555")
        _set_read_only(path)
    else:
        _mount("/dev/null", path, None, _BIND)


def _set_read_only(path: str, *, recursive: bool = False, on: bool = True) -> None:
    words = (_ATTR_READ_ONLY, 0) if on else (0, _ATTR_READ_ONLY)
    attributes = (ctypes.c_uint64 * 4)(*words, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    kernel.call(
        _MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, ctypes.byref(attributes), ctypes.sizeof(attributes)
    )


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: bytes | None = None) -> None:
    number = _MOUNT[os.uname().machine]
    kernel.call(number, _bytes(source), os.fsencode(target), _bytes(kind), flags, options)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
