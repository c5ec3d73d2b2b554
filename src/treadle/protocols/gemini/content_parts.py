"""Parts, function responses and signatures, read and written. Kinds that Treadle does not know are kept as they are.

Media travel as data URLs inside Treadle and as `inlineData` here. A response must be an object, so a text is wrapped.
Gemini's clients send back whatever stood in `thoughtSignature`. So the state of any provider travels there, sealed
with the name of its maker; a signature that Treadle did not seal is Gemini's own. A call's id travels there too,
because some clients drop the field that it stands in.
"""

import base64
import binascii
from typing import Any, Literal
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from treadle.core.items import (
    AnyPart,
    Blob,
    Extra,
    FilePart,
    ImagePart,
    OpaquePart,
    RefusalPart,
    ResultItem,
    TextPart,
)
from treadle.core.json import BadJson, read_json, type_errors, write_json
from treadle.protocols.field_reader import OBJECT, TEXT, starts_with
from treadle.protocols.gemini.field_spelling import PROTOCOL, CamelFields
from treadle.protocols.translation_notes import Notes, is_alike
from treadle.protocols.turn_grouping import result_text

BYTES = "application/octet-stream"
RAW_ARGUMENTS = "__raw"
"""The only key of `args` where a call's arguments are not an object: they are passed on, never mended."""

PART = "part"
"""The field of a text's delta in which a part travels that came between the texts."""

SIGNATURE = "thought_signature"
"""The kind of blob that Gemini's own signatures are kept as."""

UNSIGNED = "skip_thought_signature_validator"
"""What Google documents for calls that no Gemini model made, or whose signature is lost."""

_URL_SAFE = str.maketrans("-_", "+/")
_GOOGLE_HOST = "generativelanguage.googleapis.com"
_TYPE_OF_ENDING = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "heic": "image/heic",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "csv": "text/csv",
    "json": "application/json",
}


_OWN = "treadle"
_CALL_ID = "call_id"


class _Sealed(msgspec.Struct, frozen=True, array_like=True):
    mark: Literal["treadle"]
    blobs: tuple[Blob, ...]


class _Audio(msgspec.Struct, frozen=True):
    data: str
    format: str


class _Heard(msgspec.Struct, frozen=True):
    input_audio: _Audio


_decoder: msgspec.json.Decoder[_Sealed] = msgspec.json.Decoder(_Sealed)
_heard: msgspec.json.Decoder[_Heard] = msgspec.json.Decoder(_Heard)
_OPENING = base64.b64encode(b'["treadle').decode()


def read_part(fields: CamelFields) -> AnyPart | None:
    """Read what a part shows, its thoughts and calls being read already; None where it is empty.

    Raises: ProtocolError.
    """
    part = _read_known(fields)
    rest = fields.rest()
    if part is None:
        return OpaquePart(protocol=PROTOCOL, raw=msgspec.Raw(write_json(rest))) if rest else None
    return msgspec.structs.replace(part, extra=extra(rest))


def write_part(part: AnyPart, notes: Notes) -> dict[str, Any] | None:
    """Write one part; None where Gemini cannot say it."""
    match part:
        case TextPart():
            written: dict[str, Any] = {"text": part.text}
        case RefusalPart():
            notes.add("refusal_as_text", "coerced", "Gemini knows no refusals: they become text")
            written = {"text": part.text}
        case ImagePart():
            if part.detail not in (None, "auto"):
                notes.add("detail_dropped", "dropped", "the detail of an image", "detail")
            written = _write_media(part.url, part.file_id, notes)
        case FilePart():
            if part.filename is not None:
                notes.add("filename_dropped", "dropped", "the name of a file", "filename")
            written = _write_media(part.url, part.file_id, notes)
        case OpaquePart():
            sound = _sound(part)
            if sound is None and part.protocol != PROTOCOL:
                notes.add("part_dropped", "dropped", f"a part that only {part.protocol} can carry")
                return None
            written = dict(OBJECT.decode(part.raw)) if sound is None else {"inlineData": sound}
    return {**written, **own_fields(part.extra)}


def extra(rest: dict[str, msgspec.Raw]) -> Extra | None:
    """Return the fields that nobody asked for, to be kept."""
    return Extra(protocol=PROTOCOL, fields=rest) if rest else None


def own_fields(kept: Extra | None) -> dict[str, msgspec.Raw]:
    """Return the kept fields if they are Gemini's."""
    return kept.fields if kept is not None and kept.protocol == PROTOCOL else {}


def read_arguments(raw: msgspec.Raw | None) -> str:
    """Read the arguments of a call as compact JSON; those that were passed on as they came are that again."""
    fields = {} if raw is None else OBJECT.decode(raw)
    kept = fields.get(RAW_ARGUMENTS)
    if kept is not None and len(fields) == 1 and starts_with(kept, '"'):
        return TEXT.decode(kept)
    return "{}" if raw is None else write_json(read_json(bytes(raw))).decode()


def write_arguments(text: str) -> Any:
    """Write the arguments of a call as an object."""
    return msgspec.Raw(text.encode()) if is_object(text) else {RAW_ARGUMENTS: text}


def is_object(text: str) -> bool:
    """Return whether a text is one JSON object."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        return isinstance(read_json(text), dict)
    except BadJson:
        return False


def read_response(raw: msgspec.Raw | None) -> tuple[str, bool]:
    """Read a function response as the text that the tool gave, and whether it is an error."""
    if raw is None:
        return "", False
    fields = OBJECT.decode(raw)
    if len(fields) == 1:
        ((key, value),) = fields.items()
        if key in ("output", "result", "error") and starts_with(value, '"'):
            return TEXT.decode(value), key == "error"
        if key == "result":
            return bytes(value).decode(), False
        return bytes(raw).decode(), key == "error"
    return bytes(raw).decode(), False


def write_response(result: ResultItem) -> Any:
    """Write the text of a result as the object that Gemini wants."""
    text = result_text(result.output)
    if not is_object(text):
        return {"error" if result.is_error else "output": text}
    response = msgspec.Raw(text.encode())
    if result.is_error and "error" not in OBJECT.decode(response):
        return {"error": response}
    return response


def named_call(call_id: str) -> Blob:
    """Return the id of a call as state of Treadle's own."""
    return Blob(provider=_OWN, kind=_CALL_ID, data=call_id)


def call_named(blobs: tuple[Blob, ...]) -> tuple[str, tuple[Blob, ...]]:
    """Return the id of a call out of what was sealed with it, and the rest."""
    own = [blob for blob in blobs if (blob.provider, blob.kind) == (_OWN, _CALL_ID)]
    return (own[0].data if own else ""), tuple(blob for blob in blobs if blob not in own)


def seal(blobs: tuple[Blob, ...]) -> str:
    """Write blobs as one signature for a client to carry."""
    return base64.b64encode(write_json(_Sealed(mark="treadle", blobs=blobs))).decode()


def unseal(signature: str) -> tuple[Blob, ...]:
    """Read a signature that a client sent back."""
    if signature.startswith(_OPENING):
        try:
            return _decoder.decode(base64.b64decode(standard_base64(signature))).blobs
        except (binascii.Error, *type_errors):
            pass
    return (Blob(provider=PROTOCOL, kind=SIGNATURE, data=signature),) if signature else ()


def standard_base64(text: str) -> str:
    """Return base64 in the standard alphabet with its padding: the Python SDK sends the URL-safe one."""
    return text.translate(_URL_SAFE) + "=" * (-len(text) % 4)


def _read_known(fields: CamelFields) -> AnyPart | None:
    text = fields.get("text", TEXT)
    if text is not None:
        return TextPart(text=text)
    inline = fields.object("inlineData")
    if inline is not None:
        return _read_inline(inline)
    file = fields.json_object("fileData")
    return None if file is None else _read_file(file, fields.at("fileData"))


def _read_inline(inline: CamelFields) -> AnyPart:
    kind = inline.get("mimeType", TEXT) or BYTES
    url = f"data:{kind};base64,{standard_base64(inline.get('data', TEXT) or '')}"
    name = inline.get("displayName", TEXT)
    return ImagePart(url=url) if kind.startswith("image/") else FilePart(url=url, filename=name)


def _read_file(raw: msgspec.Raw, path: str) -> AnyPart:
    """Read a file by address; what only Google can fetch, or no other provider takes, is kept as it is."""
    file = CamelFields(raw, path)
    url, kind = file.get("fileUri", TEXT) or "", file.get("mimeType", TEXT) or ""
    name = file.get("displayName", TEXT)
    parts = urlsplit(url) if url.isprintable() and "[" not in url else urlsplit("")
    if parts.scheme in ("http", "https") and parts.netloc != _GOOGLE_HOST:
        if kind.startswith("image/"):
            return ImagePart(url=url)
        if kind == _type_of(url):
            return FilePart(url=url, filename=name)
    return OpaquePart(protocol=PROTOCOL, raw=msgspec.Raw(write_json({"fileData": raw})))


def _write_media(url: str | None, file_id: str | None, notes: Notes) -> dict[str, Any]:
    if url is not None and url.startswith("data:"):
        return {"inlineData": _inline(url)}
    address = url or file_id or ""
    if "://" not in address:
        notes.add("file_by_id", "emulated", "Gemini takes files by content or address, not by another provider's id")
        return {"text": f"[file {address} cannot be shown here]"}
    kind = _type_of(address)
    return {"fileData": {"mimeType": kind, "fileUri": address} if kind else {"fileUri": address}}


def _sound(part: OpaquePart) -> dict[str, str] | None:
    """Return what is to be heard in a part of OpenAI's APIs; None for any other."""
    if not is_alike(part):
        return None
    try:
        audio = _heard.decode(part.raw).input_audio
    except type_errors:
        return None
    return {"mimeType": f"audio/{audio.format}", "data": audio.data}


def _inline(url: str) -> dict[str, str]:
    head, _, data = url.removeprefix("data:").partition(",")
    kind = head.partition(";")[0] or "text/plain"
    if not head.endswith(";base64"):
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    return {"mimeType": kind, "data": data}


def _type_of(url: str) -> str | None:
    """Guess the media type of an address from its ending; the canonical parts do not hold it."""
    path = url.partition("?")[0].partition("#")[0]
    return _TYPE_OF_ENDING.get(path.rpartition(".")[2].lower())
