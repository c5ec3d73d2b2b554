"""Starts runs and finds them again: the one door to a run for server, terminal, library and evals."""

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
from treadle.runs.active_run import FarRun, LiveRun, OwnRun, RunHandle
from treadle.runs.approvals.deferred_calls import Carrier
from treadle.runs.approvals.taint import tainted_before
from treadle.runs.conversation_history import ConversationHistory, JoinedHistory, read_history, write_down
from treadle.runs.dependencies import NOTHING, Instead, RunDependencies, RunsOptions, ports_of
from treadle.runs.history_validation import log_pairs
from treadle.runs.idempotency import Idempotency, check_same, last_try
from treadle.runs.recovery.revive_runs import Reviver
from treadle.runs.recovery.run_record import RunRecord, Unreadable, read_record
from treadle.runs.remote_run_reader import after_number, tail
from treadle.runs.replay.event_replay import tell_all
from treadle.runs.replay.replay_run import Proof, RecordedModel, fork_request, prove
from treadle.runs.response_cache import Answers, CachedModel, is_repeatable
from treadle.runs.run_setup import Blueprint, frame_of, make_loop, open_run
from treadle.runs.run_supervisor import DrivePolicy, Supervisor
from treadle.runs.runners.reconciliation import look, reconcile
from treadle.runs.runners.runner_interface import Leaving, Unplaced
from treadle.runs.session_locks import SessionLock, Sessions
from treadle.runs.tool_offers import Offers

log = logging.getLogger("treadle.runs")

CLAIM_BATCH = 100
SEE_S = 1.0
"""How often a run that is driven elsewhere is looked at by whoever sees to it here."""
CANCEL_POLL_S = 0.5
"""How often a process asks whether somebody elsewhere wants one of its runs cancelled."""
CANCEL_WAIT_S = 5.0
"""How long a cancellation waits for the run that another process drives to end."""
REMEMBERED_S = 120.0
"""How long a run that is not stored can still be attached to by its idempotency key, in this process."""


class Only(TypedDict, total=False):
    """Which runs are claimed: see the store's `claim_abandoned`."""

    run_id: str
    background: bool


class Runs:
    """All runs of one process. Fits `Host` of its runner."""

    def __init__(self, rooms: RunDependencies, options: RunsOptions | None = None) -> None:
        self._rooms = rooms
        self._store = rooms.store
        self._clock = rooms.clock
        self._ids = rooms.ids
        self._metrics = rooms.metrics
        self._tolls = rooms.tolls
        self._options = options or RunsOptions()
        self._history = ConversationHistory(rooms.store)
        self._offers = Offers(self._options.offers)
        self._carrier = Carrier(rooms.store, rooms.clock, rooms.ids)
        cache = self._options.cache
        self._answers = None if cache is None else Answers(rooms.store, rooms.clock, cache)
        self._sessions = Sessions(rooms.store)
        lease = DrivePolicy(
            owner=self._options.owner,
            seconds=self._options.lease_s,
            is_kept=self._options.persistence,
            is_told=self._options.is_told and self._options.persistence,
        )
        self._reviver = Reviver(rooms, self._options.owner, self._sessions)
        self._supervisor = Supervisor(rooms.store, rooms.clock, rooms.metrics, lease, rooms.tolls, rooms.tracer)
        self._live: dict[str, LiveRun] = {}
        rooms.metrics.show("treadle_live_runs", "Runs going on in this process.", lambda: len(self._live))
        lacking = "Abandoned runs that this process leaves to others, because it lacks their tools."
        rooms.metrics.show("treadle_runs_without_tool", lacking, lambda: len(self.without_tools))
        self._remembered: dict[str, LiveRun] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._runner = rooms.runner
        self._leaving = asyncio.Event()
        self._has_room = asyncio.Event()
        kept_s = self._options.keep_s if self._options.persistence else self._options.unstored_s
        self._keep_s = {True: kept_s, False: self._options.unstored_s}
        # One in the background may take a day. Where the protocol has items for approvals a run ends with them, instead
        # of waiting for a person.
        self._usual_limits = {
            (defers, background): self._options.limits_of(defers=defers, background=background)
            for defers in (False, True)
            for background in (False, True)
        }

    async def open(self) -> None:
        """Go on with what a dead process left behind, then keep the leases of this one alive."""
        await self._look_after_others()
        self._tasks = [
            asyncio.create_task(self._beat(), name="treadle-heartbeat"),
            asyncio.create_task(self._heed_cancels(), name="treadle-cancels"),
        ]
        if self._runner.look_s is not None:
            looking = look(self._runner.look_s, self.take_over, self._has_room)
            self._tasks.append(asyncio.create_task(looking, name="treadle-claims"))
        await self._runner.open(self)
        if self._runner.places:
            placing = reconcile(self._runner, self._store, self._live)
            self._tasks.append(asyncio.create_task(placing, name="treadle-reconcile"))

    async def close(self, grace_s: float = 0.0) -> None:
        """Give live runs a while to end by themselves, then stop them properly.

        Background runs are handed over to whoever claims them next; nobody cancelled the others, so they fail. Nothing
        is claimed any more: what this process took now it would only leave again.
        """
        self._leaving.set()
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
        instead: Instead = NOTHING,
    ) -> RunHandle:
        """Start a run. It goes on whether or not anybody reads its events, and is written when this returns, unless
        whoever asked is answered in one piece: then it is with its first step, or very soon.

        With an idempotency key that a run has already, return that run; one that failed for nothing is tried again.
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
                # Who may call tools without a model comes by MCP or the library, never by a model's name.
                raise NotFound(f"no upstream serves the model {name!r}", code="model_not_found", param="model")
            instead = msgspec.structs.replace(instead, model=self._rooms.models.model_for(name))
        seat = None if session_id is None else await self._sessions.enter(session_id, key_id)
        try:
            if limits is None:
                defers = self._options.defers and request.protocol == RESPONSES
                limits = self._usual_limits[defers, request.background]
            live = await self._prepare(request, seat, key_id, limits, idempotency, instead)
            await self._tolls.take(live.row, live.entries, request.options.max_output_tokens)
            if self._leaving.is_set():
                self._tolls.give_back(live.row)
                # Nobody would see it through; what is driven is seen to by `close`.
                raise StoreError("The server is stopping, and begins no more runs.", code=SERVER_STOPPING.code)
        except BaseException:
            self._sessions.leave(seat)
            raise
        try:
            if is_placed:
                return await self._place(live)
            self._drive(live)
            await live.begun
        except asyncio.CancelledError:
            live.cancel()
            raise
        except Conflict as error:
            if idempotency is None or error.info.code != IDEMPOTENCY_KEY_TAKEN:
                raise
            return await self._attach_to_taken(idempotency, key_id)
        return OwnRun(live, live.row.id)

    async def _attach_to_taken(self, idempotency: Idempotency, key_id: str) -> RunHandle:
        """Return the run that was begun under the same key meanwhile.

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
        if isinstance(handle, FarRun) and row.status in ENDED and not await self._store.entries(row.id, limit=1):
            raise Conflict(
                "The run of this idempotency key has ended, and its content was not to be stored.",
                code="idempotency_result_gone",
                param="idempotency-key",
            )
        return handle

    def attach(self, row: RunRow) -> RunHandle:
        """Return a handle of any run: driven here, driven elsewhere, or ended."""
        live = self._live.get(row.id) or self._remembered.get(row.id)
        return FarRun(self._store, row, self.cancel) if live is None else OwnRun(live, row.id, is_attached=True)

    def _is_full(self) -> bool:
        """Tell whether a run in the background that is taken in now is driven by somebody else."""
        return self._options.persistence and (self._runner.places or self._room() == 0)

    def _room(self) -> int:
        """Return how many runs this process may take now."""
        room = self._runner.room(sum(live.row.background for live in self._live.values()))
        return CLAIM_BATCH if room is None else min(CLAIM_BATCH, room)

    async def _place(self, live: LiveRun) -> RunHandle:
        """Make a run durable and let the runner find somebody who drives it; where it cannot, that is this process."""
        placing = asyncio.create_task(self._lay_down(live))
        try:
            await asyncio.shield(placing)
        except asyncio.CancelledError:
            live.is_cancelled = True
            raise
        own = self._live.get(live.row.id)
        return FarRun(self._store, live.row, self.cancel, is_attached=False) if own is None else OwnRun(own, own.row.id)

    async def _lay_down(self, live: LiveRun) -> None:
        run_id = live.row.id
        try:
            await self._supervisor.lay_down(live)
        finally:
            self._tolls.give_back(live.row)  # without effect once it has begun
            self._sessions.leave(live.seat)
        if live.is_cancelled:
            await self._store.request_cancel(run_id)
        try:
            await self._runner.place(run_id)
        except Unplaced as error:
            log.warning("run not placed; it is driven here: %s", error, extra={"run_id": run_id})
            await self._claim(1, run_id=run_id)

    def _drive(self, live: LiveRun) -> None:
        self._live[live.row.id] = live
        live.is_shared = self._supervisor.shares(live.row)
        self._tolls.enter(live.row)
        live.task = asyncio.get_running_loop().create_task(self._run(live), name=live.row.id)

    async def _run(self, live: LiveRun) -> None:
        row = live.row
        try:
            await self._supervisor.see_through(live)
        finally:
            if self._live.get(row.id) is live:
                del self._live[row.id]
            self._tolls.leave(row)
            if live.seat is not None:
                self._sessions.leave(live.seat)
            if row.background:
                # Only these take room: whoever waits for some need not look after every other run.
                self._has_room.set()
            if row.idempotency_key is not None and not row.store and not live.is_lost:
                self._remember(live)

    def _remember(self, live: LiveRun) -> None:
        """Keep an unstored run in memory for a while: its client may not have heard its end."""
        self._remembered[live.row.id] = live
        asyncio.get_running_loop().call_later(REMEMBERED_S, self._remembered.pop, live.row.id, None)

    def find_live(self, run_or_response_id: str) -> RunHandle | None:
        """Return the run if it is going on in this process."""
        live = self._live.get(run_or_response_id)
        if live is None:
            live = next((run for run in self._live.values() if run.row.response_id == run_or_response_id), None)
        return None if live is None else OwnRun(live, live.row.id, is_attached=True)

    async def replay(self, run_id: str) -> list[Numbered]:
        """Return the events of a run from its journal.

        Raises: NotFound, Damaged.
        """
        return tell_all(await self._store.entries(run_id))

    async def prove(self, row: RunRow) -> Proof:
        """Drive an ended run again from its journal alone, and compare.

        Raises: RequestError for a run that has not ended or whose content is gone.
        """
        record = await self._record(row)
        return await prove(record, await self._store.entries(row.id), self._clock, self._ids)

    async def fork(
        self,
        row: RunRow,
        *,
        round_number: int = 1,
        model: str | None = None,
        allowed: tuple[str, ...] | None = None,
    ) -> RunHandle:
        """Start a run that goes on from just before a round of another one, perhaps with another model.

        `allowed` narrows the server tools, as in `Instead`.

        Raises: RequestError, StoreError.
        """
        record = await self._record(row)
        entries = await self._store.entries(row.id)
        request = fork_request(record, entries, round_number=round_number, model=model)
        instead = Instead(allowed=allowed)
        return await self.start(self._continuing(request, record), key_id=row.key_id, instead=instead)

    async def run_tools_again(self, row: RunRow, *, allowed: tuple[str, ...] | None = None) -> RunHandle:
        """Start a run in which the model says what it said, and the tools really run.

        Raises: RequestError, StoreError.
        """
        record = await self._record(row)
        request = fork_request(record, await self._store.entries(row.id))
        instead = Instead(model=RecordedModel(record.past), allowed=allowed)
        return await self.start(self._continuing(request, record), key_id=row.key_id, instead=instead)

    def _continuing(self, request: Request, record: RunRecord) -> Request:
        """Let a fork continue what the first run continued."""
        return msgspec.structs.replace(request, previous_response_id=record.blueprint.row.previous_id)

    async def _record(self, row: RunRow) -> RunRecord:
        if row.status not in ENDED:
            raise Conflict(f"The run {row.id} is still going on.", param="run")
        before = [] if row.previous_id is None else await read_history(self._store, row.previous_id)
        try:
            return await read_record(self._store, row, before)
        except Unreadable as error:
            raise RequestError(str(error), param="run") from error

    async def events(self, run_id: str, after: int = 0) -> AsyncGenerator[list[Numbered], None]:
        """Yield the events of any run that are numbered above `after`, until its end: live as they happen here, else
        as they come into the journal.

        Raises: NotFound.
        """
        handle = self.find_live(run_id)
        events = after_number(tail(self._store, run_id), after) if handle is None else handle.events(after)
        async for batch in events:
            yield batch

    async def cancel(self, run_id: str) -> bool:
        """Cancel a run wherever it is driven, and wait for its end; False if it had ended."""
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
        seat: SessionLock | None,
        key_id: str,
        limits: Limits,
        idempotency: Idempotency | None,
        instead: Instead,
    ) -> LiveRun:
        """Join the conversation, make the offers, and lay out what becomes durable together."""
        head = None if seat is None else seat.head
        joined = await self._history.join(request, key_id=key_id, previous_run_id=head)
        if request.inherits and joined.previous is not None and joined.previous.request is not None:
            request = inherit(request, msgspec.json.decode(joined.previous.request, type=Request))
        known = (instead.tools or self._rooms.tools).tools()
        model_name = request.model or self._options.default_model
        offered = self._offers.make(request, known, model_name, instead.allowed)
        history = (*joined.before, *joined.added)
        carried = None
        if request.approvals or joined.waiting:
            carried = await self._carrier.take_up(request.approvals, joined, offered.tools, key_id)
        if carried is not None and carried.is_left:
            # What is still asked about is needed again, whoever was not to store it.
            joined = msgspec.structs.replace(joined, rejoined=())
        row = self._row(request, joined, None if seat is None else seat.session_id, key_id)
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
                {} if joined.is_talk else tainted_before(history, offered.offers, known),
                joined.rejoined,
            ),
            history=history,
            offered=offered,
        )
        assert instead.model is not None, "the model is found first"
        model: Model = instead.model
        cached: CachedModel | None = None
        if self._answers is not None and is_repeatable(request, offered.offers):
            model = cached = CachedModel(model, self._answers, self._ids, key_id, self._metrics.cache_looked)
        ports = ports_of(self._rooms, model, blueprint.frame.sources, instead, known)
        loop = make_loop(blueprint, ports, wall_s=limits.wall_s)
        if seat is not None:
            seat.run_id = row.id
        if not joined.is_talk:
            log_pairs(row.id, joined.added)
        notes = (*request.notes, *joined.notes, *offered.notes)
        entries, opening = open_run(blueprint, joined.previous, write_down(joined.added, row), notes, loop)
        return LiveRun(
            row,
            loop,
            joined,
            seat,
            entries,
            opening,
            cache=cached,
            carried=carried,
            # Whoever is answered in one piece hears of the run with its end.
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

    async def _beat(self) -> None:
        """Keep the leases of the live runs and look after those of others, for as long as the process lives."""
        while True:
            await self._clock.sleep(self._options.lease_s / 3)
            try:
                await self._renew_leases()
                await self._tolls.tend()
                await self._look_after_others()
            except Exception:  # without its heart beating every run of this process would be taken over
                log.exception("heartbeat failed; it goes on")

    async def _renew_leases(self) -> None:
        """Renew all leases at once; a run that was taken over is stopped here."""
        held = [live for live in self._live.values() if live.journal is not None]
        renewals = await asyncio.gather(
            *(live.journal.renew() for live in held if live.journal is not None), return_exceptions=True
        )
        for live, outcome in zip(held, renewals, strict=True):
            if isinstance(outcome, TreadleError) and outcome.info.code == LEASE_LOST:
                live.cancel()

    async def _look_after_others(self) -> None:
        """Go on with the runs of processes that died, and forget what is past its time."""
        try:
            await self.take_over()
            if left := self.without_tools:
                self._reviver.needs.keep(await self._store.abandoned([*left]))
            await self._store.expire(self._clock.now())
        except TreadleError as error:
            log.warning("cannot look after abandoned runs", extra={"code": error.info.code})

    async def take_over(self) -> list[str]:
        """Claim every run that was left without an owner and go on with it; return their ids.

        Raises: StoreError.
        """
        taken: list[str] = []
        while not self._leaving.is_set() and (room := self._room()):
            if self._runner.places:
                claimed = await self._claim(room, background=False)
            else:
                claimed = await self._claim(room)
            if not claimed:
                break
            taken += claimed
        return taken

    async def bury(self, owner: str) -> None:
        """Go on with the runs of a process that is known to be dead, without waiting for its leases.

        Raises: StoreError.
        """
        if await self._store.end_leases(owner):
            await self.take_over()

    async def _claim(self, limit: int, **only: Unpack[Only]) -> list[str]:
        """Claim runs that have no owner and go on with them; return their ids. One that is named is looked at again."""
        options = self._options
        besides = () if "run_id" in only else [*self.without_tools]
        claimed = await self._store.claim_abandoned(options.owner, options.lease_s, limit, besides=besides, **only)
        for row, journal in claimed:
            try:
                live = await self._reviver.revive(row, journal)
            except Exception:  # one run must not keep a process from starting, nor the others from going on
                log.exception("run cannot be gone on with", extra={"run_id": row.id})
                continue
            if live is not None:
                self._drive(live)
                if self._leaving.is_set():
                    live.hand_over()
        return [row.id for row, _ in claimed]

    async def see_to(self, run_id: str) -> Status | None:
        """Drive a run to its end, or wait for whoever does; return how it ended, None if there is no such run.

        Raises: Leaving, StoreError.
        """
        while not self._leaving.is_set():
            if run_id not in self._live:
                await self._claim(1, run_id=run_id)
            if run_id in self.without_tools:
                raise Leaving  # another process must see to it
            live = self._live.get(run_id)
            if live is not None and live.task is not None:
                await asyncio.wait([live.task])
                continue
            row = await self._store.find_run(run_id)
            if row is None or row.status in ENDED:
                return None if row is None else row.status
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SEE_S):
                    await self._leaving.wait()
        raise Leaving

    @property
    def without_tools(self) -> dict[str, tuple[str, ...]]:
        """Return the abandoned runs that are left to other processes, with the tools that are lacking here."""
        return self._reviver.needs.left()

    async def _heed_cancels(self) -> None:
        """Cancel the runs of this process that somebody elsewhere wants cancelled."""
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
