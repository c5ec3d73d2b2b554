"""Canonical items as the Responses API lists them, in pages. A call that a server ran and its result are one item."""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from treadle.core.errors import NotFound, ProtocolError
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
    text_of,
)
from treadle.protocols.protocol_registry import RESPONSES
from treadle.protocols.responses.client_item_order import server_call_id
from treadle.protocols.responses.encrypted_content import seal
from treadle.server.route import ANY, FLAG, fields, listed, number, one_of, text

ShownItem = dict[str, object]
_SERVER_LABEL = "treadle"
PAGE_DEFAULT, PAGE_MAX = 20, 100
LISTED = fields(object={"const": "list"}, data=listed(ANY), has_more=FLAG, first_id={}, last_id={})
PAGES = (
    number("limit", "how many, at most", least=1, most=100),
    one_of("order", "oldest or newest first", "asc", "desc"),
    text("after", "the last id of the page before"),
)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a list is wanted."""

    limit: int
    order: str
    after: str | None

    def of(self, items: list[ShownItem], what: str) -> dict[str, object]:
        """Return the page of a list that is given oldest first.

        Raises: NotFound, when there is no item to begin after.
        """
        ordered = items if self.order == "asc" else items[::-1]
        ids = [str(item["id"]) for item in ordered]
        if self.after is not None and self.after not in ids:
            raise NotFound(f"There is no {what} {self.after!r}.", param="after")
        start = 0 if self.after is None else ids.index(self.after) + 1
        return list_of(ordered[start : start + self.limit], has_more=start + self.limit < len(ordered))


def read_page(query: dict[str, str]) -> Page:
    """Read limit, order and after from a query.

    Raises: ProtocolError.
    """
    limit = query.get("limit", str(PAGE_DEFAULT))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 4 and 1 <= int(limit) <= PAGE_MAX):
        raise ProtocolError(f"limit must be a whole number from 1 to {PAGE_MAX}.", param="limit")
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise ProtocolError("order must be asc or desc.", param="order")
    return Page(limit=int(limit), order=order, after=query.get("after"))


def list_of(items: list[ShownItem], *, has_more: bool = False) -> dict[str, object]:
    """Return items as the API's list object."""
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return {"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more}


def show_items(items: Sequence[AnyItem]) -> list[ShownItem]:
    """Return the items in the API's own shapes, in order; what has no shape there is left out."""
    results = {item.call_id: item for item in items if isinstance(item, ResultItem)}
    server = {item.call_id for item in items if isinstance(item, CallItem) and item.side == "server"}
    shown: list[ShownItem] = []
    for item in items:
        match item:
            case MessageItem():
                shown.append(_message(item))
            case CallItem():
                is_server = item.call_id in server
                shown.append(_server_call(item, results.get(item.call_id)) if is_server else _call(item))
            case ResultItem():
                if item.call_id not in server:
                    shown.append(_result(item))
            case ReasoningItem():
                shown.append(_reasoning(item))
            case OpaqueItem():
                if item.protocol == RESPONSES:
                    shown.append({**msgspec.json.decode(item.raw), "id": item.id})
            case ReferenceItem():
                shown.append({"type": "item_reference", "id": item.id})
            case _:
                assert_never(item)
    return shown


def _message(item: MessageItem) -> ShownItem:
    write = _model_part if item.role == "assistant" else _user_part
    content = [write(part) for part in item.content]
    return {"type": "message", "id": item.id, "role": item.role, "status": "completed", "content": content}


def _call(item: CallItem) -> ShownItem:
    is_custom = item.kind == "custom"
    shown: ShownItem = {
        "type": "custom_tool_call" if is_custom else "function_call",
        "id": item.id,
        "call_id": item.call_id,
        "name": item.name,
        "status": "completed",
    }
    shown["input" if is_custom else "arguments"] = item.arguments
    if item.namespace is not None:
        shown |= {"namespace": item.namespace, "name": item.name.removeprefix(f"{item.namespace}__")}
    return shown


def _result(item: ResultItem) -> ShownItem:
    return {
        "type": "custom_tool_call_output" if item.kind == "custom" else "function_call_output",
        "id": item.id,
        "call_id": item.call_id,
        "output": _output(item.output),
        "status": "incomplete" if item.is_error else "completed",
    }


def _output(parts: tuple[AnyPart, ...]) -> object:
    is_text = all(isinstance(part, TextPart) for part in parts)
    return text_of(parts) if is_text else [_user_part(part) for part in parts]


def _server_call(item: CallItem, result: ResultItem | None) -> ShownItem:
    text = None if result is None else text_of(result.output)
    is_error = result is not None and result.is_error
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]} if is_error else None
    return {
        "type": "mcp_call",
        "id": server_call_id(item),
        "server_label": _SERVER_LABEL,
        "name": item.name,
        "arguments": item.arguments,
        "output": None if is_error else text,
        "error": error,
        "status": "failed" if is_error else "incomplete" if result is None else "completed",
    }


def _reasoning(item: ReasoningItem) -> ShownItem:
    shown: ShownItem = {
        "type": "reasoning",
        "id": item.id,
        "summary": [{"type": "summary_text", "text": text} for text in item.summary],
    }
    if item.text:
        shown["content"] = [{"type": "reasoning_text", "text": text} for text in item.text]
    sealed = seal(item.blobs)
    return {**shown, "encrypted_content": sealed} if sealed else shown


def _model_part(part: AnyPart) -> object:
    match part:
        case TextPart():
            annotations = part.annotations or msgspec.Raw(b"[]")
            return {"type": "output_text", "text": part.text, "annotations": annotations}
        case RefusalPart():
            return {"type": "refusal", "refusal": part.text}
        case _:
            return _user_part(part)


def _user_part(part: AnyPart) -> object:
    match part:
        case TextPart() | RefusalPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart():
            detail = part.detail or "auto"
            return {"type": "input_image", "image_url": part.url, "file_id": part.file_id, "detail": detail}
        case FilePart():
            field = "file_data" if part.url is not None and part.url.startswith("data:") else "file_url"
            return {"type": "input_file", field: part.url, "file_id": part.file_id, "filename": part.filename}
        case OpaquePart():
            return part.raw
        case _:
            assert_never(part)
