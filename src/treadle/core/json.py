"""Bounded JSON decoding, canonical JSON encoding, and truncation of text at character boundaries.

Decoding rejects what other parsers accept (unbounded depth, NaN, numbers out of range). Canonical encoding gives equal
values equal bytes, so that they can be fingerprinted.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    OptionalRaw = msgspec.Raw | None
else:
    # msgspec (seen with 0.22) decodes `Raw | None` only from null; a plain Raw works, with None as its default.
    OptionalRaw = msgspec.Raw

type_errors = (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError)
"""What a msgspec decoder can raise on hostile bytes."""

DEPTH_MAX = 64
NODES_MAX = 200_000
FIELDS_MAX = 1_000
"""The bound on fields of one object: clients send a few dozen, and each unknown one costs a note."""

PIECE_BYTES = 262_144
"""How much JSON is scanned without releasing the GIL."""

LEVELS_MAX = 4
"""How many levels of an object are decoded to prove that its values cannot nest too deep."""

UTF8_BYTES_MAX = 4
"""The longest encoding of one character."""

JOINED_MAX = 32
"""The longest sequence of combining characters that is not split; longer ones are not natural text."""

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="sorted")
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{},"))
_NOT_OPENING = bytes(set(range(256)) - set(b"[{"))
_LIST = ord("[")
_SPACE = re.compile(rb"[ \t\n\r]*")
_SPACES = (b" ", b"\t", b"\n", b"\r")
_members: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_entries: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])


class BadJson(ValueError):
    """The text is not JSON that Treadle accepts; the message says why, for a person."""

    def __init__(self, message: str, *, code: str = "invalid_json", field: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.field = field


def read_json(data: bytes | str) -> Any:
    """Decode one JSON value within the depth and node bounds.

    Raises: BadJson.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if len(raw) > DEPTH_MAX:
        # Shorter input cannot exceed the bounds.
        check_bounds(raw)
    try:
        return _decoder.decode(raw)
    except type_errors as error:
        raise BadJson(str(error) or type(error).__name__) from None


def check_bounds(raw: bytes, depth_max: int = DEPTH_MAX, nodes_max: int = NODES_MAX) -> None:
    """Reject JSON that nests or branches beyond the bounds, in one pass and without building a value.

    Raises: BadJson.
    """
    openers = raw.count(b"[") + raw.count(b"{")
    if openers <= depth_max and openers + raw.count(b",") <= nodes_max:
        return
    nodes = depth = 0
    for piece in _pieces(raw):
        structure = _STRINGS.sub(b"", piece).translate(None, _NOT_STRUCTURE)
        nodes += len(structure) - structure.count(b"]") - structure.count(b"}")
        if nodes > nodes_max:
            raise BadJson(f"JSON has more than {nodes_max} values")
        for byte in structure.translate(None, b","):
            depth += 1 if byte in b"[{" else -1
            if depth > depth_max:
                raise BadJson(f"JSON nests deeper than {depth_max} levels")


def _pieces(raw: bytes) -> Iterator[bytes]:
    """Split JSON outside of its strings: one regex over 32 MB of short strings would hold the GIL for a second."""
    start = 0
    while start < len(raw):
        end = raw.find(b'"', start + PIECE_BYTES)
        if end < 0:
            yield raw[start:]
            return
        piece = raw[start:end]
        is_escaped = (len(piece) - len(piece.rstrip(b"\\"))) % 2 == 1
        if piece.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"') % 2:
            # The quotation mark is in a string, or ends it: the string belongs to this piece.
            rest = _REST.match(raw, end - is_escaped)
            end = rest.end() if rest else len(raw)
            piece = raw[start:end]
        yield piece
        start = end


def members_of(raw: bytes) -> dict[str, msgspec.Raw] | None:
    """Return the undecoded fields of an object; None for any other or invalid JSON.

    The decoder validates all of it, so the result has no lone surrogates.
    """
    try:
        return _members.decode(raw)
    except type_errors:
        return None


def check_members(raw: bytes, members: dict[str, msgspec.Raw], proven: str = "") -> None:
    """Reject an object beyond the bounds as `check_bounds` does; the field `proven` is known to be shallow.

    Lists of small values, as in nearly all requests, are accepted without a scan of their structure.

    Raises: BadJson.
    """
    if len(raw) <= NODES_MAX or raw.count(b",") + raw.count(b"[") + raw.count(b"{") <= NODES_MAX:
        known = members.get(proven)
        for value in members.values():
            # A value that nests too deep is longer than the bound.
            if len(value) > DEPTH_MAX and value is not known and not is_shallow(value, DEPTH_MAX):
                break
        else:
            return
    check_bounds(raw)


def is_shallow(value: msgspec.Raw, depth_max: int) -> bool:
    """Return whether a value certainly nests less deep: it has fewer openers, or each value in it does so in turn.

    It gives up after a few levels, since each one scans the whole value again.
    """
    kind = memoryview(value)[0]
    if kind not in b"[{" or opens_less(value, depth_max):
        return True
    if depth_max <= DEPTH_MAX - LEVELS_MAX:
        return False
    inner = _entries.decode(value) if kind == _LIST else _members.decode(value).values()
    return all(is_shallow(each, depth_max - 1) for each in inner)


def opens_less(value: msgspec.Raw, count: int) -> bool:
    """Return whether a value certainly nests less deep than that, from its number of opening brackets."""
    if len(value) < count:
        return True
    # One pass; counting both brackets would take two slower ones.
    return len(bytes(value).translate(None, _NOT_OPENING)) < count


def check_fields(raw: bytes, fields_max: int = FIELDS_MAX, members: dict[str, msgspec.Raw] | None = None) -> None:
    """Reject an object that has too many fields, or one of them twice, which parsers resolve differently.

    Its values are not checked, and other JSON has no fields. The bounds must have been checked; `members` are its
    fields if the caller has them.

    Raises: BadJson.
    """
    members = members_of(raw) if members is None else members
    if members is None:
        return
    if len(members) > fields_max:
        raise BadJson(f"It has more than {fields_max} fields", code="too_many_fields")
    # The least that the members take: each its name in quotes, a colon, its value, and a comma or the last brace.
    taken = 1 + sum(map(len, members)) + sum(map(len, members.values())) + 4 * len(members)
    spare = len(raw) - taken
    # The least that another one of them takes: its name in quotes, a colon, one digit, and a comma.
    if spare < 5 or spare < 5 + min(map(len, members), default=0) or _is_made_of(raw, members):
        return
    if (name := _first_repeated(raw)) is not None:
        raise BadJson("It stands there twice", code="duplicate_field", field=name)


def _is_made_of(raw: bytes, members: dict[str, msgspec.Raw]) -> bool:
    """Return whether an object consists of exactly these members in this order."""
    place = _skip(raw, 0) + 1
    for name, value in members.items():
        for piece in (b'"%b"' % name.encode("utf-8", "surrogatepass"), b":", bytes(value)):
            if raw[place : place + 1] in _SPACES:
                place = _skip(raw, place)
            if not raw.startswith(piece, place):
                return False
            place += len(piece)
        if raw[place : place + 1] in _SPACES:
            place = _skip(raw, place)
        # After a comma, or the last brace.
        place += 1
    end = place if members else _skip(raw, place) + 1
    return end == len(raw.rstrip())


def _skip(raw: bytes, place: int) -> int:
    """Return the position after any white space."""
    found = _SPACE.match(raw, place)
    assert found is not None
    return found.end()


def _first_repeated(raw: bytes) -> str | None:
    """Return the first repeated name."""
    found: list[str] = []

    def collect(pairs: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        # The hook is called last for the outermost object.
        found[:] = [name for name, _ in pairs if name in seen or seen.add(name)][:1]

    json.loads(raw, object_pairs_hook=collect, parse_int=str, parse_float=str)
    return found[0] if found else None


write_json: Callable[[Any], bytes] = _encoder.encode
"""Encode compactly, keys in the order given."""


canonical_json: Callable[[Any], bytes] = _canonical.encode
"""Encode compactly with sorted keys: equal values give equal bytes."""


def fingerprint(value: Any) -> str:
    """Return the sha256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def cut_text(text: str, bytes_max: int) -> str:
    """Return the longest prefix of at most `bytes_max` UTF-8 bytes that ends on a character boundary.

    A combining mark, a joiner or a variation selector is not separated from the character before it. Lone surrogates,
    which UTF-8 cannot encode, are replaced first.
    """
    if len(text) * UTF8_BYTES_MAX <= bytes_max:
        return text
    # Every character takes at least a byte, so longer text need not be encoded.
    text = text[: bytes_max + 1]
    raw = text.encode("utf-8", "replace")
    if len(raw) <= bytes_max:
        return text
    text = raw.decode("utf-8")
    prefix = raw[:bytes_max].decode("utf-8", "ignore")
    end = len(prefix)
    while end > max(0, len(prefix) - JOINED_MAX) and _joins(text[end], prefix[end - 1]):
        end -= 1
    return prefix[:end]


def cut_json_text(text: str, bytes_max: int) -> str:
    """Return the longest prefix whose JSON string takes at most so many bytes, its quotes not counted."""
    text = cut_text(text, max(0, bytes_max))
    fits, fails = 0, len(text) + 1
    while fails - fits > 1:
        # Most text grows little in JSON: trying all of it first ends the search at once.
        middle = len(text) if fails > len(text) else (fits + fails) // 2
        if len(write_json(text[:middle])) - 2 <= bytes_max:
            fits = middle
        else:
            fails = middle
    return text[:fits]


def _joins(following: str, last: str) -> bool:
    return last == "\u200d" or following == "\u200d" or _is_mark(following)


def _is_mark(char: str) -> bool:
    code = ord(char)
    return (
        0x0300 <= code <= 0x036F or 0xFE00 <= code <= 0xFE0F or 0x1F3FB <= code <= 0x1F3FF or 0x20D0 <= code <= 0x20FF
    )
