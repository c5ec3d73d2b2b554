"""The run service: starts, finds, cancels, recovers, replays and forks runs, for server, terminal and library."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import TypedDict, Unpack

import msgspec

from treadle.access.key_revocation import why_cancelled
from treadle.core.errors import Conflict, NotFound, RequestError, StoreError, TreadleError
from treadle.core.events import ENDED, Numbered, Status
from treadle.core.ids import CONVERSATION, RESPONSE, RUN
from treadle.core.request import DIRECT_MODEL, Request, inherit
from treadle.core.run_endings import SERVER_STOPPING
from treadle.engine.limits import Limits
from treadle.engine.ports import Model
from treadle.journal.journal_interface import IDEMPOTENCY_KEY_TAKEN, LEASE_LOST, RunRow
from treadle.protocols.protocol_registry import PROTOCOLS, RESPONSES
from treadle.runs.active_run import LiveRun, LocalRun, RemoteRun, RunHandle
from treadle.runs.approvals.deferred_calls import DeferredCalls
from treadle.runs.approvals.taint import tainted_before
from treadle.runs.conversation_history import ConversationHistory, JoinedHistory, input_entries, read_history
from treadle.runs.dependencies import NO_OVERRIDES, RunDependencies, RunOverrides, RunsOptions, ports_of
from treadle.runs.history_validation import log_pairs
from treadle.runs.idempotency import Idempotency, check_same, last_try
from treadle.runs.recovery.recover_runs import RunRecovery
from treadle.runs.recovery.run_record import RunRecord, UnreadableRun, read_record
from treadle.runs.remote_run_reader import after_number, tail
from treadle.runs.replay.event_replay import replay_journal
from treadle.runs.replay.replay_run import Proof, RecordedModel, fork_request, verify_replay
from treadle.runs.response_cache import CachedModel, ResponseCache, is_repeatable
from treadle.runs.run_setup import Blueprint, frame_of, make_loop, open_run
from treadle.runs.run_supervisor import DrivePolicy, Supervisor
from treadle.runs.runners.reconciliation import poll_abandoned, reconcile
from treadle.runs.runners.runner_interface import PlacementFailed, ShuttingDown
from treadle.runs.session_locks import SessionLock, SessionLocks
from treadle.runs.tool_offers import OfferCache

log = logging.getLogger("treadle.runs")

CLAIM_BATCH = 100
POLL_S = 1.0
"""How often `drive_to_end` checks a run that another process drives."""
CANCEL_POLL_S = 0.5
"""How often a process asks the store for cancellation requests for its runs."""
CANCEL_WAIT_S = 5.0
"""How long a cancellation waits for a run of another process to end."""
REMEMBERED_S = 120.0
"""How long an ended run that is not stored can be attached to by its idempotency key, in this process."""


class ClaimFilter(TypedDict, total=False):
    """Filters the runs to claim, see the store's `claim_abandoned`."""

    run_id: str
    background: bool


class Runs:
    """All runs of one process. Fits `RunHost`."""

    def __init__(self, deps: RunDependencies, options: RunsOptions | None = None) -> None:
        self._deps = deps
        self._store = deps.store
        self._clock = deps.clock
        self._ids = deps.ids
        self._metrics = deps.metrics
        self._quotas = deps.quotas
        self._options = options or RunsOptions()
        self._history = ConversationHistory(deps.store)
        self._offers = OfferCache(self._options.offers)
        self._deferred_calls = DeferredCalls(deps.store, deps.clock, deps.ids)
        cache = self._options.cache
        self._cache = None if cache is None else ResponseCache(deps.store, deps.clock, cache)
        self._sessions = SessionLocks(deps.store)
        policy = DrivePolicy(
            owner=self._options.owner,
            seconds=self._options.lease_s,
            is_persistent=self._options.persistence,
            shares_live_events=self._options.shares_live_events and self._options.persistence,
        )
        self._recovery = RunRecovery(deps, self._options.owner, self._sessions)
        self._supervisor = Supervisor(deps.store, deps.clock, deps.metrics, policy, deps.quotas, deps.tracer)
        self._live: dict[str, LiveRun] = {}
        deps.metrics.show("treadle_live_runs", "Runs going on in this process.", lambda: len(self._live))
        lacking = "Abandoned runs that this process leaves to others, because it lacks their tools."
        deps.metrics.show("treadle_runs_without_tool", lacking, lambda: len(self.without_tools))
        self._remembered: dict[str, LiveRun] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._runner = deps.runner
        self._closing = asyncio.Event()
        self._has_capacity = asyncio.Event()
        kept_s = self._options.keep_s if self._options.persistence else self._options.unstored_s
        self._keep_s = {True: kept_s, False: self._options.unstored_s}
        # A background run may take a day. In a protocol with items for approvals a run ends with them, instead of
        # waiting for a person.
        self._default_limits = {
            (defers, background): self._options.limits_of(defers=defers, background=background)
            for defers in (False, True)
            for background in (False, True)
        }

    async def open(self) -> None:
        """Recover the runs of dead processes, then start the heartbeat that renews the leases of this one."""
        await self._recover_abandoned()
        self._tasks = [
            asyncio.create_task(self._heartbeat(), name="treadle-heartbeat"),
            asyncio.create_task(self._poll_cancellations(), name="treadle-cancels"),
        ]
        if self._runner.poll_s is not None:
            looking = poll_abandoned(self._runner.poll_s, self.claim_abandoned, self._has_capacity)
            self._tasks.append(asyncio.create_task(looking, name="treadle-claims"))
        await self._runner.open(self)
        if self._runner.places_runs:
            placing = reconcile(self._runner, self._store, self._live)
            self._tasks.append(asyncio.create_task(placing, name="treadle-reconcile"))

    async def close(self, grace_s: float = 0.0) -> None:
        """Give active runs a grace period to end, then stop them.

        Background runs are handed over to the process that claims them next; all others fail, as nobody cancelled
        them. Nothing is claimed any more.
        """
        self._closing.set()
        closing = asyncio.ensure_future(self._runner.close())
        tasks = [live.task for live in self._live.values() if live.task is not None]
        if tasks and grace_s > 0:
            await asyncio.wait(tasks, timeout=grace_s)
        for live in list(self._live.values()):
            if live.row.background and self._options.persistence:
                live.hand_over()
            else:
                live.cancel(SERVER_STOPPING)
        if tasks := [live.task for live in self._live.values() if live.task is not None]:
            await asyncio.wait(tasks)
        await closing
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def start(
        self,
        request: Request,
        *,
        session_id: str | None = None,
        key_id: str = "",
        limits: Limits | None = None,
        idempotency: Idempotency | None = None,
        instead: RunOverrides = NO_OVERRIDES,
    ) -> RunHandle:
        """Start a run. It continues whether or not its events are read. It is durable when this returns, unless the
        client is answered in one piece: then it becomes durable with its first step, or very soon.

        With the idempotency key of an existing run, return that run; one that failed without effect is tried again.
        Raises: RequestError, StoreError.
        """
        if idempotency is not None:
            idempotency, found = await last_try(self._store, idempotency, key_id)
            if found is not None:
                return await self._attach_again(found, idempotency)
        is_placed = request.background and instead.is_movable and self._is_full()
        if instead.model is None:
            name = request.model or self._options.default_model
            if name == DIRECT_MODEL:
                # Tools can be called without a model by MCP or the library only, never by a model's name.
                raise NotFound(f"no upstream serves the model {name!r}", code="model_not_found", param="model")
            instead = msgspec.structs.replace(instead, model=self._deps.models.model_for(name))
        lock = None if session_id is None else await self._sessions.enter(session_id, key_id)
        try:
            if limits is None:
                defers = self._options.defers_approvals and request.protocol == RESPONSES
                limits = self._default_limits[defers, request.background]
            live = await self._prepare(request, lock, key_id, limits, idempotency, instead)
            await self._quotas.take(live.row, live.entries, request.options.max_output_tokens)
            if self._closing.is_set():
                self._quotas.release(live.row)
                # `close` ends the runs that are driven already, but would miss this one.
                raise StoreError("The server is stopping, and begins no more runs.", code=SERVER_STOPPING.code)
        except BaseException:
            self._sessions.leave(lock)
            raise
        try:
            if is_placed:
                return await self._place(live)
            self._drive(live)
            await live.started
        except asyncio.CancelledError:
            live.cancel()
            raise
        except Conflict as error:
            if idempotency is None or error.info.code != IDEMPOTENCY_KEY_TAKEN:
                raise
            return await self._attach_to_taken(idempotency, key_id)
        return LocalRun(live, live.row.id)

    async def _attach_to_taken(self, idempotency: Idempotency, key_id: str) -> RunHandle:
        """Return the run that another request started under the same key.

        Raises: Conflict.
        """
        found = await self._store.find_idempotent(idempotency.key, key_id=key_id)
        if found is None:
            raise Conflict("The run of this idempotency key was deleted just now.", param="idempotency-key")
        return await self._attach_again(found, idempotency)

    async def _attach_again(self, row: RunRow, idempotency: Idempotency) -> RunHandle:
        """Return the run of an idempotency key.

        Raises: Conflict.
        """
        check_same(row, idempotency)
        handle = self.attach(row)
        if isinstance(handle, RemoteRun) and row.status in ENDED and not await self._store.entries(row.id, limit=1):
            raise Conflict(
                "The run of this idempotency key has ended, and its content was not to be stored.",
                code="idempotency_result_gone",
                param="idempotency-key",
            )
        return handle

    def attach(self, row: RunRow) -> RunHandle:
        """Return a handle of any run: driven here, driven by another process, or ended."""
        live = self._live.get(row.id) or self._remembered.get(row.id)
        return RemoteRun(self._store, row, self.cancel) if live is None else LocalRun(live, row.id, is_attached=True)

    def _is_full(self) -> bool:
        """Return whether a background run that is started now must be driven by another process."""
        return self._options.persistence and (self._runner.places_runs or self._capacity() == 0)

    def _capacity(self) -> int:
        """Return how many more runs this process may claim now."""
        room = self._runner.capacity(sum(live.row.background for live in self._live.values()))
        return CLAIM_BATCH if room is None else min(CLAIM_BATCH, room)

    async def _place(self, live: LiveRun) -> RunHandle:
        """Make a run durable and let the runner place it; if that fails, drive it here."""
        placing = asyncio.create_task(self._store_and_place(live))
        try:
            await asyncio.shield(placing)
        except asyncio.CancelledError:
            live.is_cancelled = True
            raise
        own = self._live.get(live.row.id)
        return (
            RemoteRun(self._store, live.row, self.cancel, is_attached=False)
            if own is None
            else LocalRun(own, own.row.id)
        )

    async def _store_and_place(self, live: LiveRun) -> None:
        run_id = live.row.id
        try:
            await self._supervisor.store_unowned(live)
        finally:
            self._quotas.release(live.row)  # no effect once the run was started
            self._sessions.leave(live.session_lock)
        if live.is_cancelled:
            await self._store.request_cancel(run_id)
        try:
            await self._runner.place(run_id)
        except PlacementFailed as error:
            log.warning("run not placed; it is driven here: %s", error, extra={"run_id": run_id})
            await self._claim(1, run_id=run_id)

    def _drive(self, live: LiveRun) -> None:
        self._live[live.row.id] = live
        live.is_shared = self._supervisor.shares(live.row)
        self._quotas.enter(live.row)
        live.task = asyncio.get_running_loop().create_task(self._run(live), name=live.row.id)

    async def _run(self, live: LiveRun) -> None:
        row = live.row
        try:
            await self._supervisor.run_to_end(live)
        finally:
            if self._live.get(row.id) is live:
                del self._live[row.id]
            self._quotas.leave(row)
            if live.session_lock is not None:
                self._sessions.leave(live.session_lock)
            if row.background:
                # Only background runs take capacity.
                self._has_capacity.set()
            if row.idempotency_key is not None and not row.store and not live.is_lost:
                self._remember(live)

    def _remember(self, live: LiveRun) -> None:
        """Keep an unstored run in memory for a while: its client may not have received its end."""
        self._remembered[live.row.id] = live
        asyncio.get_running_loop().call_later(REMEMBERED_S, self._remembered.pop, live.row.id, None)

    def find_live(self, run_or_response_id: str) -> RunHandle | None:
        """Return the run if it is active in this process."""
        live = self._live.get(run_or_response_id)
        if live is None:
            live = next((run for run in self._live.values() if run.row.response_id == run_or_response_id), None)
        return None if live is None else LocalRun(live, live.row.id, is_attached=True)

    async def replay(self, run_id: str) -> list[Numbered]:
        """Return the events of a run from its journal.

        Raises: NotFound, Damaged.
        """
        return replay_journal(await self._store.entries(run_id))

    async def verify_replay(self, row: RunRow) -> Proof:
        """Replay an ended run from its journal alone, and compare.

        Raises: RequestError for a run that has not ended or whose content is gone.
        """
        record = await self._record(row)
        return await verify_replay(record, await self._store.entries(row.id), self._clock, self._ids)

    async def fork(
        self,
        row: RunRow,
        *,
        round_number: int = 1,
        model: str | None = None,
        allowed: tuple[str, ...] | None = None,
    ) -> RunHandle:
        """Start a run that continues from just before a round of another run, optionally with another model.

        `allowed` narrows the server tools, as in `RunOverrides`.

        Raises: RequestError, StoreError.
        """
        record = await self._record(row)
        entries = await self._store.entries(row.id)
        request = fork_request(record, entries, round_number=round_number, model=model)
        instead = RunOverrides(allowed=allowed)
        return await self.start(self._with_previous(request, record), key_id=row.key_id, instead=instead)

    async def rerun_tools(self, row: RunRow, *, allowed: tuple[str, ...] | None = None) -> RunHandle:
        """Start a run that replays the model's recorded answers but runs the tools again.

        Raises: RequestError, StoreError.
        """
        record = await self._record(row)
        request = fork_request(record, await self._store.entries(row.id))
        instead = RunOverrides(model=RecordedModel(record.steps), allowed=allowed)
        return await self.start(self._with_previous(request, record), key_id=row.key_id, instead=instead)

    def _with_previous(self, request: Request, record: RunRecord) -> Request:
        """Return the request of a fork, which continues the same previous run as the original."""
        return msgspec.structs.replace(request, previous_response_id=record.blueprint.row.previous_id)

    async def _record(self, row: RunRow) -> RunRecord:
        if row.status not in ENDED:
            raise Conflict(f"The run {row.id} is still going on.", param="run")
        before = [] if row.previous_id is None else await read_history(self._store, row.previous_id)
        try:
            return await read_record(self._store, row, before)
        except UnreadableRun as error:
            raise RequestError(str(error), param="run") from error

    async def events(self, run_id: str, after: int = 0) -> AsyncGenerator[list[Numbered], None]:
        """Yield the events of any run that are numbered above `after`, until its end: directly if it is driven here,
        else from the journal.

        Raises: NotFound.
        """
        handle = self.find_live(run_id)
        events = after_number(tail(self._store, run_id), after) if handle is None else handle.events(after)
        async for batch in events:
            yield batch

    async def cancel(self, run_id: str) -> bool:
        """Cancel a run, also in another process, and wait for its end; False if it had ended."""
        handle = self.find_live(run_id)
        if handle is not None:
            await handle.cancel()
            return True
        if not await self._store.request_cancel(run_id):
            return False
        await self._claim(1, run_id=run_id)
        deadline = self._clock.monotonic() + CANCEL_WAIT_S
        while self._clock.monotonic() < deadline:
            row = await self._store.find_run(run_id)
            if row is None or row.status in ENDED:
                break
            await self._store.wait_change(run_id, CANCEL_WAIT_S / 20)
        return True

    async def _prepare(
        self,
        request: Request,
        lock: SessionLock | None,
        key_id: str,
        limits: Limits,
        idempotency: Idempotency | None,
        instead: RunOverrides,
    ) -> LiveRun:
        """Join the conversation, choose the offered tools, and build the loop and the entries of a run."""
        head = None if lock is None else lock.head
        joined = await self._history.join(request, key_id=key_id, previous_run_id=head)
        if request.inherits and joined.previous is not None and joined.previous.request is not None:
            request = inherit(request, msgspec.json.decode(joined.previous.request, type=Request))
        known = (instead.tools or self._deps.tools).tools()
        model_name = request.model or self._options.default_model
        offered = self._offers.make(request, known, model_name, instead.allowed)
        history = (*joined.before, *joined.added)
        carried = None
        if request.approvals or joined.waiting:
            carried = await self._deferred_calls.resume(request.approvals, joined, offered.tools, key_id)
        if carried is not None and carried.has_open_requests:
            # Open approval requests need the content of earlier runs again, even unstored ones.
            joined = msgspec.structs.replace(joined, rejoined=())
        row = self._row(request, joined, None if lock is None else lock.session_id, key_id)
        if idempotency is not None:
            row = msgspec.structs.replace(
                row, idempotency_key=idempotency.key, request_sha256=idempotency.request_sha256
            )
        blueprint = Blueprint(
            row=row,
            request=request,
            frame=frame_of(
                offered,
                limits,
                carried,
                {} if joined.is_messages_only else tainted_before(history, offered.offers, known),
                joined.rejoined,
            ),
            history=history,
            offered=offered,
        )
        assert instead.model is not None, "the model is found first"
        model: Model = instead.model
        cached: CachedModel | None = None
        if self._cache is not None and is_repeatable(request, offered.offers):
            model = cached = CachedModel(model, self._cache, self._ids, key_id, self._metrics.cache_checked)
        ports = ports_of(self._deps, model, blueprint.frame.sources, instead, known)
        loop = make_loop(blueprint, ports, wall_s=limits.wall_s)
        if lock is not None:
            lock.run_id = row.id
        if not joined.is_messages_only:
            log_pairs(row.id, joined.added)
        notes = (*request.notes, *joined.notes, *offered.notes)
        entries, opening = open_run(blueprint, joined.previous, input_entries(joined.added, row), notes, loop)
        return LiveRun(
            row,
            loop,
            joined,
            lock,
            entries,
            opening,
            cache=cached,
            carried=carried,
            # A client that is answered in one piece learns of the run at its end.
            is_private=not (request.surface.stream or request.background or request.protocol == "treadle"),
        )

    def _row(self, request: Request, joined: JoinedHistory, session_id: str | None, key_id: str) -> RunRow:
        now = self._clock.now()
        keep_s = self._keep_s[request.store]
        previous = joined.previous
        row = PROTOCOLS.get(request.protocol)
        response_id = self._ids.new(RESPONSE if row is None else row.answer_prefix)
        return RunRow(
            id=self._ids.new(RUN),
            response_id=response_id if row is None else response_id.replace("_", row.answer_separator, 1),
            conversation_id=previous.conversation_id if previous else self._ids.new(CONVERSATION),
            previous_id=previous.id if previous else None,
            session_id=session_id,
            key_id=key_id,
            protocol=request.protocol,
            model=request.model or self._options.default_model,
            created_at=now,
            store=request.store,
            background=request.background,
            expires_at=None if keep_s is None else now + keep_s,
            request=msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(request, items=(), approvals=()))),
        )

    async def _heartbeat(self) -> None:
        """Renew the leases of the active runs, and recover those of dead processes, forever."""
        while True:
            await self._clock.sleep(self._options.lease_s / 3)
            try:
                await self._renew_leases()
                await self._quotas.maintain()
                await self._recover_abandoned()
            except Exception:  # if the heartbeat stopped, other processes would take over every run of this one
                log.exception("heartbeat failed; it goes on")

    async def _renew_leases(self) -> None:
        """Renew all leases at once; a run that another process has taken over is stopped here."""
        held = [live for live in self._live.values() if live.journal is not None]
        renewals = await asyncio.gather(
            *(live.journal.renew() for live in held if live.journal is not None), return_exceptions=True
        )
        for live, outcome in zip(held, renewals, strict=True):
            if isinstance(outcome, TreadleError) and outcome.info.code == LEASE_LOST:
                live.cancel()

    async def _recover_abandoned(self) -> None:
        """Recover the runs of dead processes, and delete what has expired."""
        try:
            await self.claim_abandoned()
            if left := self.without_tools:
                self._recovery.required_tools.retain(await self._store.abandoned([*left]))
            await self._store.expire(self._clock.now())
        except TreadleError as error:
            log.warning("cannot look after abandoned runs", extra={"code": error.info.code})

    async def claim_abandoned(self) -> list[str]:
        """Claim every run without an owner and recover it; return their ids.

        Raises: StoreError.
        """
        run_ids: list[str] = []
        while not self._closing.is_set() and (room := self._capacity()):
            if self._runner.places_runs:
                claimed = await self._claim(room, background=False)
            else:
                claimed = await self._claim(room)
            if not claimed:
                break
            run_ids += claimed
        return run_ids

    async def recover_owner(self, owner: str) -> None:
        """Recover the runs of a process that is known to be dead, without waiting for its leases to end.

        Raises: StoreError.
        """
        if await self._store.end_leases(owner):
            await self.claim_abandoned()

    async def _claim(self, limit: int, **only: Unpack[ClaimFilter]) -> list[str]:
        """Claim runs without an owner and recover them; return their ids. A run named in `only` is always tried."""
        options = self._options
        besides = () if "run_id" in only else [*self.without_tools]
        claimed = await self._store.claim_abandoned(options.owner, options.lease_s, limit, besides=besides, **only)
        for row, journal in claimed:
            try:
                live = await self._recovery.recover(row, journal)
            except Exception:  # one broken run must not prevent the start of the process or the recovery of others
                log.exception("run cannot be gone on with", extra={"run_id": row.id})
                continue
            if live is not None:
                self._drive(live)
                if self._closing.is_set():
                    live.hand_over()
        return [row.id for row, _ in claimed]

    async def drive_to_end(self, run_id: str) -> Status | None:
        """Drive a run to its end, or wait until another process has; return its status, None if there is no such run.

        Raises: Leaving, StoreError.
        """
        while not self._closing.is_set():
            if run_id not in self._live:
                await self._claim(1, run_id=run_id)
            if run_id in self.without_tools:
                raise ShuttingDown  # a process that has the tools must drive it
            live = self._live.get(run_id)
            if live is not None and live.task is not None:
                await asyncio.wait([live.task])
                continue
            row = await self._store.find_run(run_id)
            if row is None or row.status in ENDED:
                return None if row is None else row.status
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._closing.wait()
        raise ShuttingDown

    @property
    def without_tools(self) -> dict[str, tuple[str, ...]]:
        """Return the abandoned runs that are left to other processes, with the tools that this one lacks."""
        return self._recovery.required_tools.left()

    async def _poll_cancellations(self) -> None:
        """Cancel the runs of this process whose cancellation another process has requested."""
        while True:
            await self._clock.sleep(CANCEL_POLL_S)
            if not self._live:
                continue
            try:
                wanted = await self._store.cancel_requests(self._options.owner)
                rows = [self._live[run_id].row for run_id in wanted if run_id in self._live]
                causes = await why_cancelled(self._store, rows)
            except TreadleError:
                continue
            for run_id, why in causes.items():
                if run_id in self._live:
                    self._live[run_id].cancel(why)
