"""Frames that carry nothing, by table: any other frame that cannot be read is a part of the answer that was lost.

Comments are no frames and need no row: DeepSeek and OpenRouter keep a connection alive by them.
"""

import msgspec


class KeepAlive(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider keeps a connection alive: by events of a `name`, or by frames that are exactly this `data`."""

    provider: str
    name: str = ""
    data: str = ""


KEEP_ALIVES: tuple[KeepAlive, ...] = (
    KeepAlive(provider="Anthropic", name="ping"),
    KeepAlive(provider="Anthropic, behind gateways that drop the names of events", data='{"type":"ping"}'),
    KeepAlive(provider="sse-starlette, under many Python servers: the data is the time", name="ping"),
    KeepAlive(provider="OpenAI, in Responses", name="keepalive"),
    KeepAlive(provider="gateways of unknown make (an object that says nothing)", data="{}"),
)

_NAMES = frozenset([row.name for row in KEEP_ALIVES if row.name])
_DATA = frozenset([row.data for row in KEEP_ALIVES if row.data])


def is_keep_alive(name: str, data: str) -> bool:
    """Tell whether a frame is known to carry nothing of an answer."""
    return name in _NAMES or "".join(data.split()) in _DATA
