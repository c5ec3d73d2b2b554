"""The file format of a cassette: JSON Lines with a header, and then each call as request, response, chunks and end.

Bytes are written as text if they are UTF-8, else as base64, so that they are restored exactly. Times are seconds since
the line before. Reading is strict and reports the invalid line; it executes nothing and follows no references.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from treadle.core.errors import ConfigError
from treadle.core.json import BadJson, canonical_json, read_json, type_errors
from treadle.protocols.protocol_registry import ProtocolName

VERSION = 1
SUFFIX = ".jsonl"
CASSETTE_BYTES_MAX = 268_435_456
"""Bound on the size of one file, or of all files of a folder."""
SHOWN_CHARS_MAX = 120

How = Literal["eof", "reset", "timeout", "refused", "closed"]
"""How a call ended: complete, connection reset, timed out, no response, or closed by Treadle."""

Seconds = Annotated[float, Meta(ge=0)]


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", forbid_unknown_fields=True):
    """A line of the file."""


class Header(Line, frozen=True, kw_only=True, tag="cassette"):
    """The first line: the version of the format, and the upstream of the calls."""

    version: int
    upstream: str
    protocol: ProtocolName
    base_url: str
    quirks: tuple[str, ...] = ()


class CassetteRequest(Line, frozen=True, kw_only=True, omit_defaults=True, tag="request"):
    """A request as it was sent, without secrets. `path` is the part of its URL after the base URL."""

    path: str
    at: float = 0.0
    method: str = "POST"
    headers: dict[str, str] = {}
    text: str | None = None
    base64: str | None = None


class CassetteResponse(Line, frozen=True, kw_only=True, omit_defaults=True, tag="response"):
    """The head of the response."""

    status: int
    after_s: Seconds = 0.0
    headers: dict[str, str] = {}


class Chunk(Line, frozen=True, kw_only=True, omit_defaults=True, tag="chunk"):
    """The bytes of one network read."""

    after_s: Seconds = 0.0
    text: str | None = None
    base64: str | None = None


class CassetteEnd(Line, frozen=True, kw_only=True, omit_defaults=True, tag="end"):
    """How the call ended."""

    how: How
    after_s: Seconds = 0.0


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call: a request, its response and its end."""

    asked: CassetteRequest
    ended: CassetteEnd
    answered: CassetteResponse | None = None
    chunks: tuple[Chunk, ...] = ()

    @property
    def body(self) -> bytes:
        """Return the body of the request."""
        return data_of(self.asked)

    @property
    def key(self) -> tuple[str, bytes]:
        """Return what a request is matched by."""
        return self.asked.path, canonical_body(self.body)


class Cassette(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of a file, or of the files of a folder, in the order in which they were made."""

    header: Header
    calls: tuple[Call, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """Return the names of the called models."""
        return tuple(dict.fromkeys(name for call in self.calls if (name := _model_of(call))))


AnyLine = Header | CassetteRequest | CassetteResponse | Chunk | CassetteEnd
_lines: msgspec.json.Decoder[AnyLine] = msgspec.json.Decoder(AnyLine)


def text_or_base64(data: bytes) -> dict[str, str]:
    """Return bytes as the fields of a line, exactly."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def data_of(line: CassetteRequest | Chunk) -> bytes:
    """Return the bytes of a line, which `load_cassette` has validated."""
    if line.base64 is not None:
        return base64.b64decode(line.base64, validate=True)
    return (line.text or "").encode()


def canonical_body(body: bytes) -> bytes:
    """Return the form in which bodies are compared: canonical JSON, or the bytes if they are not JSON."""
    try:
        return canonical_json(read_json(body))
    except BadJson:
        return body


def write_header(header: Header) -> bytes:
    """Write the first line of a file."""
    return msgspec.json.encode(header) + b"\n"


def write_call(call: Call) -> bytes:
    """Write the lines of a call."""
    lines = [call.asked, *([call.answered] if call.answered else []), *call.chunks, call.ended]
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def write_cassette(cassette: Cassette) -> bytes:
    """Write a whole file."""
    return write_header(cassette.header) + b"".join(map(write_call, cassette.calls))


def load_cassette(path: Path, upstream: str = "") -> Cassette:
    """Read a file, or all files of a folder as one; with several upstreams, only the calls of this one.

    Raises: ConfigError, naming the file and the line.
    """
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"there is no cassette in {path}", param="base_url", hint=f"they are named *{SUFFIX}")
    read: list[Cassette] = []
    left = CASSETTE_BYTES_MAX
    for file in files:
        data = _read_file(file, left)
        left -= len(data)
        read.append(read_cassette(data, str(file)))
    own = [each for each in read if each.header.upstream == upstream]
    return _join(own or read, path)


def read_cassette(data: bytes, name: str = "cassette") -> Cassette:
    """Read one cassette; `name` is what errors call it.

    Raises: ConfigError, naming the line.
    """
    lines = [(number, _read_line(raw, name, number)) for number, raw in enumerate(data.split(b"\n"), 1) if raw.strip()]
    if not lines or not isinstance(lines[0][1], Header):
        raise _wrong(name, 1, "a cassette begins with a line of type cassette")
    header = lines[0][1]
    if header.version != VERSION:
        raise _wrong(name, 1, f"the version is {header.version}; this Treadle reads {VERSION}")
    return Cassette(header=header, calls=tuple(_calls(lines[1:], name)))


def _read_file(file: Path, bytes_max: int) -> bytes:
    try:
        with file.open("rb") as source:
            data = source.read(bytes_max + 1)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}", param="base_url") from None
    if len(data) > bytes_max:
        raise ConfigError(f"{file}: is over the {CASSETTE_BYTES_MAX} bytes that are read", param="base_url")
    return data


def _read_line(raw: bytes, name: str, number: int) -> AnyLine:
    try:
        line = _lines.decode(raw)
        if isinstance(line, CassetteRequest | Chunk):
            data_of(line)
    except (*type_errors, binascii.Error) as error:
        raise _wrong(name, number, str(error)) from None
    return line


def _calls(lines: Iterable[tuple[int, AnyLine]], name: str) -> Iterable[Call]:
    """Combine the lines of each call, and check their order."""
    asked: CassetteRequest | None = None
    answered: CassetteResponse | None = None
    chunks: list[Chunk] = []
    number = 1
    for number, line in lines:
        match line:
            case CassetteRequest() if asked is None:
                asked, answered, chunks = line, None, []
            case CassetteResponse() if asked is not None and answered is None:
                answered = line
            case Chunk() if answered is not None and asked is not None:
                chunks.append(line)
            case CassetteEnd() if asked is not None:
                yield Call(asked=asked, answered=answered, chunks=tuple(chunks), ended=line)
                asked = None
            case _:
                kind = cast("str", line.__struct_config__.tag)
                raise _wrong(name, number, f"a line of type {kind} cannot stand here")
    if asked is not None:
        raise _wrong(name, number, "the last call has no line of type end")


def _join(read: Sequence[Cassette], path: Path) -> Cassette:
    """Join the files of a folder by the time of their requests."""
    first = read[0].header
    for each in read[1:]:
        if (each.header.protocol, each.header.base_url) != (first.protocol, first.base_url):
            raise ConfigError(
                f"{path} holds calls of {first.upstream!r} ({first.protocol}, {first.base_url}) and of "
                f"{each.header.upstream!r} ({each.header.protocol}, {each.header.base_url})",
                param="base_url",
                hint="give the upstream the name that its calls were recorded under, or name one file",
            )
    calls = [call for each in read for call in each.calls]
    return Cassette(header=first, calls=tuple(sorted(calls, key=lambda call: call.asked.at)))


def _model_of(call: Call) -> str:
    """Return the model of a request, from its body, or from its path for Gemini."""
    if call.asked.path.startswith("/models/"):
        return call.asked.path.removeprefix("/models/").partition(":")[0]
    try:
        body: Any = read_json(call.body)
    except BadJson:
        return ""
    model: Any = cast("dict[str, Any]", body).get("model") if isinstance(body, dict) else None
    return model if isinstance(model, str) else ""


def first_difference(recorded: bytes, asked: bytes) -> str:
    """Describe the first difference of two bodies, with its JSON path."""
    try:
        return _difference(read_json(recorded), read_json(asked), "$") or "nothing differs"
    except BadJson:
        place = next((n for n, (a, b) in enumerate(zip(recorded, asked, strict=False)) if a != b), None)
        return f"byte {min(len(recorded), len(asked)) if place is None else place}"


def _difference(left: object, right: object, place: str) -> str | None:
    pairs = _paired_members(left, right, place)
    if pairs is None:
        return _leaf_difference(left, right, place)
    return next((found for where, a, b in pairs if (found := _difference(a, b, where)) is not None), None)


def _paired_members(left: object, right: object, place: str) -> list[tuple[str, object, object]] | None:
    """Pair the members of two objects, or of two arrays."""
    if isinstance(left, dict) and isinstance(right, dict):
        ours, theirs = cast("dict[str, object]", left), cast("dict[str, object]", right)
        keys = sorted(ours.keys() | theirs.keys())
        return [(f"{place}.{key}", ours.get(key, msgspec.UNSET), theirs.get(key, msgspec.UNSET)) for key in keys]
    if isinstance(left, list) and isinstance(right, list):
        rows = zip_longest(cast("list[object]", left), cast("list[object]", right), fillvalue=msgspec.UNSET)
        return [(f"{place}[{n}]", a, b) for n, (a, b) in enumerate(rows)]
    return None


def _leaf_difference(left: object, right: object, place: str) -> str | None:
    if type(left) is type(right) and left == right:
        return None
    return f"{place}: recorded {_shown(left)}, asked {_shown(right)}"


def _shown(value: object) -> str:
    if value is msgspec.UNSET:
        return "nothing"
    text = canonical_json(value).decode()
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def _wrong(name: str, number: int, message: str) -> ConfigError:
    return ConfigError(f"{name}:{number}: {message}", param="base_url", hint="docs/cassettes.md has the format")
