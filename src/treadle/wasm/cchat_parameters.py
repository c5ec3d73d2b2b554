"""Parses the settings of `cchat_ctl` SET_PARAM: `{"key": …, "value": …}`.

The keys in the table are Treadle's own and bounded; keys reserved for the host are refused; all others are sent to the
provider unchanged. A limit above its maximum is refused, not lowered, so that a guest never runs under a value that it
did not set.
"""

from typing import Any, Literal

import msgspec

from treadle.core.json import write_json
from treadle.wasm.cchat_abi import Errno
from treadle.wasm.cchat_tool_registration import RegistrationRefusal, read_guest_json

PARAMETER_BYTES_MAX = 262_144
KEY_CHARS_MAX = 128

Kind = Literal["text", "integer", "boolean", "names"]


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A key that Treadle handles and does not send to the provider."""

    kind: Kind
    default: int | bool | None = None
    low: int = 0
    high: int = 0


class CchatParameter(msgspec.Struct, frozen=True, kw_only=True):
    """One setting; `upstream` marks one that is sent to the provider and not handled here."""

    key: str
    value: msgspec.Raw
    upstream: bool


_U32_MAX = 2**32 - 1
KNOWN: dict[str, Known] = {
    "model": Known(kind="text"),
    "backend": Known(kind="text"),
    "timeout_ms": Known(kind="integer", default=300_000, low=1, high=300_000),
    "tool_arena_ptr": Known(kind="integer", high=_U32_MAX),
    "tool_arena_len": Known(kind="integer", high=_U32_MAX),
    "max_tool_output_bytes": Known(kind="integer", default=65_536, low=1, high=1_048_576),
    "max_total_tool_calls": Known(kind="integer", default=32, low=1, high=256),
    "max_iterations": Known(kind="integer", default=8, low=1, high=32),
    "mcp.enabled": Known(kind="boolean", default=False),
    "mcp.server_ids": Known(kind="names"),
    "mcp.tool_allowlist": Known(kind="names"),
    "mcp.tool_denylist": Known(kind="names"),
}
ALIASES = {"max_tool_calls": "max_total_tool_calls"}
WRITTEN_ELSEWHERE = frozenset({"messages", "tools"})
"""Set by separate calls, which check them."""
RESERVED_PREFIX = "mcp.task_"
"""Set by the host for a task; refused from guests."""


class _Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: str
    value: Any


def read_parameter(data: bytes) -> CchatParameter | RegistrationRefusal:
    """Parse a setting; a refusal if it is invalid."""
    read = read_guest_json(data, bytes_max=PARAMETER_BYTES_MAX)
    if isinstance(read, RegistrationRefusal):
        # -EIO for invalid JSON dates from the first version of `cchat_ctl`; older guests depend on it.
        return RegistrationRefusal(errno=Errno.EIO, message=read.message) if read.errno is Errno.EINVAL else read
    try:
        setting = msgspec.convert(read, _Setting)
    except msgspec.ValidationError as error:
        return RegistrationRefusal(errno=Errno.EINVAL, message=str(error))
    return _checked(ALIASES.get(setting.key, setting.key), setting.value)


def _checked(key: str, value: Any) -> CchatParameter | RegistrationRefusal:
    if not 0 < len(key) <= KEY_CHARS_MAX:
        return RegistrationRefusal(errno=Errno.EINVAL, message=f"a key has 1 to {KEY_CHARS_MAX} characters")
    if key.startswith(RESERVED_PREFIX):
        return RegistrationRefusal(errno=Errno.EACCES, message=f"`{key}` is set by the host")
    if key in WRITTEN_ELSEWHERE:
        return RegistrationRefusal(errno=Errno.EINVAL, message=f"`{key}` has a call of its own")
    known = KNOWN.get(key)
    expected = _expected(known, value) if known else None
    if expected:
        return RegistrationRefusal(errno=Errno.EINVAL, message=f"`{key}` must be {expected}")
    return CchatParameter(key=key, value=msgspec.Raw(write_json(value)), upstream=known is None)


def _expected(known: Known, value: Any) -> str | None:
    """Return a description of the expected value; None if the value is valid."""
    match known.kind:
        case "text":
            return None if isinstance(value, str) and value else "a string that is not empty"
        case "boolean":
            return None if isinstance(value, bool) else "true or false"
        case "names":
            return None if _is_names(value) else "an array of strings"
        case "integer":
            fits = isinstance(value, int) and not isinstance(value, bool) and known.low <= value <= known.high
            return None if fits else f"an integer from {known.low} to {known.high}"


def _is_names(value: Any) -> bool:
    try:
        msgspec.convert(value, list[str])
    except msgspec.ValidationError:
        return False
    return True
