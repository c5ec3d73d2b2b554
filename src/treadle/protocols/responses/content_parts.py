"""Reading content: the parts of a message or of a tool's output. A part of an unknown kind is kept as it came."""

from collections.abc import Callable, Iterable

import msgspec

from treadle.core.items import AnyPart, Extra, FilePart, ImagePart, OpaquePart, RefusalPart, TextPart
from treadle.core.request import Note
from treadle.protocols.field_reader import NULL, OBJECT, at, missing
from treadle.protocols.field_reader import read_value as read
from treadle.protocols.protocol_registry import RESPONSES

PROTOCOL = RESPONSES


def counted(notes: Iterable[Note]) -> list[Note]:
    """Return one note of each kind, with how often it was made: a long history gives one and not hundreds."""
    counts: dict[str, tuple[Note, int]] = {}
    for note in notes:
        found = counts.get(note.code)
        counts[note.code] = (note, 1 if found is None else found[1] + 1)
    return [msgspec.structs.replace(note, count=count) for note, count in counts.values()]


class _Head(msgspec.Struct, kw_only=True):
    type: str


class _Text(msgspec.Struct, kw_only=True):
    text: str
    annotations: msgspec.Raw = NULL


class _Refusal(msgspec.Struct, kw_only=True):
    refusal: str


class _ImageUrl(msgspec.Struct, kw_only=True):
    url: str


class _Image(msgspec.Struct, kw_only=True):
    image_url: str | _ImageUrl | None = None
    file_id: str | None = None
    detail: str | None = None


class _File(msgspec.Struct, kw_only=True):
    file_url: str | None = None
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


_head = msgspec.json.Decoder(_Head)
_text = msgspec.json.Decoder(_Text)
_refusal = msgspec.json.Decoder(_Refusal)
_image = msgspec.json.Decoder(_Image)
_file = msgspec.json.Decoder(_File)
_string = msgspec.json.Decoder(str)
_raws: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])


def extra_of(raw: msgspec.Raw, *known: str) -> Extra | None:
    """Return the fields of an object beyond its type and the known ones, for upstreams of this protocol."""
    fields = OBJECT.decode(raw)
    rest = {name: value for name, value in fields.items() if name != "type" and name not in known and value != NULL}
    return Extra(protocol=PROTOCOL, fields=rest) if rest else None


def text_parts(text: str | None) -> tuple[TextPart, ...]:
    """Return a text as content; no text is no part."""
    return (TextPart(text=text),) if text else ()


def read_content(content: str | list[msgspec.Raw], path: str) -> tuple[AnyPart, ...]:
    """Read the content of a message; parts that hold only empty text are no content.

    Raises: ProtocolError, naming the field.
    """
    if isinstance(content, str):
        return text_parts(content)
    parts = [_read_part(raw, f"{path}[{index}]") for index, raw in enumerate(content)]
    return () if all(isinstance(part, TextPart) and not part.text for part in parts) else tuple(parts)


def read_output(raw: msgspec.Raw, path: str) -> tuple[AnyPart, ...]:
    """Read what a tool gave: a text, parts, or any other JSON value as its text.

    Raises: ProtocolError, naming the field.
    """
    data = bytes(raw)
    match data[:1]:
        case b'"':
            return text_parts(read(_string, raw, path))
        case b"[":
            return read_content(read(_raws, raw, path), path)
        case _:
            return () if raw == NULL else text_parts(data.decode())


def _read_part(raw: msgspec.Raw, path: str) -> AnyPart:
    head = read(_head, raw, path)
    reader = _READERS.get(head.type)
    if reader is None:
        return OpaquePart(protocol=PROTOCOL, raw=raw)
    return reader(raw, path)


def _read_text(raw: msgspec.Raw, path: str) -> TextPart:
    part = read(_text, raw, path)
    return TextPart(
        text=part.text,
        annotations=None if bytes(part.annotations) in (b"null", b"[]") else part.annotations,
        # The logprobs of an earlier answer say nothing to the model.
        extra=extra_of(raw, *_Text.__struct_fields__, "logprobs"),
    )


def _read_refusal(raw: msgspec.Raw, path: str) -> RefusalPart:
    return RefusalPart(text=read(_refusal, raw, path).refusal, extra=extra_of(raw, *_Refusal.__struct_fields__))


def _read_image(raw: msgspec.Raw, path: str) -> ImagePart:
    part = read(_image, raw, path)
    if part.image_url is None and part.file_id is None:
        raise missing(at(path, "image_url"))
    url = part.image_url.url if isinstance(part.image_url, _ImageUrl) else part.image_url
    extra = extra_of(raw, *_Image.__struct_fields__)
    return ImagePart(url=url, file_id=part.file_id, detail=part.detail, extra=extra)


def _read_file(raw: msgspec.Raw, path: str) -> FilePart:
    part = read(_file, raw, path)
    url = part.file_url
    if part.file_data is not None:
        # Bare base64 would read as a relative URL elsewhere.
        is_url = part.file_data.startswith("data:")
        url = part.file_data if is_url else f"data:application/octet-stream;base64,{part.file_data}"
    if url is None and part.file_id is None:
        raise missing(at(path, "file_data"))
    extra = extra_of(raw, *_File.__struct_fields__)
    return FilePart(url=url, file_id=part.file_id, filename=part.filename, extra=extra)


_READERS: dict[str, Callable[[msgspec.Raw, str], AnyPart]] = {
    "input_text": _read_text,
    "output_text": _read_text,
    "text": _read_text,
    "refusal": _read_refusal,
    "input_image": _read_image,
    "input_file": _read_file,
}
