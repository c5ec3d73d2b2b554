"""Builds the envelope of a tool result, `{ok, data, warnings, errors}`, and adds warnings to JSON results.

The envelope depends on the result item alone, so that live, recovered and replayed runs give the same one. Pure.
"""

from typing import Any, cast

import msgspec

from treadle.core.items import ResultItem, text_of
from treadle.core.json import BadJson, read_json, write_json
from treadle.core.tool_definitions import Envelope, Fault

WARNING_MARK = "[warning] "
"""The prefix of a warning line at the end of a text result."""


def envelope_of(result: ResultItem) -> Envelope:
    """Return a result in the one shape of all tools, as the model read it: `ok`, `data`, `warnings`, `errors`.

    `data` is the JSON value, or the text where the result is none.
    """
    text = text_of(result.output)
    try:
        value: Any = read_json(text)
    except BadJson:
        value = text
    if isinstance(value, str):
        body, warnings = _parted(text)
        errors = (Fault(code=result.rc, message=body or "failed"),) if result.is_error else ()
        data = write_json(None if result.is_error else body)
        return Envelope(ok=not result.is_error, data=msgspec.Raw(data), warnings=warnings, errors=errors)
    value, warnings = _without_warnings(value)
    if not result.is_error:
        # As it was written, where that is the value: numbers keep their spelling.
        data = write_json(value) if warnings else text.strip().encode()
        return Envelope(ok=True, data=msgspec.Raw(data), warnings=warnings)
    errors, rest = _faults(value, result.rc)
    return Envelope(ok=False, data=msgspec.Raw(write_json(rest)), warnings=warnings, errors=errors)


def error_in(text: str) -> Fault | None:
    """Return the error in a result's text, in either shape; None if it has no code."""
    try:
        value: Any = read_json(text)
    except BadJson:
        return None
    if not isinstance(value, dict) or "error" not in value:
        return None
    (fault, *_), _ = _faults(cast("Any", value), "")
    return fault if fault.code else None


def add_warnings(data: bytes, warnings: tuple[str, ...]) -> bytes:
    """Return a JSON value with warnings: in a field of an object, else wrapped as `data` beside them."""
    listed = write_json(warnings)
    value: Any = read_json(data)
    if not isinstance(value, dict) or "warnings" in value:
        return b'{"data":%b,"warnings":%b}' % (data, listed)
    head = data.rstrip()[:-1]
    return b'%b%b"warnings":%b}' % (head, b"," if value else b"", listed)


def _without_warnings(value: Any) -> tuple[Any, tuple[str, ...]]:
    """Undo `add_warnings`: return the value and its warnings."""
    if not isinstance(value, dict):
        return value, ()
    fields = cast("dict[str, Any]", value)
    listed = cast("list[Any] | None", fields.get("warnings"))
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        return fields, ()
    if set(fields) == {"data", "warnings"}:
        return fields["data"], tuple(listed)
    return {name: each for name, each in fields.items() if name != "warnings"}, tuple(listed)


def _parted(text: str) -> tuple[str, tuple[str, ...]]:
    """Split a text from its trailing warning lines."""
    lines = text.split("\n")
    end = len(lines)
    while end and lines[end - 1].startswith(WARNING_MARK):
        end -= 1
    return "\n".join(lines[:end]), tuple(line.removeprefix(WARNING_MARK) for line in lines[end:])


def _faults(value: Any, rc: str) -> tuple[tuple[Fault, ...], Any]:
    """Return the errors of a failure, in either shape, and its other fields."""
    if not isinstance(value, dict) or "error" not in value:
        return (Fault(code=rc, message="failed"),), cast("Any", value)
    fields = cast("dict[str, Any]", value)
    error: Any = fields["error"]
    inner = cast("dict[str, Any]", error if isinstance(error, dict) else fields)
    message: Any = inner.get("message") if inner is error else fields["error"]
    code: Any = inner.get("code")
    details: Any = inner.get("details")
    head = Fault(code=code if isinstance(code, str) else rc, message=message if isinstance(message, str) else "failed")
    listed = cast("list[Any]", details) if isinstance(details, list) else []
    more = [_detail(cast("dict[str, Any]", each), head.code) for each in listed if isinstance(each, dict)]
    taken = {"error"} if inner is error else {"error", "code", "details"}
    rest = {name: each for name, each in fields.items() if name not in taken}
    return (head, *more), rest or None


def _detail(detail: dict[str, Any], code: str) -> Fault:
    path: Any = detail.get("path")
    return Fault(code=code, message=str(detail.get("message", "")), path=path if isinstance(path, str) else None)
