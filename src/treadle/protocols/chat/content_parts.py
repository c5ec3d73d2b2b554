"""The parts of a message's content, read and written. Kinds that Treadle does not know are kept as they are."""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from treadle.core.items import AnyPart, Extra, FilePart, ImagePart, OpaquePart, RefusalPart, TextPart
from treadle.core.json import write_json
from treadle.protocols.field_reader import TEXT, Fields, read_value, starts_with
from treadle.protocols.protocol_registry import CHAT
from treadle.protocols.translation_notes import Notes, is_alike

PROTOCOL = CHAT

_ANNOTATIONS: msgspec.json.Decoder[list[dict[str, Any]]] = msgspec.json.Decoder(list[dict[str, Any]])
_CONTENT: msgspec.json.Decoder[str | list[msgspec.Raw]] = msgspec.json.Decoder(str | list[msgspec.Raw])


def read_content(raw: msgspec.Raw | None, path: str) -> tuple[AnyPart, ...]:
    """Read a content: nothing, a string, or an array of parts.

    Raises: ProtocolError.
    """
    if raw is None:
        return ()
    content = read_value(_CONTENT, raw, path)
    if isinstance(content, str):
        return (TextPart(text=content),) if content else ()
    return tuple(read_part(part, f"{path}[{position}]") for position, part in enumerate(content))


def read_part(raw: msgspec.Raw, path: str) -> AnyPart:
    """Read one part of an array.

    Raises: ProtocolError.
    """
    if starts_with(raw, '"'):
        return TextPart(text=read_value(TEXT, raw, path))
    fields = Fields(raw, path)
    kind = fields.need("type", TEXT)
    reader = _READERS.get(kind)
    if reader is None:
        return OpaquePart(protocol=PROTOCOL, raw=raw.copy())
    part = reader(fields)
    rest = fields.rest()
    return msgspec.structs.replace(part, extra=Extra(protocol=PROTOCOL, fields=rest)) if rest else part


def write_part(part: AnyPart, notes: Notes) -> msgspec.Raw | None:
    """Write one part of an array; None where Chat cannot say it."""
    match part:
        case TextPart():
            return _raw(with_extra({"type": "text", "text": part.text}, part.extra))
        case RefusalPart():
            return _raw(with_extra({"type": "refusal", "refusal": part.text}, part.extra))
        case ImagePart():
            return _write_image(part, notes)
        case FilePart():
            return _write_file(part, notes)
        case OpaquePart():
            if part.protocol == PROTOCOL or is_alike(part):
                return part.raw
            notes.add("part_dropped", "dropped", f"a part that only {part.protocol} can carry")
            return None


def write_image(part: ImagePart, place: int) -> dict[str, Any]:
    """Return one entry of `images`, the field in which answers hold them."""
    return {"type": "image_url", "index": place, "image_url": {"url": part.url}}


def with_extra(written: dict[str, Any], extra: Extra | None) -> dict[str, Any]:
    """Return an object with the fields that Chat's own clients and upstreams gave it; they override nothing."""
    if extra is None or extra.protocol != PROTOCOL:
        return written
    return {**extra.fields, **written}


def flat_annotation(annotation: dict[str, Any]) -> dict[str, Any]:
    """Return an annotation as the Responses API and the canonical parts spell it: its own fields, not nested."""
    kind = annotation.get("type")
    inner = annotation.get(kind) if isinstance(kind, str) else None
    return {"type": kind, **cast("dict[str, Any]", inner)} if isinstance(inner, dict) else annotation


def nested_annotation(annotation: dict[str, Any], shift: int) -> dict[str, Any]:
    """Return an annotation as Chat spells it; what it refers to stands `shift` characters further on."""
    if annotation.get("type") != "url_citation" or "url_citation" in annotation:
        return annotation
    inner = {name: value for name, value in annotation.items() if name != "type"}
    for name in ("start_index", "end_index"):
        if isinstance(inner.get(name), int):
            inner[name] += shift
    return {"type": "url_citation", "url_citation": inner}


def _read_text(fields: Fields) -> AnyPart:
    text = fields.need("text", TEXT)
    annotations = fields.get("annotations", _ANNOTATIONS)
    flat = [flat_annotation(entry) for entry in annotations or ()]
    return TextPart(text=text, annotations=_raw(flat) if flat else None)


def _read_refusal(fields: Fields) -> AnyPart:
    return RefusalPart(text=fields.need("refusal", TEXT))


def _read_image(fields: Fields) -> AnyPart:
    raw = fields.raw("image_url")
    if raw is not None and starts_with(raw, '"'):
        return ImagePart(url=read_value(TEXT, raw, fields.at("image_url")), detail=fields.get("detail", TEXT))
    if raw is None and fields.has("file_id"):
        return ImagePart(file_id=fields.need("file_id", TEXT), detail=fields.get("detail", TEXT))
    image = Fields(raw if raw is not None else b"{}", fields.at("image_url"))
    return ImagePart(url=image.need("url", TEXT), detail=image.get("detail", TEXT))


def _read_file(fields: Fields) -> AnyPart:
    file = fields.object("file") or fields
    data = file.get("file_data", TEXT)
    if data and not data.startswith("data:"):
        # Bare base64 would read as a relative URL elsewhere.
        data = f"data:application/octet-stream;base64,{data}"
    return FilePart(
        url=data or file.get("file_url", TEXT),
        file_id=file.get("file_id", TEXT),
        filename=file.get("filename", TEXT),
    )


_READERS: dict[str, Callable[[Fields], AnyPart]] = {
    "text": _read_text,
    "input_text": _read_text,
    "output_text": _read_text,
    "refusal": _read_refusal,
    "image_url": _read_image,
    "input_image": _read_image,
    "file": _read_file,
    "input_file": _read_file,
}


_SOUNDS = {
    "data:audio/wav": "wav",
    "data:audio/x-wav": "wav",
    "data:audio/mp3": "mp3",
    "data:audio/mpeg": "mp3",
}
"""What Chat takes to be heard, by how it is addressed; no other file of sound is taken."""


def _write_image(part: ImagePart, notes: Notes) -> msgspec.Raw:
    if part.url is None:
        notes.add("image_by_id", "emulated", "Chat takes images by URL only, not by a file id")
        return _raw({"type": "text", "text": f"[image {part.file_id} cannot be shown here]"})
    image = {"url": part.url, "detail": part.detail} if part.detail else {"url": part.url}
    return _raw(with_extra({"type": "image_url", "image_url": image}, part.extra))


def _write_file(part: FilePart, notes: Notes) -> msgspec.Raw:
    if part.file_id is None and (part.url is None or part.url.startswith(("http://", "https://"))):
        notes.add("file_by_url", "emulated", "Chat takes files by content or id only, not by URL")
        return _raw({"type": "text", "text": f"[file {part.filename or ''} at {part.url}]"})
    head, _, data = (part.url or "").partition(";base64,")
    if head in _SOUNDS and part.file_id is None:
        return _raw({"type": "input_audio", "input_audio": {"data": data, "format": _SOUNDS[head]}})
    known = {"file_id": part.file_id, "file_data": part.url, "filename": part.filename}
    file = {key: value for key, value in known.items() if value is not None}
    return _raw(with_extra({"type": "file", "file": file}, part.extra))


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(write_json(value))
