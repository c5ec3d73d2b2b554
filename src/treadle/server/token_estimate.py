"""How many tokens a request has, roughly: a labelled estimate that needs no tokeniser and no upstream.

Texts that tokenisers know well (Latin, Cyrillic, Greek, code) cost a token for four bytes of UTF-8. A character of
three bytes (Chinese, Japanese, Korean, Thai …) costs a token, one of four (emoji) two. Names, schemas and arguments
count as text, each message and tool has a fixed cost, pictures and files have one price each. Expect ± 25 %.
"""

from collections.abc import Iterable, Mapping
from typing import assert_never

import msgspec

from treadle.access.client_identity import Client
from treadle.core.errors import NotFound
from treadle.core.items import (
    AnyItem,
    AnyPart,
    CallItem,
    FilePart,
    ImagePart,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    ReasoningItem,
    ReferenceItem,
    RefusalPart,
    ResultItem,
    TextPart,
)
from treadle.core.journal_entries import item_of_entry
from treadle.core.json import write_json
from treadle.core.request import Request, inherit
from treadle.core.tool_definitions import ToolSpec
from treadle.http.asgi import Header
from treadle.protocols.field_reader import Fields, open_body
from treadle.server.server_state import Service

ESTIMATE: tuple[Header, ...] = ((b"x-treadle-estimate", b"true"),)
ITEM_TOKENS = 4
TOOL_TOKENS = 8
IMAGE_TOKENS = 1_000
FILE_TOKENS = 2_000
_BYTES_PER_TOKEN = 4
_THREE_BYTES = bytes(range(0xE0, 0xF0))
_FOUR_BYTES = bytes(range(0xF0, 0xF8))


async def count(service: Service, request: Request, client: Client) -> int:
    """Estimate a client's request together with the stored conversation that it continues.

    Raises: NotFound, when that is not stored.
    """
    if request.previous_response_id is None:
        return estimate(request)
    row = await service.runtime.store.find_run(request.previous_response_id, key_id=client.key_id)
    if row is None or not row.store:
        raise NotFound(
            f"Previous response with id {request.previous_response_id!r} not found.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    if request.inherits and row.request is not None:
        request = inherit(request, msgspec.json.decode(row.request, type=Request))
    stored = [item_of_entry(entry) for entry in await service.runtime.store.history(row.id)]
    return estimate(request) + sum(map(_of_item, stored))


def filled(body: bytes, defaults: Mapping[str, bytes]) -> bytes:
    """Return the body of a count with the fields that only a request to generate must have.

    Raises: ProtocolError.
    """
    given = {name: msgspec.Raw(value) for name, value in defaults.items()}
    return write_json({**given, **Fields(open_body(body)[0], "").rest()})


def estimate(request: Request) -> int:
    """Estimate the tokens of what a request itself carries."""
    instructions = of_text(request.instructions) + ITEM_TOKENS if request.instructions else 0
    schema = of_bytes(bytes(request.options.output_schema)) if request.options.output_schema is not None else 0
    return instructions + schema + sum(map(_of_item, request.items)) + sum(map(_of_tool, request.tools))


def of_text(text: str) -> int:
    """Estimate the tokens of a text."""
    return of_bytes(text.encode("utf-8", "surrogatepass"))


def of_bytes(data: bytes) -> int:
    """Estimate the tokens of UTF-8."""
    if data.isascii():
        return -(-len(data) // _BYTES_PER_TOKEN)
    wide = len(data) - len(data.translate(None, _THREE_BYTES))
    widest = len(data) - len(data.translate(None, _FOUR_BYTES))
    rest = len(data) - 3 * wide - 4 * widest
    return wide + 2 * widest + -(-rest // _BYTES_PER_TOKEN)


def _of_tool(tool: ToolSpec) -> int:
    form = b"" if tool.format is None else bytes(tool.format)
    texts = (tool.name.encode(), tool.description.encode("utf-8", "surrogatepass"), bytes(tool.parameters), form)
    return TOOL_TOKENS + sum(map(of_bytes, texts))


def _of_item(item: AnyItem) -> int:
    match item:
        case MessageItem():
            return ITEM_TOKENS + _of_parts(item.content)
        case CallItem():
            return ITEM_TOKENS + of_text(item.name) + of_text(item.arguments)
        case ResultItem():
            return ITEM_TOKENS + _of_parts(item.output)
        case ReasoningItem():
            sealed = (blob.data for blob in item.blobs)
            return ITEM_TOKENS + sum(map(of_text, (*item.summary, *item.text, *sealed)))
        case OpaqueItem():
            return ITEM_TOKENS + of_bytes(bytes(item.raw))
        case ReferenceItem():
            return ITEM_TOKENS
        case _:
            assert_never(item)


def _of_parts(parts: Iterable[AnyPart]) -> int:
    return sum(map(_of_part, parts))


def _of_part(part: AnyPart) -> int:
    match part:
        case TextPart() | RefusalPart():
            return of_text(part.text)
        case ImagePart():
            return IMAGE_TOKENS
        case FilePart():
            return FILE_TOKENS
        case OpaquePart():
            return of_bytes(bytes(part.raw))
        case _:
            assert_never(part)
