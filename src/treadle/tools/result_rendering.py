"""Normalizes what a tool returned into one envelope, and renders it as the text that the model reads.

Text stays text, everything else is compact JSON; errors are `{"error":{"code","message",…}}`, or S3's `{"error":"…"}`
for the local tools; warnings go into the field `warnings` of JSON, or on lines below text. Golden files in the tests
fix the format.
"""

import base64
import mimetypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from treadle.core.errors import ToolError, ToolFailed
from treadle.core.items import AnyPart, FilePart, ImagePart, Part, TextPart, text_of
from treadle.core.json import BadJson, cut_json_text, cut_text, read_json, write_json
from treadle.core.result_envelope import WARNING_MARK, add_warnings
from treadle.core.tool_definitions import Envelope, Fault
from treadle.tools.argument_validation import BadArguments
from treadle.tools.function_tools import Style

SUMMARY_CHARS_MAX = 120
_URLS = ("http://", "https://", "data:")
PLAIN = frozenset({str, int, float, bool, dict, type(None)})
"""The types that nearly all tools return; checked first because it is fast."""
_BYTES = (bytes, bytearray, memoryview)
_IMAGES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}


class ToolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A normalized tool result; a tool may also return one to set its own summary."""

    envelope: Envelope
    summary: str | None = None
    parts: tuple[AnyPart, ...] = ()
    is_cut: bool = False
    """Whether the tool itself truncated its result."""


def answer_of(value: object) -> ToolAnswer:
    """Normalize what a tool returned.

    Raises: ToolFailed, for bytes and for values without a JSON form.
    """
    if type(value) in PLAIN:
        return ToolAnswer(envelope=Envelope(ok=True, data=_data(value)))
    match value:
        case ToolAnswer():
            return value
        case Envelope():
            return ToolAnswer(envelope=_checked(value))
        case Part():
            return _parts((cast("AnyPart", value),))
        case list() | tuple() if any(isinstance(each, Part) for each in cast("list[object]", value)):
            return _parts(tuple(_part(each) for each in cast("list[object]", value)))
        case _:
            return ToolAnswer(envelope=Envelope(ok=True, data=_data(value)))


def image(source: bytes | str | os.PathLike[str], *, mime: str | None = None, detail: str | None = None) -> ImagePart:
    """Return an image for the model, from bytes, a file's path, or an http(s) or data URL.

    Raises: ToolFailed, when the file cannot be read or neither content nor name is that of an image.
    """
    if isinstance(source, str) and source.startswith(_URLS):
        return ImagePart(url=source, detail=detail)
    data, name = _bytes_of(source)
    kind = mime or next((kind for head, kind in _IMAGES.items() if data.startswith(head)), None) or _mime_of(name)
    if not kind.startswith("image/"):
        raise ToolFailed("This is no image of a kind that can be told; say which with mime=.")
    return ImagePart(url=_data_url(data, kind), detail=detail)


def file(source: bytes | str | os.PathLike[str], *, name: str | None = None, mime: str | None = None) -> FilePart:
    """Return a file for the model, from bytes with a name, a file's path, or an http(s) or data URL.

    Raises: ToolFailed, when the file cannot be read.
    """
    if isinstance(source, str) and source.startswith(_URLS):
        return FilePart(url=source, filename=name)
    data, found = _bytes_of(source)
    filename = name or found or "file"
    return FilePart(url=_data_url(data, mime or _mime_of(filename)), filename=filename)


def answer_of_error(error: ToolError) -> ToolAnswer:
    """Normalize a failure: the main error first, then its details with their paths."""
    details = error.faults if isinstance(error, BadArguments) else ()
    head = Fault(code=_valid(error.info.code), message=_valid(error.message))
    return ToolAnswer(envelope=Envelope(ok=False, errors=(head, *details)))


def with_warnings(answer: ToolAnswer, warnings: Sequence[str]) -> ToolAnswer:
    """Add the warnings that the tool made while it ran."""
    if not warnings:
        return answer
    joined = (*answer.envelope.warnings, *(_valid(line) for line in warnings))
    return msgspec.structs.replace(answer, envelope=msgspec.structs.replace(answer.envelope, warnings=joined))


def parts_with(parts: tuple[AnyPart, ...], text: str) -> tuple[AnyPart, ...]:
    """Return the parts with their text replaced by `text`, unless it is the same."""
    if text_of(parts) == text:
        return parts
    others = tuple(part for part in parts if not isinstance(part, TextPart))
    return (TextPart(text=text), *others) if text else others


def write_text(answer: ToolAnswer, style: Style = "plain") -> str:
    """Render the text that the model reads."""
    envelope, warnings = answer.envelope, answer.envelope.warnings
    if not envelope.ok:
        data = write_json(_error_body(envelope, style))
    elif answer.parts:
        return _with_lines(text_of(answer.parts), warnings)
    else:
        data = bytes(envelope.data)
        if data[:1] == b'"':
            return _with_lines(_data_text(data), warnings)
    return (add_warnings(data, _plain_lines(warnings)) if warnings else data).decode()


def _with_lines(text: str, warnings: Sequence[str]) -> str:
    """Append warnings as lines, since plain text has no field for them."""
    lines = [f"{WARNING_MARK}{line}" for line in _plain_lines(warnings)]
    return "\n".join([text, *lines] if text else lines)


def _plain_lines(warnings: Sequence[str]) -> tuple[str, ...]:
    return tuple(" ".join(line.split()) for line in warnings)


def write_summary(answer: ToolAnswer, text: str) -> str:
    """Return a one-line summary for people: the tool's own, the error message, or the result's first line."""
    if answer.summary is not None:
        line = answer.summary
    elif not answer.envelope.ok:
        line = answer.envelope.errors[0].message if answer.envelope.errors else "failed"
    else:
        lines = text.strip().splitlines()
        line = lines[0] if lines else ""
    line = line.strip()
    return line if len(line) <= SUMMARY_CHARS_MAX else f"{line[: SUMMARY_CHARS_MAX - 1]}…"


def cut_output(text: str, bytes_max: int, *, kept_bytes: int = 0, handle: str | None = None) -> str:
    """Cut a text to the limit on a character boundary, and append a notice of how to read the rest."""
    size = len(text.encode())
    if size <= bytes_max:
        return text
    room = bytes_max - len(_notice(size, size, kept_bytes, handle).encode())
    shown = cut_text(text, max(room, 0))
    notice = _notice(len(shown.encode()), size, kept_bytes, handle)
    return cut_text(shown + notice, bytes_max)


def cut_object(text: str, bytes_max: int, *, handle: str | None = None) -> str:
    """Cut a JSON object to the limit so that it stays valid: shorten its text, then drop other fields."""
    fields = cast("dict[str, Any]", read_json(text))
    name = "error" if "error" in fields else "output"
    whole: Any = fields.get(name)
    long = whole if isinstance(whole, str) else ""
    marks: dict[str, Any] = {"truncated": True, **({"next": {"handle": handle, "offset": 0}} if handle else {})}
    # The tool's own `next` points behind the text that is cut here, so it would skip a part.
    fields = {key: value for key, value in fields.items() if key != "next"}
    scalars = {key: value for key, value in fields.items() if not isinstance(value, (str, list, dict))}
    for candidate in (fields | marks, {name: "", **scalars} | marks, {name: "", "truncated": True}):
        room = bytes_max - len(write_json(candidate | {name: ""}))
        shown = cut_json_text(long, room)
        if room >= 0 and (shown or not long):
            return write_json(candidate | {name: shown}).decode()
    return write_json({"truncated": True}).decode()


def _notice(shown: int, size: int, kept: int, handle: str | None) -> str:
    if handle is None:
        more = "the rest was not kept"
    elif kept < size:
        more = f'the first {kept} bytes are kept under the handle "{handle}"'
    else:
        more = f'the whole is kept under the handle "{handle}"'
    return f"\n[output cut: {shown} of {size} bytes shown; {more}]"


def _part(value: object) -> AnyPart:
    """Return an element of a mixed result as a part; anything that is not a part becomes text."""
    if isinstance(value, Part):
        return cast("AnyPart", value)
    return TextPart(text=_valid(value) if isinstance(value, str) else _data_text(bytes(_data(value))))


def _parts(parts: tuple[AnyPart, ...]) -> ToolAnswer:
    return ToolAnswer(envelope=Envelope(ok=True, data=msgspec.Raw(write_json(text_of(parts)))), parts=parts)


def _checked(envelope: Envelope) -> Envelope:
    try:
        read_json(bytes(envelope.data))
    except (BadJson, TypeError):
        raise ToolFailed("The tool returned an envelope whose data is not JSON.") from None
    return msgspec.structs.replace(
        envelope,
        warnings=tuple(_valid(line) for line in envelope.warnings),
        errors=tuple(
            Fault(code=_valid(each.code), message=_valid(each.message), path=each.path) for each in envelope.errors
        ),
    )


def _data(value: object) -> msgspec.Raw:
    if isinstance(value, _BYTES):
        raise ToolFailed("The tool returned bytes; it must return text, JSON values, treadle.image or treadle.file.")
    try:
        return msgspec.Raw(msgspec.json.encode(value, enc_hook=_encode))
    except UnicodeEncodeError:
        if isinstance(value, str):
            return msgspec.Raw(write_json(_valid(value)))
        raise ToolFailed("The tool returned text that is not valid Unicode.") from None
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise ToolFailed(f"The tool returned a value without a JSON form: {cut_text(str(error), 200)}") from None


def _bytes_of(source: bytes | str | os.PathLike[str]) -> tuple[bytes, str]:
    """Return the source's bytes and its file name."""
    if isinstance(source, bytes):
        return source, ""
    path = Path(source)
    try:
        return path.read_bytes(), path.name
    except OSError as error:
        raise ToolFailed(f"{path.name} cannot be read: {error.strerror or error}.") from None


def _mime_of(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _data_url(data: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def _valid(text: str) -> str:
    """Replace lone surrogates, which file names and exceptions can contain but JSON cannot."""
    return text.encode("utf-8", "replace").decode()


def _encode(value: Any) -> Any:
    """Encode types that msgspec does not know: pydantic models and paths."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    raise TypeError(f"{type(value).__name__} is not JSON")


def _data_text(data: bytes) -> str:
    return msgspec.json.decode(data, type=str) if data[:1] == b'"' else data.decode()


def _error_body(envelope: Envelope, style: Style) -> dict[str, Any]:
    head = envelope.errors[0] if envelope.errors else Fault(code="failed", message="The tool failed.")
    details = [_detail(each) for each in envelope.errors[1:]]
    more: dict[str, Any] = {"details": details} if details else {}
    if style == "s3":
        extra = cast("dict[str, Any]", read_json(bytes(envelope.data)) or {})
        return {"error": head.message, "code": head.code, **extra, **more}
    return {"error": {"code": head.code, "message": head.message, **more}}


def _detail(fault: Fault) -> dict[str, str]:
    return {"message": fault.message} if fault.path is None else {"path": fault.path, "message": fault.message}
