"""Converts the result of an MCP tool: text, images, audio, files and structured data.

Nothing is fetched: a link to a resource is passed to the model as a link, whatever its scheme.
"""

import base64
import binascii
import re
from collections.abc import Sequence

import mcp_types as types
import msgspec

from treadle.core.errors import ToolFailed
from treadle.core.items import AnyPart, FilePart, ImagePart, TextPart
from treadle.core.json import cut_text, write_json
from treadle.core.tool_definitions import Envelope
from treadle.tools.json_schema import Validator
from treadle.tools.result_rendering import ToolAnswer
from treadle.tools.schema_worker import CheckTimeout

ERROR_BYTES_MAX = 4_000
BLOCKS_MAX = 256
_MIME = re.compile(r"^[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}$")
_UNKNOWN = "application/octet-stream"
_NAME = re.compile(r"[^/\\?#]{1,120}$")


async def read_result(result: types.CallToolResult, output: Validator | None = None) -> ToolAnswer:
    """Convert a result; `output` is the schema that the tool declared for its structured content.

    Raises: ToolFailed, for an error result or structured content that does not fit the schema.
    """
    parts = _parts(result.content)
    if result.is_error:
        words = "".join(part.text for part in parts if isinstance(part, TextPart)).strip()
        raise ToolFailed(cut_text(words, ERROR_BYTES_MAX) or "The tool failed and did not say why.")
    structured = result.structured_content
    if output is not None:
        await _check(structured, output)
    if structured is not None and not parts:
        return ToolAnswer(envelope=Envelope(ok=True, data=_raw(structured)))
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    data = _raw(text if structured is None else structured)
    if structured is None and all(isinstance(part, TextPart) for part in parts):
        return ToolAnswer(envelope=Envelope(ok=True, data=data))
    return ToolAnswer(envelope=Envelope(ok=True, data=data), parts=_separated(parts))


async def _check(structured: object, output: Validator) -> None:
    try:
        if not await output.fits(structured):
            raise ToolFailed("The tool's structured content does not fit the schema that it declared.")
    except CheckTimeout as error:
        raise ToolFailed(f"The tool's structured content is refused: {error}.") from None


def _parts(content: Sequence[types.ContentBlock]) -> tuple[AnyPart, ...]:
    shown = tuple(_part(block) for block in content[:BLOCKS_MAX])
    left = len(content) - len(shown)
    return (*shown, TextPart(text=f"[{left} more pieces of content left out]")) if left > 0 else shown


def _part(block: types.ContentBlock) -> AnyPart:
    match block:
        case types.TextContent():
            return TextPart(text=_valid(block.text))
        case types.ImageContent():
            return ImagePart(url=_data_url(block.data, block.mime_type))
        case types.AudioContent():
            return FilePart(url=_data_url(block.data, block.mime_type), filename=_audio_name(block.mime_type))
        case types.ResourceLink():
            about = f": {_valid(block.description)}" if block.description else ""
            return TextPart(text=f"[resource {_valid(block.name)} at {_valid(str(block.uri))}{about}]")
        case types.EmbeddedResource():
            return _resource(block.resource)


def _resource(resource: types.TextResourceContents | types.BlobResourceContents) -> AnyPart:
    if isinstance(resource, types.TextResourceContents):
        return TextPart(text=_valid(resource.text))
    mime = resource.mime_type or _UNKNOWN
    url = _data_url(resource.blob, mime)
    if mime.startswith("image/"):
        return ImagePart(url=url)
    name = _NAME.search(_valid(str(resource.uri)))
    return FilePart(url=url, filename=name[0] if name else "resource")


def _data_url(data: str, mime: str) -> str:
    """Encode base64 data as a data URL. Raises: ToolFailed, when it is not base64."""
    try:
        whole = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ToolFailed("The tool answered with data that is not base64.") from None
    kind = mime.lower() if _MIME.match(mime) else _UNKNOWN
    return f"data:{kind};base64,{base64.b64encode(whole).decode()}"


def _audio_name(mime: str) -> str:
    kind = mime.partition("/")[2].lower()
    return f"audio.{kind}" if kind.isalnum() else "audio"


def _separated(parts: tuple[AnyPart, ...]) -> tuple[AnyPart, ...]:
    """Put a line break between texts, which were separate blocks."""
    joined: list[AnyPart] = []
    for part in parts:
        if isinstance(part, TextPart) and any(isinstance(each, TextPart) for each in joined):
            part = TextPart(text=f"\n{part.text}")
        joined.append(part)
    return tuple(joined)


def _raw(value: object) -> msgspec.Raw:
    try:
        return msgspec.Raw(write_json(value))
    except (TypeError, ValueError, RecursionError, OverflowError):
        raise ToolFailed("The tool's structured content cannot be written as JSON.") from None


def _valid(text: str) -> str:
    """Replace lone surrogates, which JSON escapes can carry and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()
