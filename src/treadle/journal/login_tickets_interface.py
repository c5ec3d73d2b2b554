"""What a store promises of tickets that are good no more. The promises, each with a test in tests/store:

T1  Once: of any number of processes that spend a ticket, exactly one gets the answer that it was the first.
T2  Shared: a ticket spent in one process is read as spent in every other from then on.
T3  Bounded: a ticket is forgotten when its own time is over; it is refused by then anyway.
"""

from typing import Protocol


class TicketStore(Protocol):
    """Stores which tickets were spent."""

    async def spend(self, ticket_id: str, until: float, now: float) -> bool:
        """Record that a ticket is good no more, until its time would have been over; False if it was spent before.

        Raises: StoreError.
        """
        ...

    async def spent(self, now: float) -> frozenset[str]:
        """Return the tickets that are spent and whose time is not over.

        Raises: StoreError.
        """
        ...
