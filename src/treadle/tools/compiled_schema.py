"""One compiled JSON Schema: whether a value fits, and all that is wrong with it. Nothing here bounds the time."""

from difflib import get_close_matches
from typing import Any, cast

import jsonschema_rs

from treadle.core.json import BadJson, check_bounds, cut_text, write_json
from treadle.core.tool_definitions import Fault

ERRORS_MAX = 20
MESSAGE_BYTES_MAX = 300
RECURSIVE_DEPTH_MAX = 8
"""Listing the errors of a recursive schema may double with each level, so beyond this depth none are listed."""

Schema = dict[str, Any]

_LINEAR = jsonschema_rs.RegexOptions(size_limit=1 << 16, dfa_size_limit=1 << 20)
"""Runs in time linear in the text, and compiles in under 1 ms: larger patterns are for the worker."""
_BACKTRACKING = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=1 << 20, dfa_size_limit=1 << 20)
"""For look-around and back references, in the worker only."""


class BadSchema(ValueError):
    """The schema cannot be used; the message says why."""


class CompiledSchema:
    """A compiled schema; says without a bound on time whether a value fits, and everything that is wrong with it.

    Raises: BadSchema, when it cannot be compiled.
    """

    def __init__(self, schema: Schema, *, is_recursive: bool, is_linear: bool) -> None:
        self.is_recursive = is_recursive
        self._properties = tuple(cast("Schema", schema.get("properties") or {}))
        options = _LINEAR if is_linear else _BACKTRACKING
        try:
            self._compiled = jsonschema_rs.validator_for(
                schema, offline=True, mask="the value", pattern_options=options
            )
        except ValueError as error:
            raise BadSchema(_why(error)) from None

    def is_valid(self, value: object) -> bool:
        """Tell whether the value fits."""
        return self._compiled.is_valid(value)

    def faults(self, value: object) -> list[Fault]:
        """List what is wrong with the value, each with its JSON Pointer; bounded in number."""
        if self.is_recursive and _is_deeper(value, RECURSIVE_DEPTH_MAX):
            return [Fault(code="invalid_arguments", path="", message="does not fit the schema, and nests deeply")]
        found: list[Fault] = []
        for error in self._compiled.iter_errors(value):
            found.extend(self._spell(error))
            if len(found) >= ERRORS_MAX:
                break
        return found[:ERRORS_MAX]

    def _spell(self, error: jsonschema_rs.ValidationError) -> list[Fault]:
        kind, path = error.kind, list(error.instance_path)
        match kind:
            case jsonschema_rs.ValidationErrorKind.AdditionalProperties():
                return [_fault([*path, name], self._unknown(name)) for name in kind.unexpected]
            case jsonschema_rs.ValidationErrorKind.Required():
                return [_fault([*path, str(kind.property)], "is required")]
            case jsonschema_rs.ValidationErrorKind.AnyOf() | jsonschema_rs.ValidationErrorKind.OneOfNotValid():
                reasons = [branch[0].message for branch in kind.context[:4] if branch]
                return [_fault(path, "fits none of the alternatives: " + "; ".join(reasons))]
            case _:
                return [_fault(path, error.message)]

    def _unknown(self, name: str) -> str:
        near = get_close_matches(name, self._properties, 1)
        return f'is not a known field; did you mean "{near[0]}"?' if near else "is not a known field"


def pointer(path: list[str | int]) -> str:
    """Write a path as a JSON Pointer."""
    return "".join(f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in path)


def _why(error: ValueError) -> str:
    message = str(getattr(error, "message", error))
    if message != 'the value is not a "regex"':
        return shorten(message)
    place = shorten(pointer(list(getattr(error, "instance_path", ()))))
    return f"the pattern at {place} is not a regular expression, or compiles to more than is allowed"


def _is_deeper(value: object, depth_max: int) -> bool:
    try:
        check_bounds(write_json(value), depth_max=depth_max)
    except BadJson:
        return True
    return False


def _fault(path: list[str | int], message: str) -> Fault:
    return Fault(code="invalid_arguments", path=shorten(pointer(path)), message=shorten(message))


def shorten(text: str) -> str:
    """Cut a text to what a message may have."""
    return cut_text(text, MESSAGE_BYTES_MAX)
