"""The permissions that routes name: which API's scope a key needs, which role, and whether a person must ask. Pure."""

import msgspec

from treadle.journal.keys_interface import Role
from treadle.protocols.protocol_registry import CHAT, GEMINI, MESSAGES, RESPONSES
from treadle.server.http_exchange import SAFE_METHODS


class RouteAccess(msgspec.Struct, frozen=True):
    """What a route needs of its client. Without an `api`, a key for any API will do; an `is_open` route needs no key.

    The role is needed in addition, to read or to change. A change by a route that `decides` needs a credential even
    where other requests need none. A route that `outlives_store` accepts a recently checked key while the store is
    away, because that is when it is needed most.
    """

    api: str = ""
    reads: Role = "none"
    writes: Role = "none"
    is_open: bool = False
    outlives_store: bool = False
    decides: bool = False

    def role(self, method: str) -> Role:
        """Return the role that a method needs."""
        return self.reads if method in SAFE_METHODS else self.writes


OPEN = RouteAccess(is_open=True)
"""Probes, and pages: a browser brings no key, so `page_access` checks its login instead."""

ANY_API = RouteAccess()
CHAT_API = RouteAccess(CHAT)
RESPONSES_API = RouteAccess(RESPONSES)
MESSAGES_API = RouteAccess(MESSAGES)
GEMINI_API = RouteAccess(GEMINI)
MCP = RouteAccess("mcp")
METRICS = RouteAccess(reads="viewer", writes="operator", outlives_store=True)
TREADLE = RouteAccess("treadle", decides=True)
PREPARE = RouteAccess("treadle")
"""For changes that ask a model, or prepare or propose something: any program may make them. Every other change by
Treadle's own API decides something, and takes `TREADLE` or a permission that also names a role."""

OPERATE = RouteAccess("treadle", reads="viewer", writes="operator", decides=True)
ADMIN = RouteAccess("treadle", reads="admin", writes="admin", decides=True)
