"""Recovers claimed runs: rebuilds each from its journal so that it can be driven further, or ends it."""

import logging

from treadle.access.key_revocation import why_cancelled
from treadle.core.errors import StoreError, TreadleError
from treadle.core.run_endings import INTERRUPTED
from treadle.core.tool_definitions import GUEST
from treadle.journal.journal_interface import RunJournal, RunRow
from treadle.runs.active_run import LiveRun
from treadle.runs.conversation_history import JoinedHistory, read_history
from treadle.runs.dependencies import RunDependencies, ports_of
from treadle.runs.recovery.required_tools import RequiredTools, ToolsMissing
from treadle.runs.recovery.run_record import ATTEMPTS_MAX, UnreadableRun, close_run, read_record
from treadle.runs.replay.comparing_journal import Diverged, RecoveryJournal
from treadle.runs.replay.event_replay import DamagedJournal
from treadle.runs.session_locks import SessionLock, SessionLocks

log = logging.getLogger("treadle.runs")


class RunRecovery:
    """Recovers claimed runs."""

    def __init__(self, deps: RunDependencies, owner: str, sessions: SessionLocks) -> None:
        self._deps = deps
        self._store = deps.store
        self._clock = deps.clock
        self._owner = owner
        self._sessions = sessions
        self.required_tools = RequiredTools(deps.tools.tools, deps.elsewhere)

    async def recover(self, row: RunRow, journal: RunJournal) -> LiveRun | None:
        """Return a claimed run, ready to continue after its last journalled step; end it if it cannot be recovered."""
        try:
            live = await self._rebuild(row, journal)
        except ToolsMissing as error:
            await self._leave_to_others(journal, error)
            return None
        except (TreadleError, UnreadableRun) as error:
            if isinstance(error, StoreError) and not isinstance(error, Diverged | DamagedJournal):
                # The store is unavailable; the run itself may be fine, and is claimed again later.
                log.warning("run not gone on with yet", extra={"run_id": row.id, "code": error.info.code})
                return None
            await self._give_up(row, journal, error)
            return None
        about = {"run_id": row.id, "epoch": journal.epoch}
        if journal.attempt > 1:
            self._deps.metrics.lease_taken_over()
            log.warning("run goes on after its process died", extra=about)
        else:
            log.info("run taken up", extra=about)
        return live

    async def _rebuild(self, row: RunRow, journal: RunJournal) -> LiveRun:
        """Rebuild a run's loop with its journalled steps.

        Raises: Unreadable, Lacking, Diverged, NotFound.
        """
        if journal.attempt > ATTEMPTS_MAX:
            raise UnreadableRun(f"The run was begun {journal.attempt - 1} times, and no process could end it.")
        model = self._deps.models.model_for(row.model)
        previous = None if row.previous_id is None else await self._store.find_run(row.previous_id)
        before = [] if previous is None else await read_history(self._store, previous.id, for_next=True)
        record = await read_record(self._store, row, before)
        if any(framed.offer is not None and framed.offer.source == GUEST for framed in record.blueprint.frame.offers):
            # The guest's tools are gone, and a tool of this process may have the same name.
            raise UnreadableRun("The guest that made the run and ran its tools is gone.")
        is_cancelled = row.id in await self._store.cancel_requests(self._owner)
        if not is_cancelled:
            self.required_tools.check(record)
        wall_s = record.blueprint.frame.limits.wall_s
        now = self._clock.now()
        left_s = None if wall_s is None else max(0.0, row.created_at + wall_s + record.steps.waited_s(now) - now)
        rejoined = record.blueprint.frame.rejoined
        joined = JoinedHistory(before=tuple(before), added=record.added, previous=previous, rejoined=rejoined)
        if carried := record.blueprint.frame.carried:
            await self._store.approvals.use(carried.approvals, row.id)
        loop = record.loop(ports_of(self._deps, model, record.blueprint.frame.sources), wall_s=left_s)
        live = LiveRun(row, loop, joined, await self._lock_session(row))
        if live.session_lock is not None:
            live.session_lock.run_id = row.id
        live.opening = record.opening
        live.journal = RecoveryJournal(journal, record.rest)
        if is_cancelled:
            live.cancel((await why_cancelled(self._store, [row]))[row.id])
        return live

    async def _lock_session(self, row: RunRow) -> SessionLock | None:
        """Lock the run's session again, unless another run holds the lock."""
        if row.session_id is None:
            return None
        try:
            return await self._sessions.enter(row.session_id, row.key_id)
        except TreadleError:
            return None

    async def _leave_to_others(self, journal: RunJournal, error: ToolsMissing) -> None:
        """Release a claimed run, so that a process with its tools can claim it."""
        about = {"run_id": journal.run_id, "tools": ", ".join(error.names)}
        log.warning("run waits for a process that has its tools: %s", about["tools"], extra=about)
        try:
            await journal.release()
        except TreadleError as problem:
            # The lease expires by itself.
            log.warning("run not given up", extra={"run_id": journal.run_id, "code": problem.info.code})

    async def _give_up(self, row: RunRow, journal: RunJournal, problem: Exception) -> None:
        """End a claimed run that cannot be recovered."""
        error = problem.info if isinstance(problem, Diverged) else INTERRUPTED
        try:
            await close_run(self._store, journal, self._clock.now(), error, is_stored=row.store)
        except TreadleError as again:
            log.warning("abandoned run not closed", extra={"run_id": row.id, "code": again.info.code})
            return
        log.warning("run closed after its process died: %s", problem, extra={"run_id": row.id})
