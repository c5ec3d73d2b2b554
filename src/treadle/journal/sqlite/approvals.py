"""Approvals on SQLite: every write is a job for the writer thread, so that of two deciders the first wins."""

from collections.abc import Callable, Sequence
from typing import Any

import apsw
import msgspec

from treadle.core.errors import NotFound
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
from treadle.journal.sqlite.connection import select
from treadle.journal.sqlite.queries import within
from treadle.journal.sqlite.row_mapping import bind_text
from treadle.journal.sqlite.workspaces import WorkspaceRuns

_FIELDS = "a.id, r.id, a.call_id, a.key_id, a.status, a.created_at, a.expires_at, a.used_by, a.question, a.decision"
_FROM = "FROM approvals a JOIN runs r ON r.n = a.run"
_INSERT = """
INSERT INTO approvals (id, run, call_id, key_id, status, created_at, expires_at, question)
SELECT ?2, r.n, ?3, ?4, 'pending', ?5, ?6, ?7 FROM runs r WHERE r.id = ?1
ON CONFLICT (run, call_id) DO NOTHING
"""
_OF_CALL = f"SELECT {_FIELDS} {_FROM} WHERE r.id = ? AND a.call_id = ?"
_FIND = f"SELECT {_FIELDS} {_FROM} WHERE a.id = ?1 AND (?2 IS NULL OR a.key_id = ?2)"
_PAGE = f"""
SELECT {_FIELDS} {_FROM}
WHERE (?1 IS NULL OR a.key_id = ?1) AND (?2 IS NULL OR a.status = ?2) AND (?3 IS NULL OR r.id = ?3)
  AND (?4 IS NULL OR a.n < ?4)
ORDER BY a.n DESC LIMIT ?5
"""
_EXPIRE = """
UPDATE approvals SET status = 'expired', decision = ? WHERE id = ? AND status = 'pending' AND expires_at <= ?
"""
_DECIDE = "UPDATE approvals SET status = ?, decision = ? WHERE id = ? AND status = 'pending' RETURNING run"
_CHANGED = "UPDATE leases SET changes = changes + 1 WHERE run = ?"
_WITHDRAW = """
UPDATE approvals SET status = 'cancelled', decision = ?2
WHERE status = 'pending' AND run = (SELECT n FROM runs WHERE id = ?1)
"""
_RULE = "id, key_id, session_id, created_at, rule"
_RULES = f"""
SELECT {_RULE} FROM approval_rules
WHERE (?1 IS NULL OR key_id = ?1) AND (?2 IS NULL OR tool = ?2) ORDER BY n DESC LIMIT ?3
"""
_DELETE_RULE = "DELETE FROM approval_rules WHERE id = ?1 AND (?2 IS NULL OR key_id = ?2) RETURNING n"

_question = msgspec.json.Decoder(ApprovalQuestion)
_decision = msgspec.json.Decoder(ApprovalDecision)
_rule = msgspec.json.Decoder(ApprovalRule)


class SqliteApprovals:
    """Fits `kept.ApprovalStore`, over the connections of a SqliteStore; `wake` tells who waits for a run."""

    def __init__(self, read: WorkspaceRuns, write: WorkspaceRuns, wake: Callable[[str], None]) -> None:
        self._read = read
        self._write = write
        self._wake = wake

    async def file(self, row: ApprovalRow) -> ApprovalRow:
        """Keep a question unless its call has one already; return the one that stands.

        Raises: NotFound.
        """
        run_id, call_id = bind_text(row.run_id), bind_text(row.call_id)
        values = (bind_text(row.key_id), row.created_at, row.expires_at, _json(row.question))

        def job(connection: apsw.Connection) -> list[tuple[Any, ...]]:
            select(connection, _INSERT, run_id, bind_text(row.id), call_id, *values)
            return select(connection, _OF_CALL, run_id, call_id)

        found = await self._write(job)
        if not found:
            raise NotFound(f"there is no run {row.run_id!r}")
        return _read_approval(found[0])

    async def find(self, approval_id: str, *, key_id: str | None = None) -> ApprovalRow | None:
        """Return an approval."""
        values = bind_text(approval_id), bind_text(key_id)
        found = await self._read(lambda connection: select(connection, _FIND, *values))
        return _read_approval(found[0]) if found else None

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

        def job(connection: apsw.Connection) -> list[tuple[Any, ...]]:
            place = None if before is None else _place(connection, before)
            return select(connection, _PAGE, *only, place, within(limit))

        return [_read_approval(values) for values in await self._read(job)]

    async def decide(self, approval_id: str, decision: ApprovalDecision) -> ApprovalRow:
        """Decide a pending approval and wake whoever waits for its run.

        Raises: Conflict, NotFound.
        """
        key, late = bind_text(approval_id), ApprovalDecision(status="expired", at=decision.at)

        def job(connection: apsw.Connection) -> tuple[bool, list[tuple[Any, ...]]]:
            select(connection, _EXPIRE, _json(late), key, decision.at)
            decided = select(connection, _DECIDE, decision.status, _json(decision), key)
            for (run,) in decided:
                select(connection, _CHANGED, run)
            return bool(decided), select(connection, _FIND, key, None)

        is_done, found = await self._write(job)
        if not found:
            raise unknown(approval_id)
        row = _read_approval(found[0])
        self._wake(row.run_id)
        if not is_done and not (row.status == decision.status == "expired"):
            raise decided_already(row)
        return row

    async def withdraw(self, run_id: str, now: float) -> None:
        """Cancel what is still pending of a run that has ended."""
        values = bind_text(run_id), _json(ApprovalDecision(status="cancelled", at=now))
        await self._write(lambda connection: select(connection, _WITHDRAW, *values))

    async def use(self, approval_ids: Sequence[str], run_id: str) -> None:
        """Let a run carry on the calls of these approvals, all or none.

        Raises: Conflict, NotFound.
        """

        def job(connection: apsw.Connection) -> None:
            for approval_id in approval_ids:
                found = select(connection, "SELECT used_by FROM approvals WHERE id = ?", bind_text(approval_id))
                if not found:
                    raise unknown(approval_id)
                if found[0][0] not in (None, run_id):
                    raise used_already(approval_id)
                sql = "UPDATE approvals SET used_by = ? WHERE id = ?"
                select(connection, sql, bind_text(run_id), bind_text(approval_id))

        await self._write(job)

    async def release(self, run_id: str) -> None:
        """Give back what a run that never began was to carry on."""
        sql = "UPDATE approvals SET used_by = NULL WHERE used_by = ?"
        await self._write(lambda connection: select(connection, sql, bind_text(run_id)))

    async def add_rule(self, row: RuleRow) -> None:
        """Keep a rule.

        Raises: NotFound, Conflict.
        """
        sql = "INSERT INTO approval_rules (id, key_id, session_id, tool, created_at, rule) VALUES (?, ?, ?, ?, ?, ?)"
        texts = [bind_text(text) for text in (row.id, row.key_id, row.session_id, row.rule.tool)]
        await self._write(lambda connection: select(connection, sql, *texts, row.created_at, _json(row.rule)))

    async def rules(self, *, key_id: str | None = None, tool: str | None = None, limit: int = 200) -> list[RuleRow]:
        """Return rules, newest first."""
        values = bind_text(key_id), bind_text(tool), within(limit)
        return [_read_rule(row) for row in await self._read(lambda connection: select(connection, _RULES, *values))]

    async def delete_rule(self, rule_id: str, *, key_id: str | None = None) -> bool:
        """Forget a rule; tell whether there was one."""
        values = bind_text(rule_id), bind_text(key_id)
        return bool(await self._write(lambda connection: select(connection, _DELETE_RULE, *values)))


def _place(connection: apsw.Connection, approval_id: str) -> int:
    found = select(connection, "SELECT n FROM approvals WHERE id = ?", bind_text(approval_id))
    if not found:
        raise unknown(approval_id)
    return found[0][0]


def _json(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()


def _read_approval(values: tuple[Any, ...]) -> ApprovalRow:
    approval_id, run_id, call_id, key_id, status, created_at, expires_at, used_by, question, decision = values
    return ApprovalRow(
        id=approval_id,
        run_id=run_id,
        call_id=call_id.decode("utf-8", "surrogatepass") if isinstance(call_id, bytes) else call_id,
        key_id=key_id,
        status=status,
        created_at=created_at,
        expires_at=expires_at,
        used_by=used_by,
        question=_question.decode(question),
        decision=None if decision is None else _decision.decode(decision),
    )


def _read_rule(values: tuple[Any, ...]) -> RuleRow:
    rule_id, key_id, session_id, created_at, rule = values
    return RuleRow(id=rule_id, key_id=key_id, session_id=session_id, created_at=created_at, rule=_rule.decode(rule))
