"""Parses the JSON by which a guest registers one of its functions as a tool.

Accepts OpenAI's nested form and a flat one; anything else is a refusal with an error number and a message, never an
exception. Whether the function can be called is checked by the host calls.
"""

import re
from collections.abc import Container
from typing import Any, Literal, cast

import msgspec

from treadle.core.json import BadJson, read_json
from treadle.core.tool_definitions import EMPTY_SCHEMA, ToolSpec
from treadle.wasm.cchat_abi import Errno

TOOL_JSON_BYTES_MAX = 65_536
TOOLS_MAX = 128
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class RegistrationRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a guest's input is refused: the error number it gets, and the message for `cchat_error`."""

    errno: Errno
    message: str


class _Function(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    parameters: msgspec.Raw = EMPTY_SCHEMA
    strict: bool | None = None


class _Nested(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["function"]
    function: _Function


def read_tool(data: bytes, taken: Container[str] = ()) -> ToolSpec | RegistrationRefusal:
    """Parse a tool, or return a refusal; `taken` are the names already registered."""
    value = read_guest_json(data, bytes_max=TOOL_JSON_BYTES_MAX)
    if isinstance(value, RegistrationRefusal):
        return value
    if not isinstance(value, dict):
        return _invalid("a tool is a JSON object")
    try:
        function = _read_function(data, cast("dict[str, Any]", value))
    except msgspec.ValidationError as error:
        return _invalid(str(error))
    if not _NAME.fullmatch(function.name):
        return _invalid(f"the name {function.name[:80]!r} is not 1 to 64 of the characters A-Z a-z 0-9 _ -")
    if function.name in taken:
        return RegistrationRefusal(errno=Errno.EEXIST, message=f"a tool `{function.name}` is registered already")
    return ToolSpec(
        name=function.name,
        description=function.description or "",
        parameters=function.parameters,
        strict=function.strict,
    )


def read_guest_json(data: bytes, *, bytes_max: int) -> Any | RegistrationRefusal:
    """Decode a guest's JSON strictly: bounded, UTF-8, no NaN, no lone surrogates."""
    if len(data) > bytes_max:
        return RegistrationRefusal(
            errno=Errno.E2BIG, message=f"{len(data)} bytes of JSON; at most {bytes_max} are taken"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return RegistrationRefusal(errno=Errno.EILSEQ, message=f"not UTF-8 at byte {error.start}")
    try:
        return read_json(text)
    except BadJson as error:
        return _invalid(str(error))


def _read_function(data: bytes, value: dict[str, Any]) -> _Function:
    """Decode the function, nested or flat; the schema stays byte-identical."""
    if "function" in value:
        function = msgspec.json.decode(data, type=_Nested).function
        schema = value["function"].get("parameters", {})
    elif value.get("type", "function") != "function":
        raise msgspec.ValidationError("Invalid enum value - at `$.type`")
    elif "parameters" not in value:
        raise msgspec.ValidationError("Object has neither `function` nor `parameters`")
    else:
        function, schema = msgspec.json.decode(data, type=_Function), value["parameters"]
    if not isinstance(schema, dict):
        raise msgspec.ValidationError("Expected `object` - at `parameters`")
    return function


def _invalid(message: str) -> RegistrationRefusal:
    return RegistrationRefusal(errno=Errno.EINVAL, message=message)
