"""The shape and prefixes of all ids, and the injected sources that make them, so that a replay makes the same ones."""

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
"""The characters of a run's id that encode its time."""


def shown_call_id(item_id: str) -> str:
    """Return the id under which a server call is shown to clients, derived from its item's id."""
    return f"{SERVER_CALL}_{item_id.removeprefix(f'{CALL_ITEM}_')}"


def stored_call_id(item_id: str) -> str:
    """Return the item's id for one that `shown_call_id` made; any other id is returned unchanged."""
    rest = item_id.removeprefix(f"{SERVER_CALL}_")
    return item_id if rest == item_id else f"{CALL_ITEM}_{rest}"


class IdSource(Protocol):
    """Makes new ids."""

    def new(self, prefix: str) -> str:
        """Return an id never returned before, `prefix_…`, of characters that every provider accepts."""
        ...

    def of(self, run_id: str, call: str) -> "IdSource":
        """Return the source of the ids in one model call of a run, identified by `call`.

        A call that is repeated after a crash gets the same ids, since clients may have seen them already.
        """
        ...


class CountingIds(msgspec.Struct, kw_only=True):
    """Sequential ids, for tests, replays and deterministic scripts."""

    namespace: str = ""
    count: int = 0

    def new(self, prefix: str) -> str:
        """Return the next id."""
        self.count += 1
        return f"{prefix}_{self.namespace}{self.count:04d}"

    def of(self, run_id: str, call: str) -> "CountingIds":
        """Return the same source."""
        return self


class SeededIds(msgspec.Struct):
    """Ids derived from a seed; they start with `head`, so that they are neighbours in an index."""

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
