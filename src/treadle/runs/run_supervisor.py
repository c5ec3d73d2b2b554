"""Sees a run through: makes it durable, drives it, ends it whatever happens, and tidies up after it."""

import asyncio
import contextlib
import logging
from collections import deque
from functools import partial
from typing import Any

import msgspec

from treadle.core import run_endings as endings
from treadle.core.errors import Conflict, ErrorInfo, StoreError, TreadleError
from treadle.core.events import DELTAS, Numbered, RoundBroken, RoundStarted, RunEnded, RunEvent
from treadle.core.run_endings import INTERNAL
from treadle.engine.ports import Clock
from treadle.engine.write_buffer import wait_out
from treadle.journal.journal_interface import LEASE_LOST, RunRow, Store
from treadle.runs.active_run import HEEDED, LiveRun
from treadle.runs.approvals.pending_turn import ResumedTurn
from treadle.runs.dependencies import Free, Quotas
from treadle.runs.event_feed import count_text
from treadle.runs.live_event_relay import APART, Relay
from treadle.runs.recovery.run_record import close_run
from treadle.runs.replay.comparing_journal import Continuation, Diverged
from treadle.telemetry import Metrics
from treadle.telemetry.run_observer import About, RunObserver, Tracer

log = logging.getLogger("treadle.runs")

HANDED_OVER = RunEnded(status="failed", error=endings.HANDED_OVER)
FREE = Free()
ENDINGS_TEXT_MAX = 16_777_216
ENDINGS_WAIT_S = 10.0


class DrivePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Who drives runs here, for how long at a time, and whether what they did is kept.

    `is_told` lets other processes read along.
    """

    owner: str
    seconds: float
    is_kept: bool
    is_told: bool = True


class EndingGate:
    """Bounds how much text the runs said together that are ended from outside at once.

    An end is written several times over before it is in the store: as parts, as JSON, as rows. What is over the bound
    waits its turn, but no longer than `wait_s`: a store that hangs must not hold all of them one after the other.
    """

    def __init__(self, text_max: int = ENDINGS_TEXT_MAX, wait_s: float = ENDINGS_WAIT_S) -> None:
        self._text_max = text_max
        self._wait_s = wait_s
        self._text = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, size: int) -> None:
        """Wait until so much more may be ended, whatever happens meanwhile; it must leave again."""
        if not self._text or self._text + size <= self._text_max:
            self._text += size
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append((size, turn))
        timer = loop.call_later(self._wait_s, self._admit, size, turn)
        await wait_out(turn)
        timer.cancel()

    def leave(self, size: int) -> None:
        """Let in those who waited longest, as far as there is room."""
        self._text -= size
        while self._waiting:
            next_size, turn = self._waiting[0]
            if not turn.done():
                if self._text and self._text + next_size > self._text_max:
                    return
                self._admit(next_size, turn)
            self._waiting.popleft()

    def _admit(self, size: int, turn: "asyncio.Future[None]") -> None:
        if not turn.done():
            self._text += size
            turn.set_result(None)


class Supervisor:
    """Runs live runs to their end."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        lease: DrivePolicy,
        tolls: Quotas = FREE,
        tracer: Tracer | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._lease = lease
        self._tolls = tolls
        self._tracer = tracer
        self._endings = EndingGate()

    def shares(self, row: RunRow) -> bool:
        """Tell whether what a run says is stored as it goes, for other processes."""
        return self._lease.is_told and row.store

    async def see_through(self, live: LiveRun) -> None:
        """Run one run to its end, whatever happens to it; its end is told exactly once."""
        live.is_entered = True
        live.watch = RunObserver(_about(live.row), self._metrics, self._clock, self._tracer)
        try:
            if live.journal is None and not await self._endure(live):
                return
            self._open(live)
            live.ended = await self._drive(live)
            if live.is_handed_over:
                return
            await self._tolls.settle(live.row)
            await self._tidy(live, live.ended)
        except BaseException as error:
            live.begin(error)
            raise
        finally:
            live.loop.detach()
            if live.relay is not None:
                await live.relay.close()
            if live.is_handed_over and live.journal is not None:
                await self._release(live)
            if live.ended is None:
                live.ended = RunEnded(status="failed", error=INTERNAL)
            live.watch.close()
            live.feed.close()

    async def lay_down(self, live: LiveRun) -> None:
        """Make a run durable and leave it to whoever claims it.

        Raises: as the store's `start_run`.
        """
        if not await self._endure(live):
            live.begun.result()
        await self._release(live)

    async def _endure(self, live: LiveRun) -> bool:
        """Make the run durable; False if that failed, which its starter then hears of."""
        lease = self._lease
        start = self._store.start_run(
            live.row, live.entries, owner=lease.owner, lease_s=lease.seconds, is_private=live.is_private
        )
        if not start.done():
            await _outlast(live, start)
        error = start.exception()
        if error is not None:
            live.ended = RunEnded(status="failed", error=error.info if isinstance(error, TreadleError) else INTERNAL)
            live.begin(error)
            return False
        live.journal = start.result()
        return live.carried is None or await self._use(live, live.carried)

    async def _use(self, live: LiveRun, carried: ResumedTurn) -> bool:
        """Make sure that no other run carries the same calls on; False if one does, and then this run never was."""
        assert live.journal is not None
        try:
            using = asyncio.ensure_future(self._store.approvals.use(carried.approvals, live.row.id))
            await _outlast(live, using)
            using.result()
        except TreadleError as error:
            live.ended = RunEnded(status="failed", error=error.info)
            try:
                await self._undo(live, error.info)
            finally:
                live.begin(error)
            return False
        return True

    async def _undo(self, live: LiveRun, error: ErrorInfo) -> None:
        """Take a run back that never began; if that fails too, whoever claims it finds that it may not carry on."""
        assert live.journal is not None
        try:
            await close_run(self._store, live.journal, self._clock.now(), error)
            await self._store.delete_run(live.row.id)
        except TreadleError as problem:
            log.warning("run not taken back", extra={"run_id": live.row.id, "code": problem.info.code})

    def _open(self, live: LiveRun) -> None:
        assert live.journal is not None
        live.is_shared = self.shares(live.row)
        self._publish(live, live.opening)
        # Durable and told: a run that lasts does not hold it a second time.
        live.entries, live.opening = (), []
        live.begin()

    async def _drive(self, live: LiveRun) -> RunEnded:
        publish = partial(self._publish, live)
        if live.is_handed_over:
            return HANDED_OVER
        try:
            if live.is_cancelled and not live.loop.is_replaying:
                live.loop.attach(live, publish)
                return await self._abort(live, live.abort_error)
            return await live.loop.run(live, publish, is_private=live.is_private)
        except asyncio.CancelledError:
            if live.is_handed_over:
                return HANDED_OVER
            return await self._abort(live, live.abort_error)
        except Diverged as error:
            return await self._close(live, error)
        except StoreError as error:
            return self._lost(live, error.info, error.message)
        except Exception:  # a bug ends one run, not the process
            log.exception("run failed by a bug", extra={"run_id": live.row.id})
            return await self._abort(live, INTERNAL)

    async def _abort(self, live: LiveRun, error: ErrorInfo | None) -> RunEnded:
        size = count_text(numbered.event for numbered in live.feed.events)
        await self._endings.enter(size)
        try:
            return await live.loop.abort(error)
        except StoreError as problem:
            return self._lost(live, problem.info, problem.message)
        except Exception:  # the last resort: whoever claims the run next closes its journal
            log.exception("run could not be ended properly", extra={"run_id": live.row.id})
            return self._lost(live, INTERNAL)
        finally:
            self._endings.leave(size)

    async def _close(self, live: LiveRun, error: Diverged) -> RunEnded:
        """End a run that cannot be gone on with, because it would not take the way it took before."""
        log.error("run cannot be continued: %s", error.message, extra={"run_id": live.row.id})
        journal = live.journal.inner if isinstance(live.journal, Continuation) else live.journal
        assert journal is not None
        try:
            ended = await close_run(self._store, journal, self._clock.now(), error.info, is_stored=live.row.store)
        except StoreError as problem:
            return self._lost(live, problem.info, problem.message)
        if not live.is_over:
            self._publish(live, [Numbered(event=ended, stands=False)])
        return ended

    async def _release(self, live: LiveRun) -> None:
        assert live.journal is not None
        try:
            await live.journal.release()
        except TreadleError as error:
            log.warning("run not handed over", extra={"run_id": live.row.id, "code": error.info.code})

    def _lost(self, live: LiveRun, error: ErrorInfo, why: str = "") -> RunEnded:
        """Tell the end of a run that cannot be journalled any more; whoever takes it over writes the real one.

        `why` is for the log alone: it may say where the journal is.
        """
        live.is_lost = True
        if error.code == LEASE_LOST:
            self._metrics.lease_lost()
        log.error("run lost its journal: %s", why or error.message, extra={"run_id": live.row.id, "code": error.code})
        ended = RunEnded(status="failed", error=error, ended_at=self._clock.now())
        if not live.is_over:
            self._publish(live, [Numbered(event=ended, stands=False)])
        # Those who read what is stored wait for no more of it: writes that are under way may hang as this one did.
        live.feed.close()
        return ended

    async def _tidy(self, live: LiveRun, ended: RunEnded) -> None:
        """Do what the end of a run allows: move the session on, and forget the run where none is kept.

        A session moves on over a run that failed or was cancelled too, if anything was said or done in it; never over
        one that is not stored, from which nobody could go on.
        """
        row = live.row
        try:
            if live.loop.has_asked and ended.status != "requires_action":
                await self._store.approvals.withdraw(row.id, self._clock.now())
            if row.session_id is not None and row.store and (live.has_said or ended.status == "completed"):
                # Who begins the next run, perhaps elsewhere, may have moved it on already; a person may have left it.
                with contextlib.suppress(Conflict):
                    await self._store.set_session_head(row.session_id, row.id, expected=row.previous_id)
            if not self._lease.is_kept and not live.leaves_memory(ended):
                await self._store.delete_run(row.id)
        except TreadleError as error:
            log.warning("run ended, but not tidied up", extra={"run_id": row.id, "code": error.info.code})

    def _publish(self, live: LiveRun, batch: list[Numbered]) -> None:
        """Tell the readers first: what counts and logs must never keep an event from them."""
        telling: list[RunEvent] = []
        for numbered in batch:
            event = numbered.event
            if type(event) not in DELTAS:
                telling.append(event)
                if type(event) in HEEDED:
                    self._heed(live, event)
        live.feed.publish(batch)
        if type(batch[-1].event) in APART and batch[-1].stands:
            # These come only when all before them is in the journal.
            live.feed.keep(len(live.feed.events))
        if live.relay is not None:
            live.relay.note()
        elif live.is_shared and type(batch[-1].event) not in APART:
            self._relay(live)
        if telling:
            self._count(live, telling)

    def _heed(self, live: LiveRun, event: RunEvent) -> None:
        live.heed(event)
        if type(event) is RunEnded and not live.is_lost:
            self._tolls.owe(live.row, event.usage)

    def _relay(self, live: LiveRun) -> None:
        """Let other processes read along from here on: a run that says nothing before it ends needs none of that."""
        assert live.journal is not None
        live.relay = Relay(live.journal, live.feed, is_durable=live.row.background)
        live.relay.note()

    def _count(self, live: LiveRun, telling: list[RunEvent]) -> None:
        """Make numbers and log lines of events; what is driven again was counted when it happened."""
        watch = live.watch
        assert watch is not None, "a run is watched from its beginning"
        if live.loop.is_replaying:
            for event in telling:
                if type(event) is RoundStarted or type(event) is RoundBroken:
                    watch.round = event.round
            return
        for event in telling:
            try:
                watch.see(event)
            except Exception:  # a number that cannot be counted is no reason to end a run
                log.exception("event not counted", extra={"run_id": live.row.id})


async def _outlast(live: LiveRun, work: "asyncio.Future[Any]") -> None:
    """Wait for what must not be left half done; a cancellation that comes meanwhile is heeded by whoever drives it."""
    if await wait_out(work) is not None and not live.is_handed_over:
        live.is_cancelled = True


def _about(row: RunRow) -> About:
    return About(
        run_id=row.id,
        response_id=row.response_id,
        conversation_id=row.conversation_id,
        protocol=row.protocol,
        model=row.model,
    )
