"""A seccomp filter: system calls that no command needs and that would lead out of the sandbox. Standard library only.

Landlock does not guard UNIX sockets of the file system, io_uring, ptrace of one's own kind or new namespaces; this
does. A refused call fails with EPERM, so that programs can say so. The tables are for x86-64 and arm64; elsewhere there
is no filter and therefore no level above L0.
"""

import ctypes
import errno
import platform
import struct
from typing import NamedTuple

from treadle.tools.sandbox import kernel

_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR_AT, _ARCH_AT, _ARGS_AT = 0, 4, 16
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_X32 = 0x40000000
_MODE_FILTER = 2
_NAMESPACES = 0x7E020000
"""The flags of clone that make namespaces."""
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_FLAGS = 1, 5, 0o2004000
_TERMINAL_INPUTS = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: typing into somebody's terminal."""

_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "syslog": (103, 116),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
}
_SHARED_MEMORY = {"shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180)}
"""Shared with every process of the user, unless there is a namespace of one's own."""
_SERVING = {"bind": (49, 200), "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242)}
_SOCKET, _CONNECT, _SENDTO, _SOCKETPAIR = (41, 198), (42, 203), (44, 206), (53, 199)
_SENDMSG, _SENDMMSG = (46, 211), (307, 269)
_PLAIN_PROTOCOLS = (0, 1, 6, 17, 58)
"""The default, ICMP, TCP, UDP. Landlock does not see where MPTCP and SCTP connect to (measured on Linux 6.18)."""
_FAST_OPEN = 0x20000000
"""MSG_FASTOPEN: it connects by sending, which Landlock does not see either."""
_IO_URING = 425
_CLONE, _CLONE3, _IOCTL = (56, 220), (435, 435), (16, 29)


class _Step(NamedTuple):
    code: int
    then: int
    otherwise: int
    value: int


def is_known() -> bool:
    """Tell whether there is a table for this machine."""
    return platform.machine() in _ARCHES


def restrict(*, network: bool, own_memory: bool) -> None:
    """Install the filter. `own_memory` when System V memory is in a namespace of one's own.

    Raises: OSError.
    """
    _install(program(platform.machine(), network=network, own_memory=own_memory))


def restrict_connections() -> None:
    """Let this process and its descendants connect only in ways that Landlock checks; all else stays as it is.

    Raises: OSError.
    """
    column, arch = _ARCHES[platform.machine()]
    steps = [_load(_ARCH_AT), _Step(_JUMP_EQUAL, 1, 0, arch), _Step(_RETURN, 0, 0, _KILL), _load(_NR_AT)]
    if platform.machine() == "x86_64":
        steps += [_Step(_JUMP_ABOVE, 0, 1, _X32), _refuse()]
    steps += [_Step(_JUMP_EQUAL, 0, 1, _IO_URING), _refuse(errno.ENOSYS)]
    steps += _when(_SOCKET[column], _protocols())
    steps += _slow_open(column)
    _install([*steps, _Step(_RETURN, 0, 0, _ALLOW)])


def _install(steps: list[_Step]) -> None:
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(buffer)))
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(head))


def program(machine: str, *, network: bool, own_memory: bool) -> list[_Step]:
    """Write the filter for a machine.

    Raises: KeyError, where there is no table.
    """
    column, arch = _ARCHES[machine]
    steps = [_load(_ARCH_AT), _Step(_JUMP_EQUAL, 1, 0, arch), _Step(_RETURN, 0, 0, _KILL), _load(_NR_AT)]
    if machine == "x86_64":
        steps += [_Step(_JUMP_ABOVE, 0, 1, _X32), _refuse()]
    refused = dict(_REFUSED)
    if not own_memory:
        refused.update(_SHARED_MEMORY)
    if not network:
        refused.update(_SERVING)
        refused["connect"] = _CONNECT
    for numbers in refused.values():
        steps += [_Step(_JUMP_EQUAL, 0, 1, numbers[column]), _refuse()]
    steps += [_Step(_JUMP_EQUAL, 0, 1, _CLONE3[column]), _refuse(errno.ENOSYS)]
    steps += _when(_CLONE[column], [_argument(0), _Step(_JUMP_BITS, 0, 1, _NAMESPACES), _refuse()])
    if network:
        steps += _when(_SOCKET[column], [*_only(0, (_AF_INET, _AF_INET6)), *_protocols()])
        steps += _slow_open(column)
    else:
        steps += _when(_SOCKET[column], _only(0, ()))
    steps += _when(_SOCKETPAIR[column], _pairs())
    steps += _when(_IOCTL[column], _none_of(1, _TERMINAL_INPUTS))
    if not network:
        steps += _when(_SENDTO[column], _no_address())
    return [*steps, _Step(_RETURN, 0, 0, _ALLOW)]


def _protocols() -> list[_Step]:
    """Let only such sockets pass whose connections Landlock checks; protocols of other families count from 0 too."""
    count = len(_PLAIN_PROTOCOLS)
    checks = [_Step(_JUMP_EQUAL, count - at, 0, value) for at, value in enumerate(_PLAIN_PROTOCOLS)]
    internet = [_argument(2), *checks, _refuse(errno.EPROTONOSUPPORT)]
    others = _Step(_JUMP_EQUAL, 0, len(internet), _AF_INET6)
    return [_argument(0), _Step(_JUMP_EQUAL, 1, 0, _AF_INET), others, *internet]


def _slow_open(column: int) -> list[_Step]:
    """Refuse to connect by sending."""
    steps: list[_Step] = []
    for numbers, at in ((_SENDTO, 3), (_SENDMSG, 2), (_SENDMMSG, 3)):
        steps += _when(numbers[column], [_argument(at), _Step(_JUMP_BITS, 0, 1, _FAST_OPEN), _refuse()])
    return steps


def _when(number: int, body: list[_Step]) -> list[_Step]:
    """Look at the arguments of one call; a body that does not refuse lets it pass."""
    return [_Step(_JUMP_EQUAL, 0, len(body) + 1, number), *body, _Step(_RETURN, 0, 0, _ALLOW)]


def _only(index: int, values: tuple[int, ...]) -> list[_Step]:
    checks = [_Step(_JUMP_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [_argument(index), *checks, _refuse()]


def _none_of(index: int, values: tuple[int, ...]) -> list[_Step]:
    checks = [step for value in values for step in (_Step(_JUMP_EQUAL, 0, 1, value), _refuse())]
    return [_argument(index), *checks]


def _pairs() -> list[_Step]:
    """Let connected pairs pass. A pair of datagram sockets could still send to any address, so it does not."""
    kinds = [kind | flags for kind in (_SOCK_STREAM, _SOCK_SEQPACKET) for flags in (0, 0o2000000, 0o4000, _SOCK_FLAGS)]
    family = [_argument(0), _Step(_JUMP_EQUAL, 1, 0, _AF_UNIX), _refuse()]
    return [*family, *_only(1, tuple(kinds))]


def _no_address() -> list[_Step]:
    """Let sendto pass only as send: without an address, in both halves of the pointer."""
    steps = [_argument(4), _Step(_JUMP_EQUAL, 1, 0, 0), _refuse()]
    return [*steps, _load(_ARGS_AT + 8 * 4 + 4), _Step(_JUMP_EQUAL, 1, 0, 0), _refuse()]


def _argument(index: int) -> _Step:
    return _load(_ARGS_AT + 8 * index)


def _load(at: int) -> _Step:
    return _Step(_LOAD, 0, 0, at)


def _refuse(code: int = errno.EPERM) -> _Step:
    return _Step(_RETURN, 0, 0, _ERRNO | code)
