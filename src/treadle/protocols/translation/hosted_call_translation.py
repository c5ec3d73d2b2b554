"""Translates calls that an upstream of another protocol ran itself into the client's form, where it has one.

The journal keeps each item as its upstream wrote it. Only what goes to the client is translated: a generated image as
an image, a call to an MCP server as one of the client's protocol, a search and a run of code likewise. Which items
those are is a table, so that the notes on what a client is not shown use the same one.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from treadle.core.events import ItemAdded, ItemDone, RunEnded, RunEvent
from treadle.core.items import AnyItem, ImagePart, MessageItem, OpaqueItem
from treadle.core.json import write_json
from treadle.protocols import protocol_registry as registry
from treadle.protocols.translation.loose_values import Fields, image_url, list_in, object_in, text_in, value_of

_CALLS = {"mcp_tool_use": "mcp", "web_search": "search", "code_execution": "code"}
"""Calls that the Messages API runs, by type or name, and what both protocols mean by them."""

_RESULTS = {
    "mcp_tool_result": "mcp",
    "web_search_tool_result": "search",
    "code_execution_tool_result": "code",
}


def is_retold(item: OpaqueItem, client: str) -> bool:
    """Return whether a client of that protocol is shown an item that was not made for it."""
    block = object_in(value_of(item.raw))
    match item.protocol, client:
        case registry.MESSAGES, registry.RESPONSES:
            return _call_kind(block) is not None or text_in(block.get("type")) in _RESULTS
        case registry.RESPONSES, registry.MESSAGES if block.get("type") == "mcp_call":
            return True
        case registry.RESPONSES, _:
            return block.get("type") == "image_generation_call" and bool(text_in(block.get("result")))
        case _:
            return False


class HostedCallTranslation:
    """Translates the events of a run for a client of that protocol; all other events pass unchanged."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._open: dict[str, tuple[int, Fields]] = {}

    def feed(self, event: RunEvent) -> list[RunEvent]:
        """Return the events to write."""
        if type(event) is ItemAdded or type(event) is ItemDone:
            item = event.item
            if type(item) is OpaqueItem and item.protocol != self._client:
                # What it is, is known when it is whole.
                return self._retold(event.index, item) if type(event) is ItemDone else []
        elif type(event) is RunEnded and self._open:
            left, self._open = self._open, {}
            return [*(_paired(index, call, None) for index, call in left.values()), event]
        return [event]

    def _retold(self, index: int, item: OpaqueItem) -> list[RunEvent]:
        if not is_retold(item, self._client):
            return [ItemDone(index=index, item=item)]
        block = object_in(value_of(item.raw))
        if item.protocol == registry.MESSAGES:
            return self._halves(index, block)
        if self._client == registry.MESSAGES and block.get("type") == "mcp_call":
            # The second block has an index that no item has.
            return [
                ItemDone(index=place, item=_opaque(registry.MESSAGES, half))
                for place, half in zip((index, -1 - index), _blocks(block), strict=True)
            ]
        image = ImagePart(url=image_url(text_in(block.get("result")), text_in(block.get("output_format"))))
        return [ItemDone(index=index, item=MessageItem(role="assistant", content=(image,)))]

    def _halves(self, index: int, block: Fields) -> list[RunEvent]:
        """Hold a call until its result comes, because in this protocol the two are one item."""
        if _call_kind(block) is not None:
            self._open[_id(block)] = (index, block)
            return []
        call_id = text_in(block.get("tool_use_id"))
        # The call of a turn that was paused may stand in an earlier answer.
        place, call = self._open.pop(call_id, (index, {"id": call_id}))
        return [_paired(place, call, block)]


def _call_kind(block: Fields) -> str | None:
    kind = text_in(block.get("type"))
    return _CALLS.get(text_in(block.get("name")) if kind == "server_tool_use" else kind)


def _paired(index: int, call: Fields, result: Fields | None) -> ItemDone:
    kind = _call_kind(call) or _RESULTS[text_in((result or {}).get("type"))]
    return ItemDone(index=index, item=_opaque(registry.RESPONSES, _WRITERS[kind](call, result)))


def _search(call: Fields, result: Fields | None) -> Fields:
    pages = [object_in(page) for page in list_in((result or {}).get("content"))]
    sources = [{"type": "url", "url": url} for page in pages if (url := text_in(page.get("url")))]
    action = {"type": "search", "query": text_in(object_in(call.get("input")).get("query")), "sources": sources}
    status = "incomplete" if result is None else "failed" if _error(result) else "completed"
    return {"type": "web_search_call", "id": f"ws_{_id(call)}", "status": status, "action": action}


def _code(call: Fields, result: Fields | None) -> Fields:
    ran = object_in((result or {}).get("content"))
    logs = "".join(text_in(ran.get(name)) for name in ("stdout", "stderr")) or _error(result or {})
    return {
        "type": "code_interpreter_call",
        "id": f"ci_{_id(call)}",
        "status": "incomplete" if result is None else "failed" if _error(result) else "completed",
        "code": text_in(object_in(call.get("input")).get("code")),
        "container_id": "",
        "outputs": [{"type": "logs", "logs": logs}] if logs else [],
    }


def _mcp(call: Fields, result: Fields | None) -> Fields:
    content = (result or {}).get("content")
    pieces = [text_in(object_in(piece).get("text")) for piece in list_in(content)]
    text, has_failed = text_in(content) or "\n".join(pieces), (result or {}).get("is_error") is True
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
    return {
        "type": "mcp_call",
        "id": f"mcp_{_id(call)}",
        "status": "incomplete" if result is None else "failed" if has_failed else "completed",
        "server_label": text_in(call.get("server_name")),
        "name": text_in(call.get("name")),
        "arguments": write_json(object_in(call.get("input"))).decode(),
        "output": None if result is None or has_failed else text,
        "error": error if has_failed else None,
        "approval_request_id": None,
    }


_WRITERS: dict[str, Callable[[Fields, Fields | None], Fields]] = {"search": _search, "code": _code, "mcp": _mcp}


def _blocks(call: Fields) -> tuple[Fields, Fields]:
    """Return an `mcp_call` as the two blocks of the Messages API."""
    call_id = f"mcptoolu_{_id(call)}"
    error, output = call.get("error"), call.get("output")
    given = object_in(value_of(msgspec.Raw(text_in(call.get("arguments")).encode("utf-8", "replace") or b"{}")))
    words = text_in(output) if error is None else _words(error)
    use = {
        "type": "mcp_tool_use",
        "id": call_id,
        "name": text_in(call.get("name")),
        "input": given,
        "server_name": text_in(call.get("server_label")),
    }
    result = {
        "type": "mcp_tool_result",
        "tool_use_id": call_id,
        "is_error": error is not None or output is None,
        "content": [{"type": "text", "text": words}],
    }
    return use, result


def _words(error: Any) -> str:
    fields = object_in(error)
    pieces = [text_in(object_in(piece).get("text")) for piece in list_in(fields.get("content"))]
    return text_in(error) or text_in(fields.get("message")) or "\n".join(pieces)


def _error(result: Fields) -> str:
    return text_in(object_in(result.get("content")).get("error_code"))


def _id(block: Fields) -> str:
    return text_in(block.get("id"))


def _opaque(protocol: str, block: Fields) -> AnyItem:
    return OpaqueItem(id=_id(block), protocol=protocol, raw=msgspec.Raw(write_json(block)))
