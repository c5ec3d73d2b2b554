"""Ids: one shape for all of them, drawn from an injected source so that a replay draws the same ones."""

import hashlib
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
APPROVAL = "apr"
RULE = "rule"
KEY = "key"

_HEAD_CHARS = 11
"""What of a run's id says when it was made."""


def shown_call_id(item_id: str) -> str:
    """Return the id under which a server call is shown to clients that know no call ids for it, from its item's id."""
    return f"{SERVER_CALL}_{item_id.removeprefix(f'{CALL_ITEM}_')}"


def stored_call_id(item_id: str) -> str:
    """Return the item's id behind one that `shown_call_id` made; any other id is its own."""
    rest = item_id.removeprefix(f"{SERVER_CALL}_")
    return item_id if rest == item_id else f"{CALL_ITEM}_{rest}"


class IdSource(Protocol):
    """Where new ids come from."""

    def new(self, prefix: str) -> str:
        """Return an id never returned before, `prefix_…`, of characters that every provider accepts."""
        ...

    def of(self, run_id: str, call: str) -> "IdSource":
        """Return the source of the ids in one model call of a run; `call` tells it from the run's others.

        If the call is repeated after a crash, it draws the same ids: clients may have seen them already.
        """
        ...


class CountingIds(msgspec.Struct, kw_only=True):
    """Ids in a fixed order, for tests, replays and deterministic scripts."""

    namespace: str = ""
    count: int = 0

    def new(self, prefix: str) -> str:
        """Return the next id."""
        self.count += 1
        return f"{prefix}_{self.namespace}{self.count:04d}"

    def of(self, run_id: str, call: str) -> "CountingIds":
        """Return the same source: what is counted has an order, and no past."""
        return self


class SeededIds(msgspec.Struct):
    """Ids that follow from a seed; they begin with `head`, so that they stand near each other in an index."""

    seed: str = ""
    head: str = ""
    count: int = 0

    def new(self, prefix: str) -> str:
        """Return the next id."""
        self.count += 1
        digest = hashlib.sha256(f"{self.seed}:{self.count}".encode()).hexdigest()
        return f"{prefix}_{self.head}{digest[:24]}"

    def of(self, run_id: str, call: str) -> "SeededIds":
        """Return the source of one model call's ids."""
        return SeededIds(f"{run_id}:{call}", run_id.rpartition("_")[2][:_HEAD_CHARS])
