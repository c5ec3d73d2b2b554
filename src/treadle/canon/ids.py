"""Ids: one shape for all of them, drawn from an injected source so that a replay draws the same ones."""

from typing import Protocol

import msgspec

RUN = "run"
RESPONSE = "resp"
COMPLETION = "chatcmpl"
CONVERSATION = "conv"
SESSION = "sess"
ITEM = "item"
MESSAGE = "msg"
REASONING = "rs"
CALL_ITEM = "fc"
CALL = "call"
RESULT = "fco"
SERVER_CALL = "mcp"
REQUEST = "req"
BLOB = "blob"


class IdSource(Protocol):
    """Where new ids come from."""

    def new(self, prefix: str) -> str:
        """Return an id never returned before, `prefix_…`, of characters that every provider accepts."""
        ...


class CountingIds(msgspec.Struct, kw_only=True):
    """Ids in a fixed order, for tests, replays and deterministic scripts."""

    namespace: str = ""
    count: int = 0

    def new(self, prefix: str) -> str:
        """Return the next id."""
        self.count += 1
        return f"{prefix}_{self.namespace}{self.count:04d}"
