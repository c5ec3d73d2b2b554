"""Starts runs and finds them again: the one door to a run for server, terminal, library and evals."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec

from treadle.canon.errors import ErrorInfo, TreadleError
from treadle.canon.events import ENDED, Noted, Numbered, RunEnded, RunEvent, RunStarted
from treadle.canon.ids import COMPLETION, CONVERSATION, MESSAGE, RESPONSE, RUN, IdSource
from treadle.canon.items import text_message
from treadle.canon.messages import Entry, entry_of_item
from treadle.canon.plan import Planner
from treadle.canon.request import Note, Request, inherit
from treadle.canon.tools import CallContext, ServerTool
from treadle.engine.limits import GATEWAY_LIMITS, Limits
from treadle.engine.loop import Loop, Ports
from treadle.engine.ports import Approver, Clock, Model, Toolbox
from treadle.engine.turn import Turn
from treadle.runs.approvals import DenyAll
from treadle.runs.history import History, Joined
from treadle.runs.live import LiveRun, RunHandle
from treadle.runs.offers import Offered, OfferRules, make_offers
from treadle.runs.recovery import close_abandoned
from treadle.runs.replay import Teller, after_number, tell_all
from treadle.runs.sessions import Seat, Sessions
from treadle.runs.supervisor import Lease, Supervisor
from treadle.store.journal import LEASE_LOST, RunRow, Store
from treadle.telemetry import Metrics

log = logging.getLogger("treadle.runs")

STOPPING = ErrorInfo(
    code="server_stopping",
    message="The answer was cut off: the server is stopping.",
    status=503,
    retryable=True,
    retry_after_s=1.0,
)
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
        self._sessions = Sessions(rooms.store)
        lease = Lease(owner=self._options.owner, seconds=self._options.lease_s, is_kept=self._options.persistence)
        self._supervisor = Supervisor(rooms.store, rooms.clock, rooms.metrics, lease)
        self._live: dict[str, LiveRun] = {}
        self._heart: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Close what a dead process left behind, then keep the leases of this one alive."""
        await self._look_after_others()
        self._heart = asyncio.create_task(self._beat(), name="treadle-heartbeat")

    async def close(self, grace_s: float = 0.0) -> None:
        """Give live runs a while to end by themselves, then end them properly: nobody cancelled them, so they fail."""
        tasks = [live.task for live in self._live.values() if live.task is not None]
        if tasks and grace_s > 0:
            await asyncio.wait(tasks, timeout=grace_s)
        for live in list(self._live.values()):
            live.cancel(STOPPING)
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
        seat = None if session_id is None else await self._sessions.enter(session_id, key_id)
        try:
            live = await self._prepare(request, model, seat, key_id, limits or self._options.limits)
        except BaseException:
            self._sessions.leave(seat)
            raise
        self._live[live.row.id] = live
        live.task = asyncio.create_task(self._run(live), name=live.row.id)
        try:
            await asyncio.shield(live.begun)
        except asyncio.CancelledError:
            live.cancel()
            raise
        return RunHandle(live)

    async def _run(self, live: LiveRun) -> None:
        self._metrics.live_runs.inc()
        try:
            await self._supervisor.see_through(live)
        finally:
            self._metrics.live_runs.dec()
            self._live.pop(live.row.id, None)
            self._sessions.leave(live.seat)

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
            if any(isinstance(numbered.event, RunEnded) for numbered in told):
                return
            if ended := await self._forgotten(run_id):
                yield ended
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

    async def _forgotten(self, run_id: str) -> list[Numbered]:
        """Return the end of a run whose content is gone already, from what is left of it."""
        row = await self._store.find_run(run_id)
        if row is None:
            return [Numbered(event=RunEnded(status="cancelled"))]
        if row.status not in ENDED or await self._store.entries(run_id, limit=1):
            return []
        ended = RunEnded(
            status=row.status,
            usage=row.usage,
            limit=row.limit,
            error=row.error,
            rounds=row.rounds,
            calls=row.calls,
            ended_at=row.ended_at or 0.0,
        )
        return [Numbered(event=ended)]

    async def _prepare(self, request: Request, model: Model, seat: Seat | None, key_id: str, limits: Limits) -> LiveRun:
        """Join the conversation, make the offers, and lay out what becomes durable together."""
        head = None if seat is None else seat.head
        joined = await self._history.join(request, key_id=key_id, previous_run_id=head)
        if request.inherits and joined.previous is not None and joined.previous.request is not None:
            request = inherit(request, msgspec.json.decode(joined.previous.request, type=Request))
        offered = make_offers(request, self._rooms.tools.tools(), self._options.offers)
        row = self._row(request, joined, None if seat is None else seat.session_id, key_id)
        live = LiveRun(row, self._loop(request, joined, offered, model, row, limits), joined, seat)
        self._lay_out(live, (*request.notes, *joined.notes, *offered.notes))
        return live

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
            expires_at=None if request.store and self._options.persistence else now + self._options.unstored_s,
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

    def _lay_out(self, live: LiveRun, notes: tuple[Note, ...]) -> None:
        """Write down how the run begins: that it does, its input, what was noted, its first plan."""
        row, previous = live.row, live.joined.previous
        started = RunStarted(
            run_id=row.id,
            response_id=row.response_id,
            model=row.model,
            created_at=row.created_at,
            previous_response_id=previous.response_id if previous else None,
        )
        at = row.created_at
        entries = [Entry(kind="status", content="running", data=_raw(started), at=at)]
        events: list[RunEvent] = [started]
        entries.extend(entry_of_item(item, at=at, is_input=True) for item in live.joined.added)
        for note in notes:
            entries.append(Entry(kind="note", content=note.message, data=_raw(note), at=at))
            events.append(Noted(note=note))
        for event, entry in live.loop.begin():
            assert event is not None
            assert entry is not None
            entries.append(entry)
            events.append(event)
        numbers = [n for n, entry in enumerate(entries, 1) if not entry.is_input]
        live.entries = entries
        live.opening = [Numbered(event=event, seq=seq) for event, seq in zip(events, numbers, strict=True)]

    async def _beat(self) -> None:
        """Keep the leases of the live runs and look after those of others, for as long as the process lives."""
        while True:
            await self._clock.sleep(self._options.lease_s / 3)
            try:
                await self._renew_leases()
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
        """Close the runs of processes that died, and forget what is past its time."""
        try:
            await close_abandoned(self._store, self._clock, self._options.owner, self._options.lease_s)
            await self._store.expire(self._clock.now())
        except TreadleError as error:
            log.warning("cannot look after abandoned runs", extra={"code": error.info.code})


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
