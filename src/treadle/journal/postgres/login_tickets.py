"""Spent tickets on PostgreSQL."""

from treadle.journal.postgres.connection import Connection
from treadle.journal.postgres.row_mapping import bind_plain
from treadle.journal.postgres.workspaces import Reads, WorkspaceWrites

_SPEND = "INSERT INTO spent_tickets (id, until) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING id"
_SPENT = "SELECT id FROM spent_tickets WHERE until > $1"
_FORGET = "DELETE FROM spent_tickets WHERE until <= $1"


class PostgresTickets:
    """Fits `kept.TicketStore`, over the connections of a PostgresStore."""

    def __init__(self, read: Reads, write: WorkspaceWrites) -> None:
        self._read = read
        self._write = write

    async def spend(self, ticket_id: str, until: float, now: float) -> bool:
        """Keep that a ticket is good no more; False if it was spent before."""
        bound = bind_plain("tickets.id", ticket_id)

        async def work(connection: Connection) -> bool:
            await connection.execute(_FORGET, now)
            return await connection.fetchval(_SPEND, bound, until) is not None

        return await self._write(work)

    async def spent(self, now: float) -> frozenset[str]:
        """Return the tickets that are spent and whose time is not over."""
        rows = await self._read(lambda connection: connection.fetch(_SPENT, now))
        return frozenset(row[0] for row in rows)
