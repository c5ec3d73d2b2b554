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

from treadle.tools.sandbox import syscalls as kernel

_LOAD, _AND, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_BITS, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NONE = 0xFFFFFFFF
"""Stands for the number of a call that a machine does not have."""
_NR_AT, _ARCH_AT, _ARGS_AT = 0, 4, 16
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_X32 = 0x40000000
_MODE_FILTER = 2
_NAMESPACES = 0x7E020000
"""The flags of clone that make namespaces."""
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_FLAGS = 1, 5, 0o2004000
_TERMINAL_INPUTS = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: typing into another terminal."""

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
_SHARED_BY_NUMBER = {
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "mq_unlink": (241, 181),
}
"""The same, for those who guess a number."""
_METADATA = {
    "chmod": (90, _NONE),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, _NONE),
    "fchown": (93, 55),
    "lchown": (94, _NONE),
    "fchownat": (260, 54),
    "utime": (132, _NONE),
    "utimes": (235, _NONE),
    "futimesat": (261, _NONE),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "truncate": (76, 45),
    "quotactl_fd": (443, 443),
}
"""What changes a file, or what is written beside it, without opening it for writing: Landlock does not see it."""
_OTHERS = {
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
}
"""What changes how another process of the user runs."""
_SIGNALS = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}
_READING_CONTROLS = (
    *(0x5401, 0x802C542A),  # TCGETS, TCGETS2: is it a terminal?
    *(0x540F, 0x5413),  # TIOCGPGRP, TIOCGWINSZ
    *(0x541B, 0x5421, 0x5450, 0x5451),  # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
    *(0x80086601, 0x801C581F),  # FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR
)
"""The only ioctls of a command that may change nothing: others make snapshots, set attributes, type into terminals."""
_OWNING_CONTROLS = (8, 15, 10, 1024)
"""F_SETOWN, F_SETOWN_EX and F_SETSIG have the kernel signal a process, F_SETLEASE makes writers of a file wait."""
_OWNERS, _SOCKET_OWNERS = (8, 15), (0x8901, 0x8902)
"""F_SETOWN, F_SETOWN_EX, and FIOSETOWN, SIOCSPGRP, which do the same."""
_OPEN, _OPENAT, _OPENAT2 = (2, _NONE), (257, 56), (437, 437)
_FCNTL, _PRLIMIT = (72, 25), (302, 261)
_MODE_BITS, _O_TRUNC = 0o3, 0o1000
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
    """Return whether there is a table for this machine."""
    return platform.machine() in _ARCHES


def restrict(*, network: bool, own_memory: bool, spared: int = 0) -> None:
    """Install the filter. `own_memory` when System V memory is in a namespace of one's own.

    `spared` is the process that watches over the command, where no namespace keeps it out of reach.
    Raises: OSError.
    """
    _install(program(platform.machine(), network=network, own_memory=own_memory, spared=spared))


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


def restrict_to_reading(*, own_memory: bool, own_processes: bool, truncation_is_guarded: bool) -> None:
    """Install the filter of a command that may change nothing: what it opens is guarded elsewhere, all else is here.

    Raises: OSError.
    """
    _install(
        reading_program(
            platform.machine(),
            own_memory=own_memory,
            own_processes=own_processes,
            truncation_is_guarded=truncation_is_guarded,
        )
    )


def reading_program(machine: str, *, own_memory: bool, own_processes: bool, truncation_is_guarded: bool) -> list[_Step]:
    """Write the filter of a command that may change nothing, for a machine.

    Raises: KeyError, where there is no table.
    """
    column, _ = _ARCHES[machine]
    steps: list[_Step] = []
    for numbers in _METADATA.values():
        steps += [_Step(_JUMP_EQUAL, 0, 1, numbers[column]), _refuse(errno.EROFS)]
    others = {**_OTHERS, **({} if own_processes else _SIGNALS), **_SHARED_BY_NUMBER}
    for numbers in others.values():
        steps += [_Step(_JUMP_EQUAL, 0, 1, numbers[column]), _refuse()]
    steps += _when(_IOCTL[column], _only(1, _READING_CONTROLS, errno.ENOTTY))
    steps += _when(_FCNTL[column], _none_of(1, _OWNING_CONTROLS))
    steps += _when(_PRLIMIT[column], _only(0, (0,)))
    if not truncation_is_guarded:
        steps += [_Step(_JUMP_EQUAL, 0, 1, _OPENAT2[column]), _refuse(errno.ENOSYS)]
        steps += [*_when(_OPEN[column], _no_emptying(1)), *_when(_OPENAT[column], _no_emptying(2))]
    return _filter(machine, steps, network=False, own_memory=own_memory)


def program(machine: str, *, network: bool, own_memory: bool, spared: int = 0) -> list[_Step]:
    """Write the filter for a machine.

    Raises: KeyError, where there is no table.
    """
    first = _sparing(_ARCHES[machine][0], spared) if spared else []
    return _filter(machine, first, network=network, own_memory=own_memory)


def _sparing(column: int, pid: int) -> list[_Step]:
    """Refuse whatever ends, stops or starves one process: it is the leader of its group, and has one thread."""
    # Its group, and everybody at once.
    steps = _when(_SIGNALS["kill"][column], _none_of(0, (pid, -pid & 0xFFFFFFFF, 0xFFFFFFFF)))
    for name, index in (("tkill", 0), ("rt_sigqueueinfo", 0), ("tgkill", 1), ("rt_tgsigqueueinfo", 1)):
        steps += _when(_SIGNALS[name][column], _none_of(index, (pid,)))
    # A folder of /proc is a descriptor for it too, which no filter can tell from others.
    steps += [_Step(_JUMP_EQUAL, 0, 1, _SIGNALS["pidfd_send_signal"][column]), _refuse()]
    # Of no other process at all: Landlock lets a limit of CPU through, which ends what it is set for.
    steps += _when(_PRLIMIT[column], _only(0, (0,)))
    # The kernel sends signals to the owner of a file.
    steps += _when(_FCNTL[column], _none_of(1, _OWNERS))
    return steps + _when(_IOCTL[column], _none_of(1, (*_TERMINAL_INPUTS, *_SOCKET_OWNERS)))


def _filter(machine: str, first: list[_Step], *, network: bool, own_memory: bool) -> list[_Step]:
    column, arch = _ARCHES[machine]
    steps = [_load(_ARCH_AT), _Step(_JUMP_EQUAL, 1, 0, arch), _Step(_RETURN, 0, 0, _KILL), _load(_NR_AT)]
    if machine == "x86_64":
        steps += [_Step(_JUMP_ABOVE, 0, 1, _X32), _refuse()]
    steps += first
    refused = dict(_REFUSED)
    if not own_memory:
        refused.update(_SHARED_MEMORY | _SHARED_BY_NUMBER)
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
    """Check the arguments of one call; a body that does not refuse lets it pass."""
    return [_Step(_JUMP_EQUAL, 0, len(body) + 1, number), *body, _Step(_RETURN, 0, 0, _ALLOW)]


def _only(index: int, values: tuple[int, ...], code: int = errno.EPERM) -> list[_Step]:
    checks = [_Step(_JUMP_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [_argument(index), *checks, _refuse(code)]


def _no_emptying(index: int) -> list[_Step]:
    """Refuse to empty a file that is opened for reading: the kernel does it, and an old Landlock does not ask."""
    # Neither for writing nor for both, which is also what the kernel makes of the fourth value of these bits.
    modes = [_Step(_AND, 0, 0, _MODE_BITS), _Step(_JUMP_EQUAL, 2, 0, 1), _Step(_JUMP_EQUAL, 1, 0, 2)]
    return [_argument(index), _Step(_JUMP_BITS, 0, 4, _O_TRUNC), *modes, _refuse(errno.EROFS)]


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
