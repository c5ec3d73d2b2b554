"""A desk and its service on a private store, with a run to ask in."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from store.sample import run_row
from treadle.core.ids import CountingIds
from treadle.core.tool_definitions import CallContext
from treadle.engine.ports import PendingApproval, PermissionRequest
from treadle.journal.journal_interface import SessionRow
from treadle.journal.sqlite.store import SqliteStore
from treadle.runs.approvals.decisions import Approvals
from treadle.runs.approvals.durable_approver import ApproverRules, DurableApprover
from unit.engine.fakes import FakeClock, call, server

CONTEXT = CallContext(run_id="run_1", session_id="sess_1")
OFFER = server("wipe", effect="destructive")
PLEA = PermissionRequest(call=call("wipe", arguments='{"b":1, "a":"x"}'), offer=OFFER, reasons=("wipe is destructive",))
WAIT_S = 10.0


class Office:
    """Everything that a question passes through."""

    def __init__(self, store: SqliteStore, clock: FakeClock, rules: ApproverRules) -> None:
        ids = CountingIds()
        self.store = store
        self.clock = clock
        self.desk = DurableApprover(store, clock, ids, rules)
        self.service = Approvals(store, clock, ids)

    async def ticket(self, request: PermissionRequest = PLEA, context: CallContext = CONTEXT) -> PendingApproval:
        """Ask, and be told to wait."""
        ticket = await self.desk.ask(request, context)
        assert isinstance(ticket, PendingApproval), ticket
        return ticket


@asynccontextmanager
async def office(rules: ApproverRules | None = None, **run: Any) -> AsyncIterator[Office]:
    """Open an office with the runs run_1 and run_2 and the session sess_1."""
    clock = FakeClock()
    store = SqliteStore(":memory:", clock=clock.now)
    await store.open()
    try:
        await store.create_session(SessionRow(id="sess_1", created_at=1.0, updated_at=1.0))
        for name in ("1", "2"):
            await store.start_run(run_row(name, **run), [], owner="me", lease_s=60)
        yield Office(store, clock, rules or ApproverRules())
    finally:
        await store.close()


def other_call(call_id: str, arguments: str = '{"a":"x","b":1}', **fields: Any) -> PermissionRequest:
    """The same tool, called again."""
    return msgspec.structs.replace(PLEA, call=call("wipe", call_id=call_id, arguments=arguments), **fields)
