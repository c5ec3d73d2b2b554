"""The blocks of a content that are text, images or documents, read and written.

Any other block is kept as it is. Fields that Treadle does not act on (`cache_control`, `citations`) stay beside
their part and go back to upstreams of this protocol. What clients found is text to everybody else, with its address.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from treadle.core.items import AnyPart, Extra, FilePart, ImagePart, OpaquePart, RefusalPart, TextPart
from treadle.core.json import type_errors, write_json
from treadle.protocols.field_reader import OBJECT, TEXT, Fields, read_value, refusal, starts_with
from treadle.protocols.messages.provider_state import PROTOCOL
from treadle.protocols.translation_notes import Notes

CONTENT: msgspec.json.Decoder[str | list[msgspec.Raw]] = msgspec.json.Decoder(str | list[msgspec.Raw])

BLOCK = "treadle.block"
"""The field beside a text in which the block travels that the text only retells."""

_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_PDF = "application/pdf"
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml", "application/x-yaml")


def read_content(raw: msgspec.Raw | None, path: str) -> tuple[AnyPart, ...]:
    """Read a content in which only parts can stand: nothing, a string, or blocks.

    Raises: ProtocolError.
    """
    if raw is None:
        return ()
    content = read_value(CONTENT, raw, path)
    if isinstance(content, str):
        return (TextPart(text=content),) if content else ()
    parts: list[AnyPart] = []
    for position, block in enumerate(content):
        fields = open_block(block, f"{path}.{position}")
        parts.append(read_part(block, fields, fields.need("type", TEXT)))
    return tuple(parts)


def open_block(raw: msgspec.Raw, path: str) -> Fields:
    """Open a block of a content; a bare string stands for a text block.

    Raises: ProtocolError.
    """
    if starts_with(raw, '"'):
        return Fields(write_json({"type": "text", "text": read_value(TEXT, raw, path)}), path)
    return Fields(raw, path)


def read_part(raw: msgspec.Raw, fields: Fields, kind: str) -> AnyPart:
    """Read one block; what has no canonical form is kept as it is.

    Raises: ProtocolError.
    """
    reader = _READERS.get(kind)
    part = None if reader is None else reader(fields)
    if part is None:
        part = _retold(raw)
    return OpaquePart(protocol=PROTOCOL, raw=raw.copy()) if part is None else part


def extra_of(fields: Fields) -> Extra | None:
    """Return the fields of a block that were not read."""
    rest = fields.rest()
    return Extra(protocol=PROTOCOL, fields=rest) if rest else None


def own_fields(extra: Extra | None, notes: Notes) -> dict[str, Any]:
    """Return the fields that belong to this protocol; others are noted."""
    if extra is None:
        return {}
    if extra.protocol == PROTOCOL:
        return dict(extra.fields)
    names = ", ".join(sorted(extra.fields))
    notes.add("fields_dropped", "dropped", f"{names}: only {extra.protocol} knows them")
    return {}


def write_part(part: AnyPart, notes: Notes) -> dict[str, Any] | msgspec.Raw | None:
    """Write one block; None where it is empty or the API has no form for it."""
    match part:
        case TextPart() | RefusalPart():
            # The API refuses text without a visible character.
            if not part.text.strip():
                return None
            return write_text(part.text, None if part.extra is None else own_fields(part.extra, notes))
        case ImagePart():
            return {**_write_image(part, notes), **own_fields(part.extra, notes)}
        case FilePart():
            return {**_write_file(part, notes), **own_fields(part.extra, notes)}
        case OpaquePart():
            if part.protocol == PROTOCOL:
                return part.raw
            notes.add("part_dropped", "dropped", f"a part that only {part.protocol} can carry")
            return None


def write_text(text: str, fields: dict[str, Any] | None = None) -> dict[str, Any]:
    """Write a text block, or the block that the text retells."""
    if fields and BLOCK in fields:
        return dict(OBJECT.decode(fields[BLOCK]))
    return {"type": "text", "text": text, **fields} if fields else {"type": "text", "text": text}


def _read_text(fields: Fields) -> AnyPart:
    return TextPart(text=fields.need("text", TEXT), extra=extra_of(fields))


def _source(fields: Fields) -> Fields:
    source = fields.object("source")
    if source is None:
        raise refusal(fields.at("source"), "it is required", "missing_required_parameter")
    return source


def _read_image(fields: Fields) -> AnyPart | None:
    source = _source(fields)
    match source.need("type", TEXT):
        case "base64":
            url = f"data:{source.need('media_type', TEXT)};base64,{source.need('data', TEXT)}"
            return ImagePart(url=url, extra=extra_of(fields))
        case "url":
            return ImagePart(url=source.need("url", TEXT), extra=extra_of(fields))
        case "file":
            return ImagePart(file_id=source.need("file_id", TEXT), extra=extra_of(fields))
        case _:
            return None


def _read_document(fields: Fields) -> AnyPart | None:
    source = _source(fields)
    kind = source.need("type", TEXT)
    if kind not in ("base64", "text", "url", "file"):
        return None
    title = fields.get("title", TEXT)
    extra = extra_of(fields)
    if kind == "file":
        return FilePart(file_id=source.need("file_id", TEXT), filename=title, extra=extra)
    if kind == "url":
        return FilePart(url=source.need("url", TEXT), filename=title, extra=extra)
    media, data = source.get("media_type", TEXT), source.need("data", TEXT)
    if kind == "text":
        media, data = media or "text/plain", base64.b64encode(data.encode()).decode()
    return FilePart(url=f"data:{media or _PDF};base64,{data}", filename=title, extra=extra)


class _Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class _Content(msgspec.Struct, frozen=True, tag_field="type", tag="content"):
    content: str | list[_Text]


class _Found(msgspec.Struct, frozen=True, tag_field="type", tag="search_result"):
    source: str
    title: str
    content: list[_Text]


class _Document(msgspec.Struct, frozen=True, tag_field="type", tag="document"):
    source: _Content
    title: str | None = None


_told: msgspec.json.Decoder[_Found | _Document] = msgspec.json.Decoder(_Found | _Document)


def _retold(raw: msgspec.Raw) -> AnyPart | None:
    """Read a search result, or a document made of texts, as the text that it is to others; None for any other block."""
    try:
        block = _told.decode(raw)
    except type_errors:
        return None
    if isinstance(block, _Found):
        head, content = f"[{block.title} at {block.source}]", block.content
    else:
        head, content = f"[{block.title}]" if block.title else "", block.source.content
    words = content if isinstance(content, str) else "\n".join(each.text for each in content)
    if not words.strip():
        return None
    text = f"{head}\n{words}" if head else words
    return TextPart(text=text, extra=Extra(protocol=PROTOCOL, fields={BLOCK: raw.copy()}))


_READERS: dict[str, Callable[[Fields], AnyPart | None]] = {
    "text": _read_text,
    "image": _read_image,
    "document": _read_document,
}


def _write_image(part: ImagePart, notes: Notes) -> dict[str, Any]:
    if part.detail not in (None, "auto"):
        notes.add("image_detail_dropped", "dropped", "how finely an image is to be seen")
    if part.file_id is not None and part.url is None:
        return {"type": "image", "source": {"type": "file", "file_id": part.file_id}}
    url = part.url or ""
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    media, data = _opened(url)
    if media not in _IMAGES or data is None:
        return _marker(f"image of type {media or 'unknown'}", notes)
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


def _write_file(part: FilePart, notes: Notes) -> dict[str, Any]:
    title = {} if part.filename is None else {"title": part.filename}
    if part.file_id is not None and part.url is None:
        return {"type": "document", "source": {"type": "file", "file_id": part.file_id}, **title}
    url = part.url or ""
    if not url.startswith("data:"):
        return {"type": "document", "source": {"type": "url", "url": url}, **title}
    media, data = _opened(url)
    if media in _IMAGES and data is not None:
        return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
    if media == _PDF and data is not None:
        return {"type": "document", "source": {"type": "base64", "media_type": media, "data": data}, **title}
    text = _text_of(media, data)
    if text is None:
        return _marker(f"file {part.filename or ''} of type {media or 'unknown'}", notes)
    source = {"type": "text", "media_type": "text/plain", "data": text}
    return {"type": "document", "source": source, **title}


def _opened(url: str) -> tuple[str, str | None]:
    """Return the media type and the base64 of a data URL; None where it has no content."""
    head, comma, data = url.removeprefix("data:").partition(",")
    media, *parameters = head.lower().split(";")
    if not comma:
        return media, None
    if "base64" in (parameter.strip() for parameter in parameters):
        return media, data
    return media, base64.b64encode(unquote_to_bytes(data)).decode()


def _text_of(media: str, data: str | None) -> str | None:
    if data is None or not media.startswith(_TEXT_TYPES):
        return None
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _marker(what: str, notes: Notes) -> dict[str, Any]:
    notes.add("attachment_unreadable", "emulated", "attachments of a type that this API does not take are named only")
    return write_text(f"[{what} cannot be shown here]")
