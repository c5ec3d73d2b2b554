"""Approvals on PostgreSQL: a decision is one statement whose condition is the check, and the bell tells of it."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from treadle.core.errors import Conflict, NotFound
from treadle.journal.approvals_interface import (
    ApprovalDecision,
    ApprovalQuestion,
    ApprovalRow,
    ApprovalRule,
    ApprovalStatus,
    RuleRow,
    decided_already,
    unknown,
    used_already,
)
from treadle.journal.postgres.connection import Connection
from treadle.journal.postgres.queries import within
from treadle.journal.postgres.row_mapping import bind_data, bind_plain, bind_text, read_data, read_text
from treadle.journal.postgres.workspaces import Reads, WorkspaceWrites

_FIELDS = "a.id, r.id, a.call_id, a.key_id, a.status, a.created_at, a.expires_at, a.used_by, a.question, a.decision"
_FROM = "FROM approvals a JOIN runs r ON r.n = a.run"
_INSERT = """
INSERT INTO approvals (id, run, call_id, key_id, status, created_at, expires_at, question)
SELECT $2, r.n, $3, $4, 'pending', $5, $6, $7 FROM runs r WHERE r.id = $1
ON CONFLICT (run, key_of(call_id)) DO NOTHING
"""
_OF_CALL = f"SELECT {_FIELDS} {_FROM} WHERE r.id = $1 AND key_of(a.call_id) = key_of($2)"
_FIND = f"SELECT {_FIELDS} {_FROM} WHERE a.id = $1 AND ($2::text IS NULL OR a.key_id = $2)"
_PAGE = f"""
SELECT {_FIELDS} {_FROM}
WHERE ($1::text IS NULL OR a.key_id = $1) AND ($2::text IS NULL OR a.status = $2)
  AND ($3::text IS NULL OR r.id = $3) AND ($4::bigint IS NULL OR a.n < $4)
ORDER BY a.n DESC LIMIT $5
"""
_EXPIRE = """
UPDATE approvals SET status = 'expired', decision = $1 WHERE id = $2 AND status = 'pending' AND expires_at <= $3
"""
_DECIDE = "UPDATE approvals SET status = $1, decision = $2 WHERE id = $3 AND status = 'pending' RETURNING n"
_WITHDRAW = """
UPDATE approvals SET status = 'cancelled', decision = $2
WHERE status = 'pending' AND run = (SELECT n FROM runs WHERE id = $1)
"""
_USE = "UPDATE approvals SET used_by = $1 WHERE id = $2 AND (used_by IS NULL OR used_by = $1) RETURNING n"
_RULE = "id, key_id, session_id, created_at, rule"
_ADD_RULE = """
INSERT INTO approval_rules (id, key_id, session_id, tool, created_at, rule) VALUES ($1, $2, $3, $4, $5, $6)
"""
_RULES = f"""
SELECT {_RULE} FROM approval_rules
WHERE ($1::text IS NULL OR key_id = $1) AND ($2::text IS NULL OR tool = $2) ORDER BY n DESC LIMIT $3
"""
_DELETE_RULE = "DELETE FROM approval_rules WHERE id = $1 AND ($2::text IS NULL OR key_id = $2) RETURNING n"

_question = msgspec.json.Decoder(ApprovalQuestion)
_decision = msgspec.json.Decoder(ApprovalDecision)
_rule = msgspec.json.Decoder(ApprovalRule)


class PostgresApprovals:
    """Fits `kept.ApprovalStore`, over the connections of a PostgresStore; `ring` tells who waits for a run."""

    def __init__(self, read: Reads, write: WorkspaceWrites, ring: Callable[[str], None]) -> None:
        self._read = read
        self._write = write
        self._ring = ring

    async def file(self, row: ApprovalRow) -> ApprovalRow:
        """Keep a question unless its call has one already; return the one that stands.

        Raises: NotFound.
        """
        run_id, call_id = bind_text(row.run_id), bind_text(row.call_id)
        approval_id, key_id = bind_plain("approvals.id", row.id), bind_plain("approvals.key_id", row.key_id)
        rest = (key_id, row.created_at, row.expires_at, _json(row.question))

        async def work(connection: Connection) -> Any:
            await connection.execute(_INSERT, run_id, approval_id, call_id, *rest)
            return await connection.fetchrow(_OF_CALL, run_id, call_id)

        found = await self._write(work)
        if found is None:
            raise NotFound(f"there is no run {row.run_id!r}")
        return _read_approval(found)

    async def find(self, approval_id: str, *, key_id: str | None = None) -> ApprovalRow | None:
        """Return an approval."""
        values = bind_text(approval_id), bind_text(key_id)
        found = await self._read(lambda connection: connection.fetchrow(_FIND, *values))
        return None if found is None else _read_approval(found)

    async def page(
        self,
        limit: int = 50,
        *,
        key_id: str | None = None,
        status: ApprovalStatus | None = None,
        run_id: str | None = None,
        before: str | None = None,
    ) -> list[ApprovalRow]:
        """Return approvals, newest first.

        Raises: NotFound.
        """
        only = bind_text(key_id), status, bind_text(run_id)

        async def work(connection: Connection) -> list[Any]:
            place = None if before is None else await _place(connection, before)
            return await connection.fetch(_PAGE, *only, place, within(limit))

        return [_read_approval(values) for values in await self._read(work)]

    async def decide(self, approval_id: str, decision: ApprovalDecision) -> ApprovalRow:
        """Decide a pending approval and wake whoever waits for its run.

        Raises: Conflict, NotFound.
        """
        key, late = bind_text(approval_id), ApprovalDecision(status="expired", at=decision.at)

        async def work(connection: Connection) -> tuple[bool, Any]:
            async with connection.transaction():
                await connection.execute(_EXPIRE, _json(late), key, decision.at)
                decided = await connection.fetchval(_DECIDE, decision.status, _json(decision), key)
            return decided is not None, await connection.fetchrow(_FIND, key, None)

        async def settle(connection: Connection) -> tuple[bool, Any] | None:
            found = await connection.fetchrow(_FIND, key, None)
            return (True, found) if found is not None and _read_approval(found).decision == decision else None

        is_done, found = await self._write(work, settle)
        if found is None:
            raise unknown(approval_id)
        row = _read_approval(found)
        self._ring(row.run_id)
        if not is_done and not (row.status == decision.status == "expired"):
            raise decided_already(row)
        return row

    async def withdraw(self, run_id: str, now: float) -> None:
        """Cancel what is still pending of a run that has ended."""
        values = bind_text(run_id), _json(ApprovalDecision(status="cancelled", at=now))
        await self._write(lambda connection: connection.execute(_WITHDRAW, *values))

    async def use(self, approval_ids: Sequence[str], run_id: str) -> None:
        """Let a run carry on the calls of these approvals, all or none.

        Raises: Conflict, NotFound.
        """

        async def work(connection: Connection) -> bool:
            async with connection.transaction():
                for approval_id in approval_ids:
                    if await connection.fetchval(_USE, bind_text(run_id), bind_text(approval_id)) is None:
                        raise await _missed(connection, approval_id)
            return True

        await self._write(work)

    async def release(self, run_id: str) -> None:
        """Give back what a run that never began was to carry on."""
        sql = "UPDATE approvals SET used_by = NULL WHERE used_by = $1"
        await self._write(lambda connection: connection.execute(sql, bind_text(run_id)))

    async def add_rule(self, row: RuleRow) -> None:
        """Keep a rule.

        Raises: NotFound, Conflict.
        """
        texts = [bind_text(text) for text in (row.id, row.key_id, row.session_id, row.rule.tool)]

        async def work(connection: Connection) -> bool:
            await connection.execute(_ADD_RULE, *texts, row.created_at, _json(row.rule))
            return True

        async def settle(connection: Connection) -> bool | None:
            sql = "SELECT rule = $2 FROM approval_rules WHERE id = $1"
            return await connection.fetchval(sql, texts[0], _json(row.rule)) or None

        await self._write(work, settle)

    async def rules(self, *, key_id: str | None = None, tool: str | None = None, limit: int = 200) -> list[RuleRow]:
        """Return rules, newest first."""
        values = bind_text(key_id), bind_text(tool), within(limit)
        return [_read_rule(row) for row in await self._read(lambda connection: connection.fetch(_RULES, *values))]

    async def delete_rule(self, rule_id: str, *, key_id: str | None = None) -> bool:
        """Forget a rule; tell whether there was one."""
        values = bind_text(rule_id), bind_text(key_id)
        return await self._write(lambda connection: connection.fetchval(_DELETE_RULE, *values)) is not None


async def _missed(connection: Connection, approval_id: str) -> NotFound | Conflict:
    if await connection.fetchval("SELECT 1 FROM approvals WHERE id = $1", bind_text(approval_id)) is None:
        return unknown(approval_id)
    return used_already(approval_id)


async def _place(connection: Connection, approval_id: str) -> int:
    found = await connection.fetchval("SELECT n FROM approvals WHERE id = $1", bind_text(approval_id))
    if found is None:
        raise unknown(approval_id)
    return found


def _json(value: msgspec.Struct) -> str:
    return bind_data(msgspec.json.encode(value))


def _read_approval(values: Any) -> ApprovalRow:
    approval_id, run_id, call_id, key_id, status, created_at, expires_at, used_by, question, decision = values
    return ApprovalRow(
        id=read_text(approval_id) or "",
        run_id=read_text(run_id) or "",
        call_id=read_text(call_id) or "",
        key_id=read_text(key_id) or "",
        status=status,
        created_at=created_at,
        expires_at=expires_at,
        used_by=read_text(used_by),
        question=_question.decode(read_data(question)),
        decision=None if decision is None else _decision.decode(read_data(decision)),
    )


def _read_rule(values: Any) -> RuleRow:
    rule_id, key_id, session_id, created_at, rule = values
    return RuleRow(
        id=read_text(rule_id) or "",
        key_id=read_text(key_id) or "",
        session_id=read_text(session_id),
        created_at=created_at,
        rule=_rule.decode(read_data(rule)),
    )
