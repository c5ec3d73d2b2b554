# ruff: noqa: D102 - the methods are documented in login_tickets_interface
"""Stores which login tickets were spent, in either database."""

from treadle.journal.sql_steps import Steps, Tables

_SPEND = "INSERT INTO spent_tickets (id, until) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING id"
_SPENT = "SELECT id FROM spent_tickets WHERE until > $1"
_FORGET = "DELETE FROM spent_tickets WHERE until <= $1"


class StoredTickets(Tables):
    """Fits `login_tickets_interface.TicketStore`."""

    async def spend(self, ticket_id: str, until: float, now: float) -> bool:
        bound = self._dialect.bind_plain("tickets.id", ticket_id)

        def steps() -> Steps[bool]:
            yield _FORGET, now
            return bool((yield _SPEND, bound, until))

        return await self._access.write(steps)

    async def spent(self, now: float) -> frozenset[str]:
        return frozenset(self._dialect.text(row[0]) for row in await self.fetch(_SPENT, now))
