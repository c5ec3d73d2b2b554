"""Keys on SQLite."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apsw
import msgspec

from treadle.core.usage import Usage
from treadle.journal.keys_interface import (
    Charge,
    Debt,
    KeyBudget,
    KeyGrant,
    KeyRow,
    Reservation,
    ReservationResult,
    Spent,
    add_up,
    has_room,
    taken,
)
from treadle.journal.sqlite.connection import select
from treadle.journal.sqlite.queries import within
from treadle.journal.sqlite.row_mapping import bind_text, read_text
from treadle.journal.sqlite.workspaces import WorkspaceRuns

_FIELDS = "id, name, lookup, mac, created_at, expires_at, revoked_at, powers"
_ADD = f"INSERT INTO keys ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING n"
_FIND = f"SELECT {_FIELDS} FROM keys WHERE lookup = ?"
_PAGE = f"""
SELECT {_FIELDS} FROM keys
WHERE ?1 IS NULL OR n < (SELECT n FROM keys WHERE id = ?1) ORDER BY n DESC LIMIT ?2
"""
_REVOKE = f"""
UPDATE keys SET revoked_at = coalesce(revoked_at, ?2)
WHERE n = (SELECT n FROM keys WHERE id = ?1 OR name = ?1 ORDER BY id = ?1 DESC LIMIT 1) RETURNING {_FIELDS}
"""
_REVOKED = "SELECT 1 FROM keys WHERE id = ? AND revoked_at IS NOT NULL"
_SPEND = """
INSERT INTO key_usage (key_id, period, runs, input_tokens, output_tokens, usd) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (key_id, period) DO UPDATE SET
  runs = runs + excluded.runs,
  input_tokens = input_tokens + excluded.input_tokens,
  output_tokens = output_tokens + excluded.output_tokens,
  usd = usd + excluded.usd
"""
_SPENT = "SELECT runs, input_tokens, output_tokens, usd FROM key_usage WHERE key_id = ? AND period = ?"

_PAY = "DELETE FROM debts WHERE run_id = ? RETURNING key_id"
_DEBTS = "SELECT run_id, key_id, model, ended_at, usage FROM debts WHERE ended_at <= ? ORDER BY ended_at LIMIT ?"
_IS_GONE = """
NOT EXISTS (SELECT 1 FROM debts d WHERE d.run_id = reservations.run_id)
AND NOT EXISTS (SELECT 1 FROM runs r JOIN leases l ON l.run = r.n WHERE r.id = reservations.run_id)
"""
_FORGET_DEAD = f"DELETE FROM reservations WHERE key_id = ? AND until <= ? AND {_IS_GONE}"
_RESERVED = """
SELECT count(*), coalesce(sum(tokens), 0), coalesce(sum(usd), 0.0) FROM reservations WHERE key_id = ? AND run_id <> ?
"""
_RESERVE = """
INSERT INTO reservations (run_id, key_id, tokens, usd, until) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run_id) DO UPDATE SET until = excluded.until
"""
_RELEASE = f"DELETE FROM reservations WHERE run_id = ? AND {_IS_GONE}"
_FREE = "DELETE FROM reservations WHERE run_id = ?"

_powers = msgspec.json.Decoder(KeyGrant)
_usage = msgspec.json.Decoder(Usage)


class SqliteKeys:
    """Fits `kept.KeyStore`, over the connections of a SqliteStore; `jot` writes without waiting for the disk."""

    def __init__(self, read: WorkspaceRuns, write: WorkspaceRuns, jot: WorkspaceRuns) -> None:
        self._read = read
        self._write = write
        self._jot = jot

    async def add(self, row: KeyRow) -> None:
        """Keep a key.

        Raises: Conflict.
        """
        texts = [bind_text(text) for text in (row.id, row.name, row.lookup)]
        powers = msgspec.json.encode(row.grant).decode()
        values = (*texts, row.mac, row.created_at, row.expires_at, row.revoked_at, powers)
        if not await self._write(lambda connection: select(connection, _ADD, *values)):
            raise taken(row)

    async def find(self, lookup: str) -> KeyRow | None:
        """Return the key with this lookup."""
        found = await self._read(lambda connection: select(connection, _FIND, bind_text(lookup)))
        return _read_key(found[0]) if found else None

    async def page(self, limit: int = 200, *, before: str | None = None) -> list[KeyRow]:
        """Return keys, newest first."""
        values = bind_text(before), within(limit)
        return [_read_key(row) for row in await self._read(lambda connection: select(connection, _PAGE, *values))]

    async def revoke(self, id_or_name: str, at: float) -> KeyRow | None:
        """Revoke a key for ever, and return it."""
        found = await self._write(lambda connection: select(connection, _REVOKE, bind_text(id_or_name), at))
        return _read_key(found[0]) if found else None

    async def revoked(self, key_ids: Iterable[str]) -> frozenset[str]:
        """Return those of the keys that are revoked."""
        return await self._read(
            lambda connection: frozenset(each for each in key_ids if select(connection, _REVOKED, bind_text(each)))
        )

    async def settle(self, charges: Sequence[Charge]) -> set[str]:
        """Charge runs that ended to their keys, and forget their debts."""

        def job(connection: apsw.Connection) -> set[str]:
            paid = [(key_id, each) for each in charges if (key_id := pay(connection, each.run_id)) is not None]
            charge(connection, add_up(paid))
            free(connection, [each.run_id for _, each in paid])
            return {each.run_id for _, each in paid}

        # A charge that is lost with the machine leaves the debt, which was on disk with the run's end.
        return await self._jot(job)

    async def debts(self, before: float, limit: int = 200) -> list[Debt]:
        """Return the runs of keys that ended before that time and are not charged yet."""
        found = await self._read(lambda connection: select(connection, _DEBTS, before, within(limit)))
        return [_read_debt(values) for values in found]

    async def spent(self, key_id: str, period: str) -> Spent:
        """Return what a key used in a period."""
        return await self._read(lambda connection: _spent(connection, key_id, period))

    async def reserve(self, wanted: Reservation, budget: KeyBudget, period: str, now: float) -> ReservationResult:
        """Reserve what a run may use, if the budget of its key has room beside what was used and is reserved."""
        run_id, key_id = bind_text(wanted.run_id), bind_text(wanted.key_id)

        def job(connection: apsw.Connection) -> ReservationResult:
            select(connection, _FORGET_DEAD, key_id, now)
            [(runs, tokens, usd)] = select(connection, _RESERVED, key_id, run_id)
            reserved = Spent(runs=runs, output_tokens=tokens, usd=usd)
            spent = _spent(connection, wanted.key_id, period)
            is_reserved = has_room(budget, spent.plus(reserved))
            if is_reserved:
                select(connection, _RESERVE, run_id, key_id, wanted.tokens, wanted.usd, wanted.until)
            return ReservationResult(spent=spent, reserved=reserved, is_reserved=is_reserved)

        # What is lost with the machine is lost with the run that it was for.
        return await self._jot(job)

    async def release(self, run_id: str) -> None:
        """Give back what was reserved for a run that never began."""
        await self._jot(lambda connection: select(connection, _RELEASE, bind_text(run_id)))


def pay(connection: apsw.Connection, run_id: str) -> str | None:
    """Forget the debt of a run; return whose it was, if it had one."""
    found = select(connection, _PAY, bind_text(run_id))
    return found[0][0] if found else None


def free(connection: apsw.Connection, run_ids: Sequence[str]) -> None:
    """Forget what was reserved for runs that are charged."""
    for run_id in run_ids:
        select(connection, _FREE, bind_text(run_id))


def charge(connection: apsw.Connection, sums: Mapping[tuple[str, str], Spent]) -> None:
    """Add to what keys used, by key and period."""
    for (key_id, period), spent in sums.items():
        select(connection, _SPEND, bind_text(key_id), period, *msgspec.structs.astuple(spent))


def _read_key(values: tuple[Any, ...]) -> KeyRow:
    key_id, name, lookup, mac, created_at, expires_at, revoked_at, powers = values
    return KeyRow(
        id=key_id,
        name=name,
        lookup=lookup,
        mac=mac,
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
        grant=_powers.decode(powers),
    )


def _spent(connection: apsw.Connection, key_id: str, period: str) -> Spent:
    found = select(connection, _SPENT, bind_text(key_id), period)
    return _read_spent(found[0]) if found else Spent()


def _read_spent(values: tuple[Any, ...]) -> Spent:
    runs, input_tokens, output_tokens, usd = values
    return Spent(runs=runs, input_tokens=input_tokens, output_tokens=output_tokens, usd=usd)


def _read_debt(values: tuple[Any, ...]) -> Debt:
    run_id, key_id, model, ended_at, usage = values
    used = None if usage is None else _usage.decode(usage)
    run_id, key_id, model = (read_text(text) or "" for text in (run_id, key_id, model))
    return Debt(run_id=run_id, key_id=key_id, model=model, ended_at=ended_at, usage=used)
