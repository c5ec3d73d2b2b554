"""Drives a run from start to end: makes it durable, runs its loop, ends it whatever happens, and cleans up."""

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
from treadle.core.shared_ports import Clock
from treadle.engine.write_buffer import wait_uninterrupted
from treadle.journal.journal_interface import LEASE_LOST, RunRow, Store
from treadle.runs.active_run import TRACKED, LiveRun
from treadle.runs.approvals.pending_turn import ResumedTurn
from treadle.runs.dependencies import NoQuotas, Quotas
from treadle.runs.event_feed import count_text
from treadle.runs.live_event_relay import OUTSIDE_MODEL_CALLS, LiveEventRelay
from treadle.runs.recovery.run_record import close_run
from treadle.runs.replay.comparing_journal import Diverged, RecoveryJournal
from treadle.telemetry import Metrics
from treadle.telemetry.run_observer import About, RunObserver, Tracer

log = logging.getLogger("treadle.runs")

HANDED_OVER = RunEnded(status="failed", error=endings.HANDED_OVER)
NO_QUOTAS = NoQuotas()
ENDINGS_TEXT_MAX = 16_777_216
ENDINGS_WAIT_S = 10.0


class DrivePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The lease owner and duration of runs driven here, and whether their content is persistent.

    `shares_live_events` lets other processes read events before they are durable.
    """

    owner: str
    seconds: float
    is_persistent: bool
    shares_live_events: bool = True


class EndingGate:
    """Bounds the total text of runs that are aborted at the same time, such as at shutdown.

    An end is copied several times on its way to the store (parts, JSON, rows). Runs over the bound wait, but no longer
    than `wait_s`: a store that hangs must not delay them one after the other.
    """

    def __init__(self, text_max: int = ENDINGS_TEXT_MAX, wait_s: float = ENDINGS_WAIT_S) -> None:
        self._text_max = text_max
        self._wait_s = wait_s
        self._text = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, size: int) -> None:
        """Wait until a run of this size may end, ignoring cancellation; `leave` must follow."""
        if not self._text or self._text + size <= self._text_max:
            self._text += size
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append((size, turn))
        timer = loop.call_later(self._wait_s, self._admit, size, turn)
        await wait_uninterrupted(turn)
        timer.cancel()

    def leave(self, size: int) -> None:
        """Admit the runs that have waited longest, as far as the bound allows."""
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
    """Drives active runs to their end."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        policy: DrivePolicy,
        quotas: Quotas = NO_QUOTAS,
        tracer: Tracer | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._policy = policy
        self._quotas = quotas
        self._tracer = tracer
        self._endings = EndingGate()

    def shares(self, row: RunRow) -> bool:
        """Return whether other processes can read a run's events before they are durable."""
        return self._policy.shares_live_events and row.store

    async def run_to_end(self, live: LiveRun) -> None:
        """Drive one run to its end, whatever happens; its end is published exactly once."""
        live.is_driven = True
        live.observer = RunObserver(_labels_of(live.row), self._metrics, self._clock, self._tracer)
        try:
            if live.journal is None and not await self._make_durable(live):
                return
            self._publish_opening(live)
            live.ended = await self._drive(live)
            if live.is_handed_over:
                return
            await self._quotas.settle(live.row)
            await self._tidy(live, live.ended)
        except BaseException as error:
            live.mark_started(error)
            raise
        finally:
            live.loop.detach()
            if live.relay is not None:
                await live.relay.close()
            if live.is_handed_over and live.journal is not None:
                await self._release(live)
            if live.ended is None:
                live.ended = RunEnded(status="failed", error=INTERNAL)
            live.observer.close()
            live.feed.close()

    async def store_unowned(self, live: LiveRun) -> None:
        """Make a run durable without a lease, so that any process can claim it.

        Raises: as the store's `start_run`.
        """
        if not await self._make_durable(live):
            live.started.result()
        await self._release(live)

    async def _make_durable(self, live: LiveRun) -> bool:
        """Make the run durable; return False if that failed, with the error passed to its starter."""
        policy = self._policy
        start = self._store.start_run(
            live.row, live.entries, owner=policy.owner, lease_s=policy.seconds, is_private=live.is_private
        )
        if not start.done():
            await _wait_uncancelled(live, start)
        error = start.exception()
        if error is not None:
            live.ended = RunEnded(status="failed", error=error.info if isinstance(error, TreadleError) else INTERNAL)
            live.mark_started(error)
            return False
        live.journal = start.result()
        return live.carried is None or await self._claim_calls(live, live.carried)

    async def _claim_calls(self, live: LiveRun, carried: ResumedTurn) -> bool:
        """Claim the deferred calls that the run resumes; return False if another run has, and discard this one."""
        assert live.journal is not None
        try:
            using = asyncio.ensure_future(self._store.approvals.use(carried.approvals, live.row.id))
            await _wait_uncancelled(live, using)
            using.result()
        except TreadleError as error:
            live.ended = RunEnded(status="failed", error=error.info)
            try:
                await self._discard(live, error.info)
            finally:
                live.mark_started(error)
            return False
        return True

    async def _discard(self, live: LiveRun, error: ErrorInfo) -> None:
        """Close and delete a run that must not start; if that fails too, its recovery fails at the same claim."""
        assert live.journal is not None
        try:
            await close_run(self._store, live.journal, self._clock.now(), error)
            await self._store.delete_run(live.row.id)
        except TreadleError as problem:
            log.warning("run not taken back", extra={"run_id": live.row.id, "code": problem.info.code})

    def _publish_opening(self, live: LiveRun) -> None:
        assert live.journal is not None
        live.is_shared = self.shares(live.row)
        self._publish(live, live.opening)
        # Durable and published: a long run need not hold them in memory too.
        live.entries, live.opening = (), []
        live.mark_started()

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
        except Exception:  # last resort: the process that claims the run next closes its journal
            log.exception("run could not be ended properly", extra={"run_id": live.row.id})
            return self._lost(live, INTERNAL)
        finally:
            self._endings.leave(size)

    async def _close(self, live: LiveRun, error: Diverged) -> RunEnded:
        """End a run that cannot be recovered, because its replay diverged from the journal."""
        log.error("run cannot be continued: %s", error.message, extra={"run_id": live.row.id})
        journal = live.journal.inner if isinstance(live.journal, RecoveryJournal) else live.journal
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
        """Publish a provisional end of a run that can no longer be journalled; the process that recovers it writes
        the real one.

        `why` is for the log only: it may contain the location of the journal.
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
        """Clean up after the end of a run: advance the session, and delete the run if runs are not persistent.

        A session also advances to a failed or cancelled run if that has output, but never to one that is not stored,
        since no run could continue from it.
        """
        row = live.row
        try:
            if live.loop.has_requested_approval and ended.status != "requires_action":
                await self._store.approvals.withdraw(row.id, self._clock.now())
            if row.session_id is not None and row.store and (live.has_output or ended.status == "completed"):
                # The starter of the next run may have advanced it already; a person may have chosen another branch.
                with contextlib.suppress(Conflict):
                    await self._store.set_session_head(row.session_id, row.id, expected=row.previous_id)
            if not self._policy.is_persistent and not live.leaves_hidden_items(ended):
                await self._store.delete_run(row.id)
        except TreadleError as error:
            log.warning("run ended, but not tidied up", extra={"run_id": row.id, "code": error.info.code})

    def _publish(self, live: LiveRun, batch: list[Numbered]) -> None:
        """Publish to the readers first: metrics and logs must never delay an event."""
        observed: list[RunEvent] = []
        for numbered in batch:
            event = numbered.event
            if type(event) not in DELTAS:
                observed.append(event)
                if type(event) in TRACKED:
                    self._track(live, event)
        live.feed.publish(batch)
        if type(batch[-1].event) in OUTSIDE_MODEL_CALLS and batch[-1].stands:
            # These are published only when everything before them is in the journal.
            live.feed.mark_stored(len(live.feed.events))
        if live.relay is not None:
            live.relay.notify()
        elif live.is_shared and type(batch[-1].event) not in OUTSIDE_MODEL_CALLS:
            self._relay(live)
        if observed:
            self._count(live, observed)

    def _track(self, live: LiveRun, event: RunEvent) -> None:
        live.track(event)
        if type(event) is RunEnded and not live.is_lost:
            self._quotas.record_usage(live.row, event.usage)

    def _relay(self, live: LiveRun) -> None:
        """Start the relay, on the first event that another process could not read from the journal."""
        assert live.journal is not None
        live.relay = LiveEventRelay(live.journal, live.feed, is_durable=live.row.background)
        live.relay.notify()

    def _count(self, live: LiveRun, observed: list[RunEvent]) -> None:
        """Record metrics and log lines; replayed events were counted when they happened."""
        observer = live.observer
        assert observer is not None, "a run is observed from its start"
        if live.loop.is_replaying:
            for event in observed:
                if type(event) is RoundStarted or type(event) is RoundBroken:
                    observer.round = event.round
            return
        for event in observed:
            try:
                observer.observe(event)
            except Exception:  # a number that cannot be counted is no reason to end a run
                log.exception("event not counted", extra={"run_id": live.row.id})


async def _wait_uncancelled(live: LiveRun, work: "asyncio.Future[Any]") -> None:
    """Wait for work that must not be abandoned; a cancellation during the wait takes effect in `_drive`."""
    if await wait_uninterrupted(work) is not None and not live.is_handed_over:
        live.is_cancelled = True


def _labels_of(row: RunRow) -> About:
    return About(
        run_id=row.id,
        response_id=row.response_id,
        conversation_id=row.conversation_id,
        protocol=row.protocol,
        model=row.model,
    )
