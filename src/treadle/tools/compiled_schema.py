"""One compiled JSON Schema: validity checks and lists of faults. Time is bounded by the callers, not here."""

from difflib import get_close_matches
from typing import Any, cast

import jsonschema_rs

from treadle.core.json import BadJson, check_bounds, cut_text, write_json
from treadle.core.tool_definitions import Fault

ERRORS_MAX = 20
MESSAGE_BYTES_MAX = 300
RECURSIVE_DEPTH_MAX = 8
"""Listing the errors of a recursive schema can double with each level, so deeper values get one general fault."""

Schema = dict[str, Any]

_LINEAR = jsonschema_rs.RegexOptions(size_limit=1 << 16, dfa_size_limit=1 << 20)
"""Matches in linear time and compiles in under 1 ms; larger patterns are compiled by the worker."""
_BACKTRACKING = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=1 << 20, dfa_size_limit=1 << 20)
"""Supports lookaround and backreferences; used in the worker only."""


class BadSchema(ValueError):
    """The schema cannot be used; the message is the reason."""


class CompiledSchema:
    """A compiled schema; its methods have no time limit.

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
            raise BadSchema(_compile_error_text(error)) from None

    def is_valid(self, value: object) -> bool:
        """Return whether the value fits the schema."""
        return self._compiled.is_valid(value)

    def faults(self, value: object) -> list[Fault]:
        """List at most ERRORS_MAX faults of the value, each with its JSON Pointer."""
        if self.is_recursive and _is_deeper(value, RECURSIVE_DEPTH_MAX):
            return [Fault(code="invalid_arguments", path="", message="does not fit the schema, and nests deeply")]
        found: list[Fault] = []
        for error in self._compiled.iter_errors(value):
            found.extend(self._to_faults(error))
            if len(found) >= ERRORS_MAX:
                break
        return found[:ERRORS_MAX]

    def _to_faults(self, error: jsonschema_rs.ValidationError) -> list[Fault]:
        kind, path = error.kind, list(error.instance_path)
        match kind:
            case jsonschema_rs.ValidationErrorKind.AdditionalProperties():
                return [_fault([*path, name], self._unknown_field(name)) for name in kind.unexpected]
            case jsonschema_rs.ValidationErrorKind.Required():
                return [_fault([*path, str(kind.property)], "is required")]
            case jsonschema_rs.ValidationErrorKind.AnyOf() | jsonschema_rs.ValidationErrorKind.OneOfNotValid():
                reasons = [branch[0].message for branch in kind.context[:4] if branch]
                return [_fault(path, "fits none of the alternatives: " + "; ".join(reasons))]
            case _:
                return [_fault(path, error.message)]

    def _unknown_field(self, name: str) -> str:
        near = get_close_matches(name, self._properties, 1)
        return f'is not a known field; did you mean "{near[0]}"?' if near else "is not a known field"


def pointer(path: list[str | int]) -> str:
    """Write a path as a JSON Pointer."""
    return "".join(f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in path)


def _compile_error_text(error: ValueError) -> str:
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
    """Cut a text to the length limit of a fault message."""
    return cut_text(text, MESSAGE_BYTES_MAX)
