# ruff: noqa: D102 - the methods are documented in approvals_interface
"""Stores approvals and their rules in either database: a decision is a statement whose condition is the check."""

from collections.abc import Callable, Sequence
from typing import Any

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
from treadle.journal.sql_steps import Access, Steps, Tables, within

_FIELDS = "a.id, r.id, a.call_id, a.key_id, a.status, a.created_at, a.expires_at, a.used_by, a.question, a.decision"
_FROM = "FROM approvals a JOIN runs r ON r.n = a.run"
# The unique index of a call differs between the databases; an id that is taken is a conflict in both.
_INSERT = """
INSERT INTO approvals (id, run, call_id, key_id, status, created_at, expires_at, question)
SELECT $2, r.n, $3, $4, 'pending', $5, $6, $7 FROM runs r WHERE r.id = $1
ON CONFLICT ({}) DO NOTHING
"""
_FIND = f"SELECT {_FIELDS} {_FROM} WHERE a.id = $1 AND (CAST($2 AS text) IS NULL OR a.key_id = $2)"
_PAGE = f"""
SELECT {_FIELDS} {_FROM}
WHERE (CAST($1 AS text) IS NULL OR a.key_id = $1) AND (CAST($2 AS text) IS NULL OR a.status = $2)
  AND (CAST($3 AS text) IS NULL OR r.id = $3) AND (CAST($4 AS bigint) IS NULL OR a.n < $4)
ORDER BY a.n DESC LIMIT $5
"""
_EXPIRE = """
UPDATE approvals SET status = 'expired', decision = $1 WHERE id = $2 AND status = 'pending' AND expires_at <= $3
"""
_DECIDE = "UPDATE approvals SET status = $1, decision = $2 WHERE id = $3 AND status = 'pending' RETURNING run"
_WITHDRAW = """
UPDATE approvals SET status = 'cancelled', decision = $2
WHERE status = 'pending' AND run = (SELECT n FROM runs WHERE id = $1)
"""
_USE = "UPDATE approvals SET used_by = $1 WHERE id = $2 AND (used_by IS NULL OR used_by = $1) RETURNING n"
_RELEASE = "UPDATE approvals SET used_by = NULL WHERE used_by = $1"
_ADD_RULE = """
INSERT INTO approval_rules (id, key_id, session_id, tool, created_at, rule) VALUES ($1, $2, $3, $4, $5, $6)
"""
_RULES = """
SELECT id, key_id, session_id, created_at, rule FROM approval_rules
WHERE (CAST($1 AS text) IS NULL OR key_id = $1) AND (CAST($2 AS text) IS NULL OR tool = $2) ORDER BY n DESC LIMIT $3
"""
_DELETE_RULE = "DELETE FROM approval_rules WHERE id = $1 AND (CAST($2 AS text) IS NULL OR key_id = $2) RETURNING n"

_question = msgspec.json.Decoder(ApprovalQuestion)
_decision = msgspec.json.Decoder(ApprovalDecision)
_rule = msgspec.json.Decoder(ApprovalRule)


class StoredApprovals(Tables):
    """Fits `approvals_interface.ApprovalStore`; `wake` is called with a run whose approval was decided."""

    def __init__(self, access: Access, wake: Callable[[str], None], call_index: str, changed: str | None) -> None:
        """Use a store; `changed` is the statement that counts a change of a run, where waiters compare counts."""
        super().__init__(access)
        self._wake = wake
        self._insert = _INSERT.format(call_index)
        self._changed = changed
        self._of_call = (
            f"SELECT {_FIELDS} {_FROM} WHERE r.id = $1 AND {self._dialect.same_key.format('a.call_id', '$2')}"
        )

    async def file(self, row: ApprovalRow) -> ApprovalRow:
        dialect = self._dialect
        run_id, call_id = dialect.bind_text(row.run_id), dialect.bind_text(row.call_id)
        names = dialect.bind_plain("approvals.id", row.id), call_id, dialect.bind_plain("approvals.key_id", row.key_id)
        rest = (row.created_at, row.expires_at, dialect.bind_struct(row.question))

        def steps() -> Steps[Sequence[Any]]:
            yield self._insert, run_id, *names, *rest
            return (yield self._of_call, run_id, call_id)

        found = await self._access.write(steps)
        if not found:
            raise NotFound(f"there is no run {row.run_id!r}")
        return self._read_approval(found[0])

    async def find(self, approval_id: str, *, key_id: str | None = None) -> ApprovalRow | None:
        bind = self._dialect.bind_text
        found = await self.fetch(_FIND, bind(approval_id), bind(key_id))
        return self._read_approval(found[0]) if found else None

    async def page(
        self,
        limit: int = 50,
        *,
        key_id: str | None = None,
        status: ApprovalStatus | None = None,
        run_id: str | None = None,
        before: str | None = None,
    ) -> list[ApprovalRow]:
        bind = self._dialect.bind_text

        def steps() -> Steps[Sequence[Any]]:
            place = None
            if before is not None:
                found = yield "SELECT n FROM approvals WHERE id = $1", bind(before)
                if not found:
                    raise unknown(before)
                place = found[0][0]
            return (yield _PAGE, bind(key_id), status, bind(run_id), place, within(limit))

        return [self._read_approval(values) for values in await self._access.read(steps)]

    async def decide(self, approval_id: str, decision: ApprovalDecision) -> ApprovalRow:
        dialect = self._dialect
        key, late = dialect.bind_text(approval_id), ApprovalDecision(status="expired", at=decision.at)

        def steps() -> Steps[tuple[bool, ApprovalRow | None]]:
            yield _EXPIRE, dialect.bind_struct(late), key, decision.at
            decided = yield _DECIDE, decision.status, dialect.bind_struct(decision), key
            if self._changed is not None:
                for row in decided:
                    yield self._changed, row[0]
            return bool(decided), (yield from self._find_any(key))

        def settle() -> Steps[tuple[bool, ApprovalRow | None] | None]:
            found = yield from self._find_any(key)
            return (True, found) if found is not None and found.decision == decision else None

        is_done, row = await self._access.transact(steps, settle)
        if row is None:
            raise unknown(approval_id)
        self._wake(row.run_id)
        if not is_done and not (row.status == decision.status == "expired"):
            raise decided_already(row)
        return row

    async def withdraw(self, run_id: str, now: float) -> None:
        decision = ApprovalDecision(status="cancelled", at=now)
        await self.execute(_WITHDRAW, self._dialect.bind_text(run_id), self._dialect.bind_struct(decision))

    async def use(self, approval_ids: Sequence[str], run_id: str) -> None:
        bind = self._dialect.bind_text

        def steps() -> Steps[None]:
            for approval_id in approval_ids:
                if (yield _USE, bind(run_id), bind(approval_id)):
                    continue
                is_there = yield "SELECT 1 FROM approvals WHERE id = $1", bind(approval_id)
                raise used_already(approval_id) if is_there else unknown(approval_id)

        await self._access.transact(steps)

    async def release(self, run_id: str) -> None:
        await self.execute(_RELEASE, self._dialect.bind_text(run_id))

    async def add_rule(self, row: RuleRow) -> None:
        dialect = self._dialect
        texts = [dialect.bind_text(text) for text in (row.id, row.key_id, row.session_id, row.rule.tool)]
        rule = dialect.bind_struct(row.rule)

        def steps() -> Steps[bool]:
            yield _ADD_RULE, *texts, row.created_at, rule
            return True

        def settle() -> Steps[bool | None]:
            return bool((yield "SELECT 1 FROM approval_rules WHERE id = $1 AND rule = $2", texts[0], rule)) or None

        await self._access.write(steps, settle)

    async def rules(self, *, key_id: str | None = None, tool: str | None = None, limit: int = 200) -> list[RuleRow]:
        dialect = self._dialect
        return [
            RuleRow(
                id=dialect.text(rule_id),
                key_id=dialect.text(owner),
                session_id=dialect.text_or_none(session_id),
                created_at=created_at,
                rule=_rule.decode(dialect.read_json(rule)),
            )
            for rule_id, owner, session_id, created_at, rule in await self.fetch(
                _RULES, dialect.bind_text(key_id), dialect.bind_text(tool), within(limit)
            )
        ]

    async def delete_rule(self, rule_id: str, *, key_id: str | None = None) -> bool:
        bind = self._dialect.bind_text
        return bool(await self.execute(_DELETE_RULE, bind(rule_id), bind(key_id)))

    def _find_any(self, bound_id: Any) -> Steps[ApprovalRow | None]:
        found = yield _FIND, bound_id, None
        return self._read_approval(found[0]) if found else None

    def _read_approval(self, values: Any) -> ApprovalRow:
        approval_id, run_id, call_id, key_id, status, created_at, expires_at, used_by, question, decision = values
        dialect = self._dialect
        return ApprovalRow(
            id=dialect.text(approval_id),
            run_id=dialect.text(run_id),
            call_id=dialect.text(call_id),
            key_id=dialect.text(key_id),
            status=status,
            created_at=created_at,
            expires_at=expires_at,
            used_by=dialect.text_or_none(used_by),
            question=_question.decode(dialect.read_json(question)),
            decision=None if decision is None else _decision.decode(dialect.read_json(decision)),
        )
