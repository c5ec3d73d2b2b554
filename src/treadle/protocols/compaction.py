"""Compaction as in the Responses API: replaces a conversation by one sealed item that holds its summary.

The summary is made by the model, asked for by one more message. The seal hides nothing, since the client could send
any text itself; it only gives the summary the form clients carry unread. What another provider sealed stays as it is.
"""

import base64
import binascii
from typing import Any

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    RoundBroken,
    RunEnded,
    RunEvent,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.ids import IdSource
from treadle.core.items import AnyItem, MessageItem, OpaqueItem, text_message, text_of
from treadle.core.json import write_json
from treadle.core.request import Request
from treadle.core.run_endings import failure_of
from treadle.core.tool_definitions import NONE
from treadle.protocols import responses
from treadle.protocols.protocol_registry import RESPONSES

PREFIX = "cmp"
SEAL = "treadle.1."
ASK = (
    "Write a summary that lets somebody else go on with this conversation without having seen it. Keep what the user "
    "wants and has ruled out, decisions and their reasons, names, paths, identifiers, numbers and code that are still "
    "needed, what was done with which result, and what is left to do. Answer with the summary alone."
)
INTRODUCTION = "Summary of the conversation so far, which was shortened:\n\n"
_NO_SUMMARY = ErrorInfo(code="compaction_failed", message="The model answered with no summary.", status=502)
_TOLD = (ItemAdded, TextDelta, RefusalDelta, ReasoningDelta, ArgumentsDelta, ItemDone, ToolStarted, ToolFinished)


class _Sealed(msgspec.Struct, kw_only=True):
    type: str | None = None
    encrypted_content: msgspec.Raw = msgspec.Raw(b'""')


_sealed = msgspec.json.Decoder(_Sealed)
_text: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)


def seal(summary: str) -> str:
    """Return the summary sealed, as clients store it without reading it."""
    return SEAL + base64.urlsafe_b64encode(summary.encode("utf-8", "replace")).decode()


def unseal(sealed: str) -> str | None:
    """Return the summary behind a seal of ours; None for any other seal."""
    if not sealed.startswith(SEAL):
        return None
    try:
        return base64.b64decode(sealed.removeprefix(SEAL), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def is_asked(request: Request) -> bool:
    """Return whether a request asks for compaction instead of an answer."""
    return _has_opaque(request) and any(_kind(item) == "compaction_trigger" for item in request.items)


def restore(request: Request) -> Request:
    """Return the request with every summary that Treadle sealed as the text it stands for."""
    if not _has_opaque(request):
        return request
    return msgspec.structs.replace(request, items=tuple(map(_restored, request.items)))


def ask(request: Request) -> Request:
    """Return the request that makes the model write the summary; it leaves nothing behind in the store."""
    items = [item for item in request.items if _kind(item) != "compaction_trigger"]
    options = msgspec.structs.replace(request.options, output_schema=None, max_output_tokens=None)
    return msgspec.structs.replace(
        request, items=(*items, text_message("user", ASK)), tool_choice=NONE, options=options, store=False
    )


class CompactedText:
    """Translates a run that wrote a summary into one whose only output is the sealed item."""

    def __init__(self, ids: IdSource) -> None:
        self._ids = ids
        self._said: list[str] = []

    def feed(self, event: RunEvent) -> list[RunEvent]:
        """Return the events to write instead."""
        if isinstance(event, RunEnded):
            return self._end(event)
        if isinstance(event, RoundBroken):
            self._said.clear()
        if isinstance(event, ItemDone) and isinstance(event.item, MessageItem):
            self._said.append(text_of(event.item.content))
        return [] if isinstance(event, _TOLD) else [event]

    def _end(self, event: RunEnded) -> list[RunEvent]:
        if failure_of(event) is not None:
            return [event]
        summary = "\n\n".join(text for text in self._said if text.strip())
        if not summary or event.limit is not None:
            # At a limit the last words may be Treadle's, and they are no summary.
            return [msgspec.structs.replace(event, status="failed", error=_NO_SUMMARY)]
        item_id = self._ids.new(PREFIX)
        raw = write_json({"type": "compaction", "id": item_id, "encrypted_content": seal(summary)})
        item = OpaqueItem(id=item_id, protocol=RESPONSES, raw=msgspec.Raw(raw))
        return [ItemAdded(index=0, item=item), ItemDone(index=0, item=item), event]


class WindowEncoder(responses.Encoder):
    """Writes the answer of `/responses/compact`: the window to go on with, and what making it cost."""

    def body(self) -> bytes:
        """Return the compacted window."""
        response: dict[str, Any] = msgspec.json.decode(super().body())
        fields = {name: response[name] for name in ("id", "created_at", "output", "usage")}
        return write_json({**fields, "object": "response.compaction"})


def _has_opaque(request: Request) -> bool:
    return OpaqueItem in set(map(type, request.items))


def _kind(item: AnyItem) -> str:
    """Return the type of an item that only the Responses API has, else nothing."""
    if not isinstance(item, OpaqueItem) or item.protocol != RESPONSES:
        return ""
    return _sealed.decode(item.raw).type or ""


def _restored(item: AnyItem) -> AnyItem:
    if _kind(item) != "compaction":
        return item
    assert isinstance(item, OpaqueItem)
    content = _sealed.decode(item.raw).encrypted_content
    summary = unseal(_text.decode(content)) if bytes(content).startswith(b'"') else None
    return item if summary is None else text_message("user", INTRODUCTION + summary, item.id)
