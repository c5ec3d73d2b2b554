# ruff: noqa: D102 - the methods are documented in keys_interface and login_tickets_interface
"""Stores keys, what they owe and used, and spent login tickets, in either database.

Charging keys and reserving their budget is each database's own.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from treadle.core.usage import Usage
from treadle.journal.keys_interface import Debt, KeyGrant, KeyRow, Spent, taken
from treadle.journal.sql_steps import Steps, Tables, within

_FIELDS = "id, name, lookup, mac, created_at, expires_at, revoked_at, powers"
_ADD = f"INSERT INTO keys ({_FIELDS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING n"
_FIND = f"SELECT {_FIELDS} FROM keys WHERE lookup = $1"
_PAGE = f"""
SELECT {_FIELDS} FROM keys
WHERE CAST($1 AS text) IS NULL OR n < (SELECT n FROM keys WHERE id = $1) ORDER BY n DESC LIMIT $2
"""
_REVOKE = f"""
UPDATE keys SET revoked_at = coalesce(revoked_at, $2)
WHERE n = (SELECT n FROM keys WHERE id = $1 OR name = $1 ORDER BY (id = $1) DESC LIMIT 1) RETURNING {_FIELDS}
"""
_REVOKED = "SELECT id FROM keys WHERE id {} AND revoked_at IS NOT NULL"
_DEBTS = "SELECT run_id, key_id, model, ended_at, usage FROM debts WHERE ended_at <= $1 ORDER BY ended_at LIMIT $2"
SPENT = "SELECT runs, input_tokens, output_tokens, usd FROM key_usage WHERE key_id = $1 AND period = $2"

_SPEND_TICKET = "INSERT INTO spent_tickets (id, until) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING id"
_SPENT_TICKETS = "SELECT id FROM spent_tickets WHERE until > $1"
_FORGET_TICKETS = "DELETE FROM spent_tickets WHERE until <= $1"

_powers = msgspec.json.Decoder(KeyGrant)
_usage = msgspec.json.Decoder(Usage)


class StoredKeys(Tables):
    """The half of a `keys_interface.KeyStore` that is the same in both databases."""

    async def add(self, row: KeyRow) -> None:
        texts = [self._dialect.bind_plain(f"keys.{name}", getattr(row, name)) for name in ("id", "name", "lookup")]
        powers = msgspec.json.encode(row.grant).decode()
        if not await self.execute(_ADD, *texts, row.mac, row.created_at, row.expires_at, row.revoked_at, powers):
            raise taken(row)

    async def find(self, lookup: str) -> KeyRow | None:
        found = await self.fetch(_FIND, self._dialect.bind_text(lookup))
        return self._read_key(found[0]) if found else None

    async def page(self, limit: int = 200, *, before: str | None = None) -> list[KeyRow]:
        found = await self.fetch(_PAGE, self._dialect.bind_text(before), within(limit))
        return [self._read_key(row) for row in found]

    async def revoke(self, id_or_name: str, at: float) -> KeyRow | None:
        found = await self.execute(_REVOKE, self._dialect.bind_text(id_or_name), at)
        return self._read_key(found[0]) if found else None

    async def revoked(self, key_ids: Iterable[str]) -> frozenset[str]:
        sql = _REVOKED.format(self._dialect.in_list.format("$1"))
        return frozenset(
            self._dialect.text(row[0]) for row in await self.fetch(sql, self._dialect.bind_list([*key_ids]))
        )

    async def debts(self, before: float, limit: int = 200) -> list[Debt]:
        dialect = self._dialect
        return [
            Debt(
                run_id=dialect.text(run_id),
                key_id=dialect.text(key_id),
                model=dialect.text(model),
                ended_at=ended_at,
                usage=None if usage is None else _usage.decode(usage),
            )
            for run_id, key_id, model, ended_at, usage in await self.fetch(_DEBTS, before, within(limit))
        ]

    async def spent(self, key_id: str, period: str) -> Spent:
        return read_spent(await self.fetch(SPENT, self._dialect.bind_text(key_id), period))

    def _read_key(self, values: Any) -> KeyRow:
        key_id, name, lookup, mac, created_at, expires_at, revoked_at, powers = values
        text = self._dialect.text
        return KeyRow(
            id=text(key_id),
            name=text(name),
            lookup=text(lookup),
            mac=mac,
            created_at=created_at,
            expires_at=expires_at,
            revoked_at=revoked_at,
            grant=_powers.decode(powers),
        )


class StoredTickets(Tables):
    """Fits `login_tickets_interface.TicketStore`."""

    async def spend(self, ticket_id: str, until: float, now: float) -> bool:
        bound = self._dialect.bind_plain("tickets.id", ticket_id)

        def steps() -> Steps[bool]:
            yield _FORGET_TICKETS, now
            return bool((yield _SPEND_TICKET, bound, until))

        return await self._access.write(steps)

    async def spent(self, now: float) -> frozenset[str]:
        return frozenset(self._dialect.text(row[0]) for row in await self.fetch(_SPENT_TICKETS, now))


def read_spent(found: Any) -> Spent:
    """Read what a key used from the rows of SPENT; none is nothing used."""
    if not found:
        return Spent()
    runs, input_tokens, output_tokens, usd = found[0]
    return Spent(runs=runs, input_tokens=input_tokens, output_tokens=output_tokens, usd=usd)
