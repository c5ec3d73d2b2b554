"""Decoding with errors that name the field: `input[3].call_id`, as OpenAI spells a parameter.

Depth is bounded by msgspec itself and nothing untyped is built, so a hostile body costs no more than its bytes.
This module knows no field of the protocol.
"""

import re
from typing import TypeVar

import msgspec

from treadle.canon.errors import ProtocolError
from treadle.canon.json import type_errors

T = TypeVar("T")

NULL = msgspec.Raw(b"null")
"""The default of a raw field: msgspec takes no raw value in a union with None, so absent and null are one."""

_SAID = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<where>.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<field>[^`]*)`$")


def read(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw, path: str = "") -> T:
    """Decode a value that stands at `path` of the request.

    Raises: ProtocolError, naming the field.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise _refused(str(error), path) from None
    except type_errors as error:
        raise ProtocolError(
            f"the body is not JSON that can be read: {error or type(error).__name__}",
            code="invalid_json",
            param=path or None,
        ) from None


def at(path: str, field: str) -> str:
    """Return the path of a field of the value at `path`."""
    return f"{path}.{field}" if path else field


def missing(param: str) -> ProtocolError:
    """Return the error for a field that must be there."""
    return ProtocolError(f"'{param}' is required", code="missing_required_parameter", param=param)


def _refused(said: str, path: str) -> ProtocolError:
    match = _SAID.match(said)
    what, where = (match["what"], match["where"] or "") if match else (said, "")
    param = (path + where).removeprefix(".")
    if lacking := _MISSING.match(what):
        return missing(at(param, lacking["field"]))
    shown = f"'{param}': " if param else "the body: "
    return ProtocolError(shown + what, code="invalid_type", param=param or None)
