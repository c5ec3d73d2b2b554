"""An object of a request, read field by field, with errors that name the field as the API does.

What nobody asked for stays in the object, so that it can be passed on or reported. This module knows no field.
"""

import re
from collections.abc import Callable, Sequence
from functools import reduce
from types import NoneType
from typing import Any, Generic, TypeVar, get_args

import msgspec

from treadle.core.errors import ProtocolError
from treadle.core.json import (
    DEPTH_MAX,
    FIELDS_MAX,
    BadJson,
    check_bounds,
    check_fields,
    check_members,
    is_shallow,
    members_of,
    type_errors,
)
from treadle.protocols.surrogates import mend_escapes

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
Shape = Callable[[bytes], T | None]
"""Decodes a body if all that it knows of it has some usual shape; raises as decoders do, or gives None."""

TEXT: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)
FLAG: msgspec.json.Decoder[bool] = msgspec.json.Decoder(bool)
INTEGER: msgspec.json.Decoder[int] = msgspec.json.Decoder(int)
NUMBER: msgspec.json.Decoder[float] = msgspec.json.Decoder(float)
LIST: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])
OBJECT: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])

NULL = msgspec.Raw(b"null")
"""The default of a raw field: msgspec takes no raw value in a union with None, so absent and null are one."""

NAME_CHARS_MAX = 200
"""What an error shows of a field's name that the client made up."""

_BOM = b"\xef\xbb\xbf"
_WHERE = re.compile(r"^(?P<reason>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<field>[^`]*)`$")


def read_value(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw | bytes, path: str = "") -> T:
    """Decode the value that stands at `path` of the body.

    Raises: ProtocolError, naming the field.
    """
    try:
        return decoder.decode(raw)
    except type_errors as error:
        found = _WHERE.match(str(error))
        assert found is not None
        param = (path + (found["path"] or "")).removeprefix(".")
        reason = found["reason"] or "nests too deep"
        lacking = _MISSING.match(reason)
        if lacking is not None:
            raise missing(at(param, lacking["field"])) from None
        code = "invalid_type" if isinstance(error, msgspec.ValidationError) else "invalid_json"
        raise refusal(param, reason, code) from None


def at(path: str, field: str) -> str:
    """Return the path of a field of the value at `path`."""
    return f"{path}.{field}" if path else field


def missing(param: str) -> ProtocolError:
    """Return the error for a field that must be there."""
    return ProtocolError(f"Missing required '{param}'.", code="missing_required_parameter", param=param)


def refusal(param: str, reason: str, code: str = "invalid_value") -> ProtocolError:
    """Return the error that says what is wrong with a field, or with the whole body where that has no name."""
    named = f"'{param}'" if param else "body"
    return ProtocolError(f"Invalid {named}: {reason}.", code=code, param=param or None)


def starts_with(raw: msgspec.Raw | bytes, char: str) -> bool:
    """Return whether a value begins so, without copying it: the first character says what kind it is."""
    return memoryview(raw)[0] == ord(char)


def is_null(raw: msgspec.Raw) -> bool:
    """Return whether a value is null."""
    return memoryview(raw)[0] == 0x6E


class Fields:
    """One JSON object, or its members. Every read takes the field out, `rest` is what is left; null is as missing."""

    __slots__ = ("_values", "path")

    def __init__(self, raw: msgspec.Raw | bytes, path: str, members: dict[str, msgspec.Raw] | None = None) -> None:
        self.path = path
        self._values = read_value(OBJECT, raw, path) if members is None else members
        if len(self._values) > FIELDS_MAX:
            raise refusal(path, f"It has more than {FIELDS_MAX} fields", "too_many_fields")

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return at(self.path, name)

    def has(self, name: str) -> bool:
        """Return whether the field is there and not null."""
        return self.peek(name) is not None

    def peek(self, name: str) -> msgspec.Raw | None:
        """Return a field as it was written, and leave it there."""
        value = self._values.get(name)
        return None if value is None or is_null(value) else value

    def raw(self, name: str) -> msgspec.Raw | None:
        """Take a field as it was written."""
        value = self._values.pop(name, None)
        if value is None or is_null(value):
            return None
        return value

    def get(self, name: str, decoder: msgspec.json.Decoder[T]) -> T | None:
        """Take a field.

        Raises: ProtocolError.
        """
        value = self._values.pop(name, None)
        return None if value is None or is_null(value) else self._decoded(decoder, value, name)

    def need(self, name: str, decoder: msgspec.json.Decoder[T]) -> T:
        """Take a field that must be there.

        Raises: ProtocolError.
        """
        value = self._values.pop(name, None)
        if value is None or is_null(value):
            raise missing(self.at(name))
        return self._decoded(decoder, value, name)

    def object(self, name: str) -> "Fields | None":
        """Take a field that is an object itself.

        Raises: ProtocolError.
        """
        value = self.raw(name)
        return None if value is None else Fields(value, self.at(name))

    def json_object(self, name: str) -> msgspec.Raw | None:
        """Take a field that must be an object, as it was written.

        Raises: ProtocolError.
        """
        return given_object(self._values.pop(name, NULL), self.at(name))

    def rest(self) -> dict[str, msgspec.Raw]:
        """Return the fields that nobody took, without the nulls."""
        return {name: raw.copy() for name, raw in self._values.items() if not is_null(raw)} if self._values else {}

    def _decoded(self, decoder: msgspec.json.Decoder[T], value: msgspec.Raw, name: str) -> T:
        try:
            return decoder.decode(value)
        except type_errors:
            # Again, for an error that names the field.
            return read_value(decoder, value, self.at(name))


class Opened(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A request's body as JSON that may be decoded: whole, and by field where it is an object.

    `known` is what Treadle knows of it, if that has one of the shapes that were asked for. `mended` halves of
    characters were replaced.
    """

    data: bytes
    members: dict[str, msgspec.Raw] | None
    mended: int
    known: T | None = None


def open_request(body: bytes, history: str = "", shapes: Sequence[Shape[T]] = ()) -> Opened[T]:
    """Open a body and decode it in the first of the shapes that it has.

    A `history` in one of the shapes needs no look at how deep it nests: they bound that themselves.

    Raises: ProtocolError, when it is not UTF-8, nests or branches without end, or says the same field twice.
    """
    data, mended = body.removeprefix(_BOM), 0
    members = members_of(data)
    if members is None:
        data, mended = mend_escapes(data)
        members = members_of(data) if mended else None
    known = None
    for shape in shapes if members is not None else ():
        try:
            known = shape(data)
        except type_errors:
            continue
        if known is not None:
            break
    try:
        if not data.isascii():
            str(data, "utf-8")
        if members is None:
            check_bounds(data)
        else:
            check_members(data, members, history if known is not None else "")
            check_fields(data, members=members)
    except UnicodeDecodeError:
        raise ProtocolError("The body is not UTF-8.", code="invalid_json") from None
    except BadJson as error:
        if error.code != "invalid_json":
            raise refusal(error.field[:NAME_CHARS_MAX], str(error), error.code) from None
        raise ProtocolError(f"The body cannot be read: {error}.", code="invalid_json") from None
    return Opened(data, members, mended, known)


def usual_or_raw(raws: list[msgspec.Raw], usual: Callable[[msgspec.Raw], T | None]) -> list[T | msgspec.Raw] | None:
    """Return the entries of a history, each in the usual shape if it has that; None if one that has not nests deep."""
    told = [usual(raw) or raw for raw in raws]
    odd = [each for each in told if isinstance(each, msgspec.Raw)]
    return told if all(is_shallow(each, DEPTH_MAX - 1) for each in odd) else None


def members_in(opened: Opened[Any]) -> dict[str, msgspec.Raw]:
    """Return the fields of a body.

    Raises: ProtocolError, when it is no object.
    """
    if opened.members is not None:
        return opened.members
    try:
        return read_value(OBJECT, opened.data)
    except ProtocolError as error:
        raise ProtocolError(f"The body is not a JSON object: {error.message}", code="invalid_json") from None


def read_known(decoder: msgspec.json.Decoder[S], opened: Opened[Any]) -> S:
    """Read those fields of a body that the struct of a decoder has; null is as missing.

    Raises: ProtocolError, naming the first of them that is missing or of a wrong type.
    """
    members = members_in(opened)
    try:
        return decoder.decode(opened.data)
    except type_errors:
        # Again, for an error that names the field.
        for field in msgspec.structs.fields(decoder.type):
            raw = members.get(field.name)
            if raw is not None and not is_null(raw):
                read_value(msgspec.json.Decoder(_without_null(field.type)), raw, field.name)
            elif field.required:
                raise missing(field.name) from None
        raise


def _without_null(kind: Any) -> Any:
    """Return the type of a field that is there: nobody is told that null would do."""
    kinds: list[Any] = [each for each in get_args(kind) if each is not NoneType]
    return reduce(lambda left, right: left | right, kinds) if NoneType in get_args(kind) else kind


def unknown_in(opened: Opened[Any], known: frozenset[str]) -> dict[str, msgspec.Raw]:
    """Return the fields of a body that are none of those, without the nulls."""
    members = opened.members or members_in(opened)
    if known.issuperset(members):
        return {}
    return {name: raw.copy() for name, raw in members.items() if name not in known and not is_null(raw)}


def given(raw: msgspec.Raw) -> msgspec.Raw | None:
    """Return a raw field of a struct unless it is absent or null."""
    return None if raw is NULL or is_null(raw) else raw


def given_object(raw: msgspec.Raw, path: str) -> msgspec.Raw | None:
    """Return a raw field of a struct that must be an object, for keeping; None where it is absent or null.

    Raises: ProtocolError.
    """
    if raw is NULL or is_null(raw):
        return None
    if not starts_with(raw, "{"):
        raise refusal(path, "Expected `object`", "invalid_type")
    return raw.copy()


def open_body(body: bytes) -> tuple[bytes, int]:
    """Return a request's body as JSON that may be decoded, and how many halves of characters were mended in it.

    Raises: ProtocolError, when it is not UTF-8, nests or branches without end, or says the same field twice.
    """
    opened: Opened[Any] = open_request(body)
    return opened.data, opened.mended
