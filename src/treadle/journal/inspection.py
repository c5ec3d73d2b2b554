"""What is at an address, seen without changing it: which engine, how far its schema is, and what may make trouble."""

import time

import msgspec

REPLICAS_S = 15.0
"""How long ago a process was seen at most to be listed."""


class JournalInspection(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen. `version` is that of the schema, 0 where there is none yet; `newest` the one this code knows."""

    engine: str
    version: int
    newest: int
    runs: int = 0
    size_bytes: int = 0
    skew_s: float = 0.0
    connections_left: int | None = None
    replicas: tuple[tuple[str, str], ...] = ()
    """The processes that were seen a moment ago, each with what it is and has as JSON; see `replicas.kept`."""
    secrets: frozenset[str] = frozenset()
    """Fingerprints of the secrets that keys were made or proved under."""

    @property
    def state(self) -> str:
        """Say how far the schema is."""
        if not self.version:
            return "will be made"
        return f"at version {self.version}" if self.version == self.newest else "will be migrated"


def skew_s(server_s: float, asked_at: float) -> float:
    """Return how far another clock is ahead of ours, where it was read between `asked_at` and now.

    What lies within the time that the question took is no skew.
    """
    answered_at = time.time()
    if server_s > answered_at:
        return server_s - answered_at
    return min(0.0, server_s - asked_at)
