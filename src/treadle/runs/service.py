"""Starts runs, supervises them, and finds them again: the one door to a run for server, terminal, library and evals."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec

from treadle.canon.errors import Conflict, ErrorInfo, NotFound, StoreError, TreadleError
from treadle.canon.events import (
    ENDED,
    Noted,
    Numbered,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    ToolFinished,
)
from treadle.canon.ids import COMPLETION, CONVERSATION, MESSAGE, RESPONSE, RUN, IdSource
from treadle.canon.items import text_message
from treadle.canon.messages import Entry, entry_of_item
from treadle.canon.plan import Planner
from treadle.canon.request import Note, Request, inherit
from treadle.canon.tools import CallContext, ServerTool
from treadle.engine.limits import GATEWAY_LIMITS, Limits
from treadle.engine.loop import Loop, Ports, wait_out
from treadle.engine.ports import Approver, Clock, Model, Toolbox
from treadle.engine.turn import Turn
from treadle.runs.approvals import DenyAll
from treadle.runs.history import History, Joined
from treadle.runs.live import LiveRun, RunHandle
from treadle.runs.offers import Offered, OfferRules, make_offers
from treadle.runs.recovery import close_abandoned
from treadle.runs.replay import Teller, after_number, tell_all
from treadle.store.journal import LEASE_LOST, RunRow, Store
from treadle.telemetry import Metrics

log = logging.getLogger("treadle.runs")

POLL_S = 0.25
"""How often the journal of a run that another process drives is looked at."""

_RESPONSE_PREFIX = {"chat": COMPLETION, "messages": MESSAGE}


class Models(Protocol):
    """Finds the model that answers to a name."""

    def model_for(self, name: str) -> Model:
        """Return the model.

        Raises: NotFound, naming what there is.
        """
        ...


class Tools(Protocol):
    """The server tools of this process."""

    def tools(self) -> Sequence[ServerTool]:
        """Return the enabled tools in a stable order."""
        ...


class RunsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How runs are made here."""

    owner: str = "treadle"
    persistence: bool = True
    default_model: str = ""
    limits: Limits = GATEWAY_LIMITS
    offers: OfferRules = OfferRules()
    lease_s: float = 15.0
    unstored_s: float = 3600.0


class Rooms(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of a process are made with."""

    store: Store
    models: Models
    tools: Tools
    toolbox: Toolbox
    clock: Clock
    ids: IdSource
    metrics: Metrics
    approver: Approver = DenyAll()


class Runs:
    """All runs of one process."""

    def __init__(self, rooms: Rooms, options: RunsOptions | None = None) -> None:
        self._rooms = rooms
        self._store = rooms.store
        self._clock = rooms.clock
        self._ids = rooms.ids
        self._metrics = rooms.metrics
        self._options = options or RunsOptions()
        self._history = History(rooms.store, rooms.ids)
        self._live: dict[str, LiveRun] = {}
        self._heart: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Close what a dead process left behind, then keep the leases of this one alive."""
        await self._close_abandoned()
        await self._store.expire(self._clock.now())
        self._heart = asyncio.create_task(self._beat(), name="treadle-heartbeat")

    async def close(self, grace_s: float = 0.0) -> None:
        """Give live runs a while to end by themselves, then end them properly."""
        tasks = [live.task for live in self._live.values() if live.task is not None]
        if tasks and grace_s > 0:
            await asyncio.wait(tasks, timeout=grace_s)
        for live in list(self._live.values()):
            live.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.wait([self._heart])

    async def start(
        self, request: Request, *, session_id: str | None = None, key_id: str = "", limits: Limits | None = None
    ) -> RunHandle:
        """Start a run; it is durable when this returns, and goes on whether or not anybody reads its events.

        Raises: RequestError, StoreError.
        """
        model = self._rooms.models.model_for(request.model or self._options.default_model)
        head = await self._session_head(session_id, key_id)
        joined = await self._history.join(request, key_id=key_id, previous_run_id=head)
        if request.inherits and joined.previous is not None and joined.previous.request is not None:
            request = inherit(request, msgspec.json.decode(joined.previous.request, type=Request))
        offered = make_offers(request, self._rooms.tools.tools(), self._options.offers)
        row = self._row(request, joined, session_id, key_id)
        loop = self._loop(request, joined, offered, model, row, limits or self._options.limits)
        live = self._prepare(row, loop, joined, (*request.notes, *joined.notes, *offered.notes))
        self._live[row.id] = live
        self._metrics.live_runs.inc()
        live.task = asyncio.create_task(self._supervise(live, joined), name=row.id)
        try:
            await asyncio.shield(live.begun)
        except asyncio.CancelledError:
            live.cancel()
            raise
        return RunHandle(live)

    def find_live(self, run_or_response_id: str) -> RunHandle | None:
        """Return the run if it is going on in this process."""
        live = self._live.get(run_or_response_id)
        if live is None:
            live = next((run for run in self._live.values() if run.row.response_id == run_or_response_id), None)
        return None if live is None else RunHandle(live)

    async def replay(self, run_id: str) -> list[Numbered]:
        """Return the events of a run from its journal.

        Raises: NotFound.
        """
        return tell_all(await self._store.entries(run_id))

    async def events(self, run_id: str, after: int = 0) -> AsyncGenerator[list[Numbered], None]:
        """Yield the events of any run until its end: live as they happen here, else as they come into the journal.

        Raises: NotFound.
        """
        handle = self.find_live(run_id)
        if handle is not None:
            async for batch in handle.events(after):
                yield batch
            return
        teller, seen = Teller(), 0
        while True:
            entries = await self._store.entries(run_id, after=seen)
            told = [numbered for entry in entries for numbered in teller.tell(entry)]
            if fresh := after_number(told, after):
                yield fresh
            if any(isinstance(numbered.event, RunEnded) for numbered in told) or await self._is_over(run_id):
                return
            seen = entries[-1].seq if entries else seen
            await self._clock.sleep(POLL_S)

    async def cancel(self, run_id: str) -> bool:
        """Cancel a live run; False if it is not live here."""
        handle = self.find_live(run_id)
        if handle is None:
            return False
        await handle.cancel()
        return True

    async def _is_over(self, run_id: str) -> bool:
        """Tell whether nothing more can come: the run has ended, and its content may be gone already."""
        row = await self._store.find_run(run_id)
        return row is None or (row.status in ENDED and not await self._store.entries(run_id, limit=1))

    async def _session_head(self, session_id: str | None, key_id: str) -> str | None:
        if session_id is None:
            return None
        for live in list(self._live.values()):
            if live.row.session_id == session_id and live.row.key_id == key_id and live.task is not None:
                if not live.is_over:
                    raise Conflict(f"A run of session {session_id!r} is still going on.", param="session")
                await asyncio.wait([live.task])
        session = await self._store.find_session(session_id, key_id=key_id)
        if session is None:
            raise NotFound(f"No session {session_id!r}.", param="session")
        return session.head_run_id

    def _row(self, request: Request, joined: Joined, session_id: str | None, key_id: str) -> RunRow:
        now = self._clock.now()
        previous = joined.previous
        response_id = self._ids.new(_RESPONSE_PREFIX.get(request.protocol, RESPONSE))
        return RunRow(
            id=self._ids.new(RUN),
            response_id=response_id.replace("_", "-", 1) if request.protocol == "chat" else response_id,
            conversation_id=previous.conversation_id if previous else self._ids.new(CONVERSATION),
            previous_id=previous.id if previous else None,
            session_id=session_id,
            key_id=key_id,
            protocol=request.protocol,
            model=request.model or self._options.default_model,
            created_at=now,
            store=request.store,
            background=request.background,
            expires_at=None if request.store else now + self._options.unstored_s,
            request=msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(request, items=()))),
        )

    def _loop(
        self, request: Request, joined: Joined, offered: Offered, model: Model, row: RunRow, limits: Limits
    ) -> Loop:
        specs = tuple(offer.spec for offer in offered.offers.values())
        planner = Planner(row.model, specs, request.options, is_strict=request.strict_fidelity)
        if request.instructions:
            planner.add([text_message("system", request.instructions)])
        planner.add([*joined.before, *joined.added])
        turn = Turn(
            planner,
            offered.offers,
            choice=offered.choice,
            limits=limits,
            ids=self._ids,
            max_tool_calls=request.max_tool_calls,
        )
        rooms = self._rooms
        ports = Ports(model=model, toolbox=rooms.toolbox, clock=rooms.clock, approver=rooms.approver, ids=rooms.ids)
        context = CallContext(run_id=row.id, session_id=row.session_id)
        return Loop(turn, ports, context, limits.wall_s, limits.final_answer_s)

    def _prepare(self, row: RunRow, loop: Loop, joined: Joined, notes: tuple[Note, ...]) -> LiveRun:
        """Lay out what becomes durable with the run itself: that it began, its input, its first plan."""
        started = RunStarted(
            run_id=row.id,
            response_id=row.response_id,
            model=row.model,
            created_at=row.created_at,
            previous_response_id=joined.previous.response_id if joined.previous else None,
        )
        at = row.created_at
        entries = [Entry(kind="status", content="running", data=_raw(started), at=at)]
        events: list[RunEvent] = [started]
        entries.extend(entry_of_item(item, at=at, is_input=True) for item in joined.added)
        for note in notes:
            entries.append(Entry(kind="note", content=note.message, data=_raw(note), at=at))
            events.append(Noted(note=note))
        for event, entry in loop.begin():
            assert event is not None
            assert entry is not None
            entries.append(entry)
            events.append(event)
        numbers = [n for n, entry in enumerate(entries, 1) if not entry.is_input]
        opening = [Numbered(event=event, seq=seq) for event, seq in zip(events, numbers, strict=True)]
        return LiveRun(row, loop, entries, opening)

    async def _supervise(self, live: LiveRun, joined: Joined) -> None:
        """Run one run to its end, whatever happens to it."""
        live.is_entered = True
        try:
            if not await self._begin(live):
                return
            live.ended = await self._drive(live)
            await self._after(live, joined, live.ended)
        finally:
            if live.ended is None:
                live.ended = RunEnded(status="failed", error=_INTERNAL)
            self._live.pop(live.row.id, None)
            self._metrics.live_runs.dec()
            live.feed.close()

    async def _begin(self, live: LiveRun) -> bool:
        """Make the run durable; False if that failed, which the starter then hears of."""
        options = self._options
        start = asyncio.ensure_future(
            self._store.start_run(live.row, live.entries, owner=options.owner, lease_s=options.lease_s)
        )
        if await wait_out(start) is not None:
            live.is_cancelled = True
        error = start.exception()
        if error is not None:
            live.ended = RunEnded(status="failed", error=error.info if isinstance(error, TreadleError) else _INTERNAL)
            live.begun.set_exception(error)
            return False
        live.journal = start.result()
        self._publish(live, live.opening)
        if not live.begun.done():
            live.begun.set_result(None)
        return True

    async def _drive(self, live: LiveRun) -> RunEnded:
        def publish(batch: list[Numbered]) -> None:
            self._publish(live, batch)

        try:
            if live.is_cancelled:
                live.loop.attach(live, publish)
                return await live.loop.abort()
            return await live.loop.run(live, publish)
        except asyncio.CancelledError:
            return await self._abort(live, None)
        except StoreError as error:
            return self._lost(live, error)
        except Exception:  # the supervisor: a bug ends one run, not the process
            log.exception("run failed by a bug", extra={"run_id": live.row.id})
            return await self._abort(live, _INTERNAL)

    async def _abort(self, live: LiveRun, error: ErrorInfo | None) -> RunEnded:
        try:
            return await live.loop.abort(error)
        except StoreError as problem:
            return self._lost(live, problem)

    def _lost(self, live: LiveRun, error: StoreError) -> RunEnded:
        """Tell the end of a run that cannot be journalled any more; whoever takes it over writes the real one."""
        log.error("run lost its journal", extra={"run_id": live.row.id, "code": error.info.code})
        ended = RunEnded(status="failed", error=error.info, ended_at=self._clock.now())
        self._publish(live, [Numbered(event=ended)])
        return ended

    async def _after(self, live: LiveRun, joined: Joined, ended: RunEnded) -> None:
        """Do what the end of a run allows: move the session on, and forget what was not to be stored."""
        row = live.row
        try:
            if row.session_id is not None and ended.status in ("completed", "requires_action", "incomplete"):
                await self._store.set_session_head(row.session_id, row.id, expected=row.previous_id)
            for mixed in joined.rejoined:
                if not mixed.store:
                    await self._store.purge_run(mixed.id)
            if ended.status == "requires_action" and ended.calls:
                return
            if not self._options.persistence:
                await self._store.delete_run(row.id)
            elif not row.store:
                await self._store.purge_run(row.id)
        except TreadleError as error:
            log.warning("run ended, but not tidied up", extra={"run_id": row.id, "code": error.info.code})

    def _publish(self, live: LiveRun, batch: list[Numbered]) -> None:
        for numbered in batch:
            self._metrics.observe(numbered.event, live.row.protocol)
            _log_event(live.row, numbered.event)
            if isinstance(numbered.event, Noted):
                live.notes.append(numbered.event.note)
            live.is_over = live.is_over or isinstance(numbered.event, RunEnded)
        live.feed.publish(batch)

    async def _beat(self) -> None:
        """Keep the leases of the live runs, stop what was taken over, and close what other processes left behind."""
        while True:
            await self._clock.sleep(self._options.lease_s / 3)
            for live in list(self._live.values()):
                if live.journal is None:
                    continue
                try:
                    await live.journal.renew()
                except TreadleError as error:
                    if error.info.code == LEASE_LOST:
                        live.cancel()
            try:
                await self._close_abandoned()
            except TreadleError as error:
                log.warning("cannot look for abandoned runs", extra={"code": error.info.code})

    async def _close_abandoned(self) -> None:
        closed = await close_abandoned(self._store, self._clock, self._options.owner, self._options.lease_s)
        for run_id in closed:
            log.warning("run closed after its process died", extra={"run_id": run_id})


_INTERNAL = ErrorInfo(code="internal_error", message="Treadle failed; the log says why.", status=500)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _log_event(row: RunRow, event: RunEvent) -> None:
    """Log names and sizes, never arguments or results."""
    match event:
        case ToolFinished():
            log.info(
                "tool %s: %s",
                event.call.name,
                event.result.rc,
                extra={
                    "run_id": row.id,
                    "tool_name": event.call.name,
                    "tool_call_id": event.call.call_id,
                    "rc": event.result.rc,
                    "duration_s": round(event.duration_s, 6),
                    "output_bytes": event.output_bytes,
                },
            )
        case RoundStarted():
            log.debug("round", extra={"run_id": row.id, "iteration": event.round, "plan": event.fingerprint})
        case Noted():
            log.debug("%s", event.note.message, extra={"run_id": row.id, "note": event.note.code})
        case RunEnded():
            log.info("run %s", event.status, extra={"run_id": row.id, "model": row.model, "limit": event.limit})
        case _:
            pass
