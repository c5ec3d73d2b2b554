"""Spent tickets on SQLite."""

import apsw

from treadle.journal.sqlite.connection import select
from treadle.journal.sqlite.row_mapping import bind_text
from treadle.journal.sqlite.workspaces import WorkspaceRuns

_SPEND = "INSERT INTO spent_tickets (id, until) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING n"
_SPENT = "SELECT id FROM spent_tickets WHERE until > ?"
_FORGET = "DELETE FROM spent_tickets WHERE until <= ?"


class SqliteTickets:
    """Fits `kept.TicketStore`, over the connections of a SqliteStore."""

    def __init__(self, read: WorkspaceRuns, write: WorkspaceRuns) -> None:
        self._read = read
        self._write = write

    async def spend(self, ticket_id: str, until: float, now: float) -> bool:
        """Keep that a ticket is good no more; False if it was spent before."""

        def work(connection: apsw.Connection) -> bool:
            select(connection, _FORGET, now)
            return bool(select(connection, _SPEND, bind_text(ticket_id), until))

        return await self._write(work)

    async def spent(self, now: float) -> frozenset[str]:
        """Return the tickets that are spent and whose time is not over."""
        found = await self._read(lambda connection: select(connection, _SPENT, now))
        return frozenset(ticket_id for (ticket_id,) in found)
