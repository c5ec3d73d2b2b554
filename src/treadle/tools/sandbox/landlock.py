"""Landlock: which files a process and all its descendants may reach, from now on and for good. Standard library only.

What a kernel's version cannot express is left out; `gaps` names it.
"""

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Collection, Iterable, Mapping

from treadle.tools.sandbox import syscalls as kernel

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ABI_TRUNCATES = 3
"""From this version on emptying a file by opening it is guarded."""
ABI_SCOPES = 6
"""From this version on signals stay within."""
ABI_FULL = 4
"""From this version on nothing that a sandbox of commands needs is missing but scopes."""
ABI_PORTS = 4
"""From this version on TCP can be allowed port by port."""
_VERSION_FLAG = 1
_PATH_BENEATH, _NET_PORT = 1, 2
PORTS = 65_536

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_FS_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many rights of files each version knows."""
_NET_ALL = 0b11
_SCOPE_ALL = 0b11
_FOR_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_DEVICE = _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_NEVER = _MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCK
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_ALL_DEVICES: dict[str, int] = dict.fromkeys(DEVICES, _DEVICE)
READ_DEVICES = {"/dev/null": _DEVICE, "/dev/zero": _READ_FILE, "/dev/urandom": _READ_FILE}
"""What is left of them for a command that may change nothing."""

_GAPS = (
    (2, "files cannot be moved between folders"),
    (3, "files outside can be emptied (truncate)"),
    (6, "processes outside can be signalled, abstract sockets reached"),
)


def version() -> int:
    """Return the kernel's version of Landlock, 0 where there is none."""
    if sys.platform != "linux":
        return 0
    try:
        return kernel.call(CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def gaps(abi: int) -> list[str]:
    """Return what this version cannot enforce."""
    return [words for since, words in _GAPS if abi < since]


def restrict(  # noqa: PLR0913 - each is a rule of its own
    abi: int,
    read: Iterable[str],
    write: Iterable[str],
    *,
    network: bool,
    listed: Iterable[str] = (),
    parts: Iterable[str] = (),
    devices: Mapping[str, int] = _ALL_DEVICES,
) -> None:
    """Restrict this process to these folders and files, and without `network` refuse TCP. A missing path is skipped.

    Raises: OSError.
    """
    handled = (1 << _FS_BITS[min(abi, 5)]) - 1
    nets = _NET_ALL if abi >= 4 and not network else 0
    scopes = _SCOPE_ALL if abi >= 6 else 0
    words = (handled, nets, scopes)[: 3 if abi >= 6 else 2 if abi >= 4 else 1]
    attributes = ctypes.create_string_buffer(struct.pack(f"={len(words)}Q", *words))
    rules = kernel.call(CREATE_RULESET, attributes, 8 * len(words), 0)
    try:
        for path in read:
            _allow(rules, path, _READ & handled)
        for path in listed:
            _allow(rules, path, _READ_DIR & handled)
        for path in parts:
            _allow(rules, path, _READ & handled, is_exact=True)
        for path in write:
            _allow(rules, path, handled & ~_NEVER)
        for path, access in devices.items():
            _allow(rules, path, access & handled)
        enforce(rules)
    finally:
        os.close(rules)


def open_ports(closed: Collection[int]) -> int:
    """Return the descriptor of a ruleset by which every TCP port but the closed ones may be connected to and bound.

    Landlock only grants, one port a rule: this takes a tenth of a second or more, so it is made once for many commands.
    Raises: OSError.
    """
    attributes = ctypes.create_string_buffer(struct.pack("=2Q", 0, _NET_ALL))
    rules = kernel.call(CREATE_RULESET, attributes, 16, 0)
    try:
        rule = ctypes.create_string_buffer(struct.calcsize("=2Q"))
        for port in range(PORTS):
            if port not in closed:
                struct.pack_into("=2Q", rule, 0, _NET_ALL, port)
                kernel.call(ADD_RULE, rules, _NET_PORT, rule, 0)
    except OSError:
        os.close(rules)
        raise
    return rules


def enforce(rules: int) -> None:
    """Restrict this process and its descendants to a ruleset.

    Raises: OSError.
    """
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.call(RESTRICT_SELF, rules, 0)


def _allow(rules: int, path: str, access: int, *, is_exact: bool = False) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if is_exact else 0))
    except OSError:
        return
    try:
        # A link, there from the start or swapped in for a folder above, would grant what lies elsewhere.
        if is_exact and os.readlink(f"/proc/self/fd/{fd}") != path:
            return
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _FOR_FILES
        rule = ctypes.create_string_buffer(struct.pack("=Qi", access, fd))
        kernel.call(ADD_RULE, rules, _PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)
