"""Recognizes keep-alive frames by table: any other frame that cannot be read is a lost part of the answer.

Comments are no frames and need no row: DeepSeek and OpenRouter keep a connection alive by them.
"""

from typing import Any

import msgspec

from treadle.core.json import BadJson, read_json


class KeepAlive(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider keeps a connection alive: by events of a `name`, by frames that are exactly this `data`, or by
    small objects of a `type` that have nothing of an answer."""

    provider: str
    name: str = ""
    data: str = ""
    type: str = ""


KEEP_ALIVES: tuple[KeepAlive, ...] = (
    KeepAlive(provider="Anthropic", name="ping"),
    KeepAlive(provider="Anthropic, behind gateways that drop the names of events", data='{"type":"ping"}'),
    KeepAlive(provider="sse-starlette, under many Python servers: the data is the time", name="ping"),
    KeepAlive(provider="OpenAI, in Responses", name="keepalive"),
    KeepAlive(provider="gateways of unknown make (an empty object)", data="{}"),
    KeepAlive(provider="gateways of unknown make (no value)", data="null"),
    KeepAlive(provider="gateways of unknown make (an empty text)", data='""'),
    KeepAlive(provider="gateways of unknown make", name="heartbeat"),
    KeepAlive(provider="Anthropic, behind gateways that add fields of their own", type="ping"),
    KeepAlive(provider="gateways that send OpenAI's in every protocol", type="keepalive"),
    KeepAlive(provider="gateways of unknown make", type="heartbeat"),
)
CHARS_MAX = 512
"""A longer object is none of these."""

_NAMES = frozenset([row.name for row in KEEP_ALIVES if row.name])
_DATA = frozenset([row.data for row in KEEP_ALIVES if row.data])
TYPES = frozenset([row.type for row in KEEP_ALIVES if row.type])
_ANSWERING = frozenset({"choices", "candidates", "delta", "error"})


def is_keep_alive(name: str, data: str) -> bool:
    """Whether a frame is a known keep-alive."""
    return name in _NAMES or "".join(data.split()) in _DATA or _is_typed(data)


def _is_typed(data: str) -> bool:
    """Whether data are a small object of a known type and without anything of an answer."""
    if len(data) > CHARS_MAX or not data.startswith("{"):
        return False
    try:
        fields: dict[str, Any] = read_json(data)
    except BadJson:
        return False
    return str(fields.get("type")) in TYPES and _ANSWERING.isdisjoint(fields)
