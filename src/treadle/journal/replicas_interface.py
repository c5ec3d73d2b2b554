"""What a store promises of the processes that share it. The promises, each with a test in tests/store:

P1  Seen: the row of a process that was written within some seconds is read by every other, by one clock.
P2  Gone: a process that left is read no more from then on, one that died when its time is over.
P3  Noted once: the fingerprint of a secret is stored for good, however often it is noted.
"""

from typing import Protocol

import msgspec


class ReplicaRow(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a store: its name in leases, what it is and has as JSON, since when, and for how long not seen."""

    owner: str
    facts: str
    started_at: float
    silent_s: float


class ReplicaStore(Protocol):
    """Where the processes of a store are stored."""

    async def beat(self, owner: str, facts: str, *, forget_s: float) -> float:
        """Write that a process is there, with what it is now, and return since when; forget those long not seen.

        Raises: StoreError.
        """
        ...

    async def living(self, within_s: float) -> list[ReplicaRow]:
        """Return the processes that were seen within so many seconds, longest there first.

        Raises: StoreError.
        """
        ...

    async def leave(self, owner: str) -> None:
        """Forget a process that ends.

        Raises: StoreError.
        """
        ...

    async def note_secret(self, fingerprint: str) -> None:
        """Record that a key was made, or proved, under the secret with this fingerprint.

        Raises: StoreError.
        """
        ...

    async def secrets(self) -> frozenset[str]:
        """Return the fingerprints of the secrets under which keys were made or proved.

        Raises: StoreError.
        """
        ...
