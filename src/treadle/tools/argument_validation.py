"""Validates a call's arguments: decodes the JSON text, checks it against the schema, converts it to Python types.

All faults are reported together, each with its path, so that the model can repair its call in one attempt.
"""

import json
import re
from typing import Any, cast

import msgspec

from treadle.core.errors import InvalidArguments
from treadle.core.json import BadJson, cut_text, read_json, write_json
from treadle.core.tool_definitions import Fault
from treadle.tools.compiled_schema import ERRORS_MAX, MESSAGE_BYTES_MAX, pointer
from treadle.tools.json_schema import Validator
from treadle.tools.schema_worker import CheckTimeout
from treadle.tools.signature_schema import FunctionParameter
from treadle.tools.thread_pool import Threads

Json = dict[str, Any] | list[Any] | str | float | bool | None
FAULTS_WAIT_S = 5.0
_AT = re.compile(r"^(?P<reason>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[([^\]]*)\]")


class BadArguments(InvalidArguments):
    """Refused arguments; `faults` lists each path and reason."""

    def __init__(self, message: str, faults: tuple[Fault, ...] = (), code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.faults = faults


def read_arguments(text: str, bytes_max: int) -> dict[str, Any]:
    """Decode the arguments of a call; blank text means no arguments.

    Raises: BadArguments.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > bytes_max:
        raise BadArguments(
            f"The arguments are {size} bytes, more than the {bytes_max} allowed. Send less at a time.",
            code="arguments_too_large",
        )
    if not text.strip():
        return {}
    try:
        value: Json = read_json(text)
        # Fast path: a flat object with as many colons as keys cannot contain a duplicate key.
        if not isinstance(value, dict) or text.count(":") != len(value) or text.count("{") != 1:
            _refuse_duplicates(text)
    except BadJson as error:
        why = "a \\u escape is only half of a character" if _has_lone_surrogate(text) else str(error)
        raise BadArguments(f"The arguments are not valid JSON: {why}") from None
    if not isinstance(value, dict):
        raise BadArguments("The arguments must be a JSON object.")
    return value


async def check_arguments(validator: Validator, name: str, arguments: dict[str, Any], threads: Threads) -> None:
    """Check arguments against the schema without blocking the event loop.

    Raises: BadArguments, with every fault found.
    """
    try:
        if await validator.fits(arguments):
            return
        # Listing errors can take long on hostile input, so it runs in a thread and under a timeout.
        listed = await threads.run(lambda: validator.faults(arguments), FAULTS_WAIT_S)
    except CheckTimeout as error:
        raise BadArguments(f"The arguments of {name} are refused: {error}. Send less, or simpler values.") from None
    faults = cast("list[Fault]", listed.value or [])
    raise BadArguments(f"The arguments do not fit the parameters of {name}.", tuple(faults))


class Converter:
    """Converts validated arguments to the types of the function's annotations."""

    def __init__(self, name: str, parameters: tuple[FunctionParameter, ...]) -> None:
        self._name = name
        self._adapters = {each.name: each.pydantic for each in parameters if each.pydantic is not None}
        fields = [
            (each.name, (each.annotation if each.pydantic is None else Any) | msgspec.UnsetType, msgspec.UNSET)
            for each in parameters
        ]
        self._struct = msgspec.defstruct("Arguments", fields, kw_only=True)

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the function's keyword arguments; absent ones keep their defaults.

        Raises: BadArguments.
        """
        try:
            typed = msgspec.convert(arguments, self._struct)
        except msgspec.ValidationError as error:
            typed = self._convert_whole_floats(arguments, error)
        values = {name: getattr(typed, name) for name in arguments}
        for name, adapter in self._adapters.items():
            if name in values:
                values[name] = self._validate_pydantic(name, adapter, values[name])
        return values

    def _convert_whole_floats(self, arguments: dict[str, Any], refusal: msgspec.ValidationError) -> Any:
        """Convert arguments that write an integer as 2.0: JSON Schema accepts that as an integer, msgspec does not."""
        try:
            return msgspec.convert(_floats_to_integers(arguments), self._struct)
        except msgspec.ValidationError:
            raise self._refused([_fault_of(refusal)]) from None

    def _validate_pydantic(self, name: str, adapter: Any, value: Any) -> Any:
        try:
            return adapter.validate_json(write_json(value))
        except ValueError as error:
            details = cast("list[dict[str, Any]]", getattr(error, "errors", list)())
            found = [_fault([name, *detail["loc"]], detail["msg"]) for detail in details[:ERRORS_MAX]]
            raise self._refused(found or [_fault([name], str(error))]) from None

    def _refused(self, faults: list[Fault]) -> BadArguments:
        return BadArguments(f"The arguments do not fit the parameters of {self._name}.", tuple(faults))


def _refuse_duplicates(text: str) -> None:
    """Refuse duplicate keys: parsers disagree on which value wins, so the value approved might not be the one used."""

    def unique(pairs: list[tuple[str, object]]) -> None:
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise BadJson(f'the key "{cut_text(name, 100)}" is given twice')
            names.add(name)

    json.loads(text, object_pairs_hook=unique)


def _has_lone_surrogate(text: str) -> bool:
    """Return whether the text is JSON except for a lone surrogate, which only Python's json module accepts."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _floats_to_integers(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_floats_to_integers(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _floats_to_integers(each) for key, each in cast("dict[str, Any]", value).items()}
    return value


def _fault_of(error: msgspec.ValidationError) -> Fault:
    """Parse the path from a message such as "Expected `int`, got `str` - at `$.a[1]`"."""
    found = _AT.match(str(error))
    if found is None:
        return _fault([], str(error))
    steps = [name or index for name, index in _STEP.findall(found["path"] or "")]
    return _fault(["*" if step == "..." else step for step in steps], found["reason"])


def _fault(path: list[str | int], message: str) -> Fault:
    return Fault(
        code="invalid_arguments",
        path=cut_text(pointer(path), MESSAGE_BYTES_MAX),
        message=cut_text(message, MESSAGE_BYTES_MAX),
    )
