"""The cchat host-call ABI, version 1, as tables: calls, flags, commands, error numbers, and the signature of tools.

Two import modules offer it: `treadle` with strict rules, and `spear`, with the behaviour that older guests were built
for. Only the contract is here; `cchat_host_calls` implements it.
"""

from enum import IntEnum, IntFlag
from typing import Literal

import msgspec

ABI_VERSION = 1
MODULE = "treadle"
MODULE_COMPATIBLE = "spear"
FIRST_FD = 1_000
TABLE_NAMES = ("__indirect_function_table", "table")
"""Names of exported tables, in the order tried; without them the first exported table of functions is used."""

BY_EXPORT_NAME = -1
"""The `fn_offset` of a tool that is not in a table but exported as `tool_<name>`."""

ROLES = frozenset({"system", "developer", "user", "assistant"})
"""The roles a guest may write messages as; not `tool`, because results must not be forged."""

ValueType = Literal["i32", "i64"]


class Errno(IntEnum):
    """Linux error numbers; a call that fails returns the negative one."""

    EPERM = 1
    ENOENT = 2
    EIO = 5
    E2BIG = 7
    EBADF = 9
    EAGAIN = 11
    ENOMEM = 12
    EACCES = 13
    EFAULT = 14
    EBUSY = 16
    EEXIST = 17
    EINVAL = 22
    ENOSPC = 28
    EPIPE = 32
    ENOSYS = 38
    ELOOP = 40
    EILSEQ = 84
    ECONNRESET = 104
    ENOTCONN = 107
    ETIMEDOUT = 110


class WasiErrno(IntEnum):
    """The same names in WASI libc, which a guest's `errno.h` may mean; its EINVAL is Linux's ENOSPC."""

    EBADF = 8
    EFAULT = 21
    EINVAL = 28
    EIO = 29
    ENOMEM = 48
    ENOSPC = 51


class CchatFlag(IntFlag):
    """The bits of `cchat_send`; any other bit is -EINVAL."""

    METRICS = 1
    AUTO_TOOL_CALL = 2


class Command(IntEnum):
    """The commands of `cchat_ctl`."""

    SET_PARAM = 1
    GET_METRICS = 2


class HostCall(msgspec.Struct, frozen=True, kw_only=True):
    """One function that a guest may import. A negative result is an error number."""

    name: str
    parameters: tuple[str, ...] = ()
    result: ValueType = "i32"
    errors: frozenset[Errno] = frozenset()
    compatible: bool = True  # offered by `spear` too

    @property
    def signature(self) -> tuple[tuple[ValueType, ...], tuple[ValueType, ...]]:
        """Return the types of the parameters and of the result."""
        return tuple("i32" for _ in self.parameters), (self.result,)


class CchatRules(msgspec.Struct, frozen=True, kw_only=True):
    """Where the two import modules differ.

    A bad tool that is not refused is logged and never called. A send without AUTO_TOOL_CALL that appends the
    assistant's message lets the guest run its own tool loop.
    """

    refuses_bad_tools: bool
    refuses_second_close: bool
    appends_without_auto: bool


RULES = {
    MODULE: CchatRules(refuses_bad_tools=True, refuses_second_close=True, appends_without_auto=True),
    MODULE_COMPATIBLE: CchatRules(refuses_bad_tools=False, refuses_second_close=False, appends_without_auto=False),
}

_E = Errno
CALLS: dict[str, HostCall] = {
    call.name: call
    for call in (
        HostCall(name="cchat_create", errors=frozenset({_E.ENOSPC})),
        HostCall(
            name="cchat_write_msg",
            parameters=("fd", "role_ptr", "role_len", "content_ptr", "content_len"),
            errors=frozenset({_E.EBADF, _E.EFAULT, _E.EILSEQ, _E.EINVAL, _E.E2BIG}),
        ),
        HostCall(
            name="cchat_write_fn",
            parameters=("fd", "fn_offset", "json_ptr", "json_len"),
            errors=frozenset({_E.EBADF, _E.EFAULT, _E.EILSEQ, _E.EINVAL, _E.EEXIST, _E.ENOSYS, _E.E2BIG, _E.ENOSPC}),
        ),
        HostCall(
            name="cchat_ctl",
            parameters=("fd", "cmd", "arg_ptr", "arg_len_ptr"),
            errors=frozenset({_E.EBADF, _E.EFAULT, _E.EINVAL, _E.EIO, _E.ENOSPC, _E.EACCES}),
        ),
        HostCall(
            name="cchat_send",
            parameters=("fd", "flags"),
            errors=frozenset({_E.EBADF, _E.EINVAL, _E.ENOSYS, _E.ELOOP, _E.EBUSY, _E.ENOSPC}),
        ),
        HostCall(
            name="cchat_recv",
            parameters=("response_fd", "out_ptr", "out_len_ptr"),
            errors=frozenset({_E.EBADF, _E.EFAULT, _E.ENOSPC}),
        ),
        HostCall(name="cchat_close", parameters=("fd",), errors=frozenset({_E.EBADF})),
        HostCall(name="cchat_abi", compatible=False),
        HostCall(
            name="cchat_write_result",
            parameters=("fd", "id_ptr", "id_len", "content_ptr", "content_len"),
            errors=frozenset({_E.EBADF, _E.EFAULT, _E.EILSEQ, _E.EINVAL, _E.E2BIG}),
            compatible=False,
        ),
        HostCall(
            name="cchat_error",
            parameters=("out_ptr", "out_len_ptr"),
            errors=frozenset({_E.EFAULT, _E.ENOSPC}),
            compatible=False,
        ),
        HostCall(name="log", parameters=("level", "ptr", "len"), errors=frozenset({_E.EFAULT, _E.EINVAL, _E.E2BIG})),
        HostCall(name="time_now_ms", result="i64"),
        HostCall(name="wall_time_s", result="i64"),
        HostCall(name="random_i64", result="i64"),
    )
}

TOOL = HostCall(
    name="tool",
    parameters=("args_ptr", "args_len", "out_ptr", "out_len_ptr"),
    errors=frozenset({_E.ENOSPC, _E.EFAULT, _E.EIO}),
)
"""The signature a guest's function must have to be registered as a tool."""

OUT_BYTES_FIRST = 16_384
"""The size of the first output buffer; the tool may request a larger one once, by -ENOSPC."""


def calls_of(module: str) -> tuple[HostCall, ...]:
    """Return the calls of an import module; none for an unknown one."""
    if module not in RULES:
        return ()
    return tuple(call for call in CALLS.values() if call.compatible or module == MODULE)


def wants_space(rc: int, wanted_bytes: int, capacity_bytes: int) -> bool:
    """Return whether a tool's return code requests a larger buffer.

    WASI's -EINVAL has the same number as Linux's -ENOSPC, so the number alone is ambiguous: the wanted length must
    also exceed the capacity.
    """
    return rc in (-Errno.ENOSPC, -WasiErrno.ENOSPC) and wanted_bytes > capacity_bytes


def outcome_of(rc: int, wanted_bytes: int, capacity_bytes: int) -> Errno | None:
    """Interpret a tool's final return code: None for success, else the error."""
    if rc == 0:
        return Errno.EFAULT if wanted_bytes > capacity_bytes else None
    if wants_space(rc, wanted_bytes, capacity_bytes):
        return Errno.ENOSPC
    return Errno(-rc) if -rc in _NUMBERS else Errno.EIO


_NUMBERS = frozenset(Errno)
