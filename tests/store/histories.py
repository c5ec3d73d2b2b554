"""Random histories of a store, made by the real runs room: questions, approvals, forks, cancellations, take-overs,
deletions. Only the model, the tools and the clock are made up.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from treadle.core.errors import Conflict, RequestError, StoreError, UpstreamTimeout
from treadle.core.events import ENDED, ModelEvent
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem, MessageItem, text_message, text_of, text_result
from treadle.core.plan import Plan
from treadle.core.request import Assent, Options, Request
from treadle.core.tool_definitions import CallContext, Outcome, ServerTool, ToolPolicy, ToolSpec
from treadle.engine.limits import GATEWAY_LIMITS, Limits
from treadle.journal.journal_interface import RunRow, SessionRow, Store
from treadle.runs import RunDependencies, Runs, RunsOptions
from treadle.runs.active_run import RunHandle
from treadle.runs.approvals.decisions import Answer, Approvals
from treadle.runs.approvals.durable_approver import DurableApprover
from treadle.runs.run_service import CANCEL_POLL_S
from treadle.telemetry import Metrics
from unit.engine.fakes import ask_for, call, say
from unit.runs.test_run_service import QuietClock

DEFER = Limits(approvals="defer")
OWNERS = ("owner_a", "owner_b")
CLIENT_TOOL = ToolSpec(name="theirs")
TOOLS = (
    ServerTool(spec=ToolSpec(name="look"), policy=ToolPolicy(effect="read", parallel=True)),
    ServerTool(spec=ToolSpec(name="act"), policy=ToolPolicy(effect="idempotent", approval="never")),
    ServerTool(spec=ToolSpec(name="hold"), policy=ToolPolicy(effect="read")),
    ServerTool(spec=ToolSpec(name="wipe"), policy=ToolPolicy(effect="destructive")),
)
BOUND_S = 20.0
BIG = "word " * 20_000
"""More than stands in an entry itself."""


class Quick(QuietClock):
    """A clock on which what is done now and then never falls due, and everything else at once."""

    async def sleep(self, seconds: float) -> None:
        if seconds in (CANCEL_POLL_S, RunsOptions().lease_s / 3):
            await super().sleep(seconds)
        await asyncio.sleep(0)


class Obedient:
    """A model that makes the calls which the last thing said names, once, and then answers."""

    def __init__(self) -> None:
        self._count = 0

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        last = plan.items[-1]
        words = text_of(last.content).split() if isinstance(last, MessageItem) and last.role == "user" else []
        calls = []
        for word in words:
            if word in ("look", "act", "wipe", "hold", "theirs"):
                self._count += 1
                calls.append(call(word, call_id=f"c{self._count}", arguments=f'{{"n":{self._count}}}'))
        reply = ask_for(*calls) if calls and plan.tool_choice != "none" else say("done")
        if "break" in words:
            yield reply[0]
            raise UpstreamTimeout("The upstream went away.")
        for batch in reply:
            yield batch


class Tools:
    """Answers at once, but for `hold`, which waits until it is let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.is_held = asyncio.Event()

    async def run(self, called: CallItem, context: CallContext) -> Outcome:
        if called.name == "hold":
            self.is_held.set()
            await self.let_go.wait()
        return Outcome(text=f"{called.name} {BIG if called.name == 'act' else ''}")


class House:
    """Two processes on one store, and a person."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.chance = random.Random(seed)
        self.clock = Quick()
        self.tools = Tools()
        self.refused: Counter[tuple[str, str]] = Counter()
        self.ids = CountingIds(namespace=f"{seed}_")
        self.people = Approvals(store, self.clock, self.ids)
        self.processes = [self._process(owner) for owner in OWNERS]

    def _process(self, owner: str) -> Runs:
        model = Obedient()
        table = _Table(model)
        rooms = RunDependencies(
            store=self.store,
            models=table,
            tools=table,
            toolbox=self.tools,
            clock=self.clock,
            ids=self.ids,
            metrics=Metrics(),
            approver=DurableApprover(self.store, self.clock, self.ids),
        )
        return Runs(rooms, RunsOptions(owner=owner, keep_s=1_000.0, unstored_s=100.0))

    async def live(self, steps: int) -> None:
        """Open, take so many random steps, and close."""
        for runs in self.processes:
            await runs.open()
        try:
            for _ in range(steps):
                step = self.chance.choice(STEPS)
                try:
                    await asyncio.wait_for(step(self), BOUND_S)
                except (RequestError, StoreError) as error:
                    self.refused[step.__name__, error.info.code] += 1
                    continue  # refused, as it may be: there may be nothing left to do it to
        finally:
            self.tools.let_go.set()
            for runs in self.processes:
                await runs.close()

    @property
    def runs(self) -> Runs:
        """One of the processes."""
        return self.chance.choice(self.processes)

    async def some_run(self, *, ended: bool = True) -> RunRow:
        """Return a run by chance. Raises: RequestError."""
        rows = [row for row in await self.store.list_runs(limit=100) if not ended or row.status in ENDED]
        if not rows:
            raise RequestError("there is none")
        return self.chance.choice(rows)

    def request(self, text: str, **fields: Any) -> Request:
        """Return a request, of any protocol that has these tools."""
        given = {"protocol": "responses", "model": self.chance.choice(["m", "n"]), **fields}
        items = given.pop("items", (text_message("user", text),))
        if self.chance.random() < 0.3:
            given.setdefault("options", Options(extra={"odd": msgspec.Raw(b'{\n  "spread": "over lines"\n}')}))
        return Request(items=items, **given)

    async def follow(self, request: Request, limits: Limits = GATEWAY_LIMITS, **how: Any) -> RunHandle:
        """Run a request to its end; a person agrees to about half of what is asked."""
        previous = await self.store.find_run(request.previous_response_id or "")
        key_id = self.chance.choice(["", "k1"]) if previous is None else previous.key_id
        handle = await self.runs.start(request, **{"limits": limits, "key_id": key_id, **how})
        return await self.attend(handle)

    async def attend(self, handle: RunHandle) -> RunHandle:
        """Wait for the end of a run, and let it have what it waits for."""
        self.tools.let_go.set()
        waiting = asyncio.ensure_future(handle.wait())
        while not waiting.done():
            for row in await self.people.page(run_id=handle.run_id, status="pending"):
                if not row.question.is_deferred:
                    await self.people.decide(row.id, Answer(approve=self.chance.random() < 0.5, by="ann"))
            await asyncio.wait([waiting], timeout=0.002)
        return handle


class _Table:
    def __init__(self, model: Obedient) -> None:
        self._model = model

    def model_for(self, name: str) -> Obedient:
        return self._model

    def tools(self) -> tuple[ServerTool, ...]:
        return TOOLS


async def talk(house: House) -> None:
    """A turn with some server calls, perhaps behind an earlier one, perhaps not stored, perhaps big."""
    names = house.chance.sample(["look", "act", "look", "wipe", "break"], house.chance.randrange(4))
    more = f" {BIG}" if house.chance.random() < 0.2 else ""
    fields: dict[str, Any] = {"store": house.chance.random() < 0.7, "background": house.chance.random() < 0.2}
    if house.chance.random() < 0.5:
        fields["previous_response_id"] = (await house.some_run()).response_id
    await house.follow(house.request(" ".join(names) + more, **fields))


async def mixed(house: House) -> None:
    """A turn with server and client calls, which the client goes on with, or does not."""
    stored = house.chance.random() < 0.7
    first = await house.follow(house.request("look theirs", tools=(CLIENT_TOOL,), store=stored))
    row = await house.store.find_run(first.run_id)
    calls = [e for e in await house.store.entries(first.run_id) if e.kind == "tool_call" and e.name == "theirs"]
    if row is None or not calls or house.chance.random() < 0.3:
        return
    made = CallItem(call_id=calls[0].call_id or "", name="theirs")
    items = (text_result(made, "seen"), text_message("user", "and look"))
    await house.follow(
        house.request("", items=items, tools=(CLIENT_TOOL,), previous_response_id=row.response_id, store=stored)
    )


async def ask_and_answer(house: House) -> None:
    """Questions that end a run, answered by the next, one after the other or not at all."""
    handle = await house.follow(house.request("look wipe wipe"), DEFER)
    row = await house.store.find_run(handle.run_id)
    assert row is not None
    pending = [each for each in await house.people.page(run_id=row.id) if each.status == "pending"]
    while pending and house.chance.random() < 0.8:
        some = pending[: house.chance.randrange(1, len(pending) + 1)]
        assents = tuple(Assent(approval_id=each.id, approve=house.chance.random() < 0.6, field="f") for each in some)
        said = (text_message("user", "well?"),) if house.chance.random() < 0.3 else ()
        request = house.request("", items=said, approvals=assents, previous_response_id=row.response_id)
        handle = await house.follow(request, DEFER)
        row = await house.store.find_run(handle.run_id)
        assert row is not None
        pending = [] if said else pending[len(some) :]


async def cancelled(house: House) -> None:
    """A run that is cancelled amid a call."""
    handle = await _held(house)
    await handle.cancel()
    await handle.wait()
    house.tools.let_go.set()


async def taken_over(house: House) -> None:
    """A run whose process is taken for dead amid a call, and that another one goes on with."""
    chosen = house.chance.randrange(2)
    house.tools.is_held.clear()
    house.tools.let_go.clear()
    background = house.chance.random() < 0.5
    handle = await house.processes[chosen].start(house.request("act hold", background=background))
    await house.tools.is_held.wait()
    house.tools.is_held.clear()
    await house.store.end_leases(OWNERS[chosen])
    await house.processes[1 - chosen].claim_abandoned()
    if house.chance.random() < 0.5:
        await house.tools.is_held.wait()
    house.tools.let_go.set()
    while (row := await house.store.find_run(handle.run_id)) is not None and row.status not in ENDED:
        await house.store.wait_change(handle.run_id, 0.05)


async def _held(house: House) -> RunHandle:
    house.tools.is_held.clear()
    house.tools.let_go.clear()
    handle = await house.runs.start(house.request("look hold wipe", store=house.chance.random() < 0.7))
    await house.tools.is_held.wait()
    return handle


async def forked(house: House) -> None:
    """A run that goes on from before a round of another."""
    row = await house.some_run()
    await house.attend(await house.runs.fork(row))


async def again(house: House) -> None:
    """The tools of a run, run again."""
    row = await house.some_run()
    await house.attend(await house.runs.rerun_tools(row))


async def deleted(house: House) -> None:
    """A run that is forgotten; those behind it are joined to the one before it."""
    await house.store.delete_run((await house.some_run()).id)


async def purged(house: House) -> None:
    """A run whose content is forgotten."""
    await house.store.purge_run((await house.some_run()).id)


async def in_session(house: House) -> None:
    """A turn of a session."""
    session_id = house.chance.choice(["s1", "s2"])
    with suppress(Conflict):
        await house.store.create_session(SessionRow(id=session_id, created_at=1.0, updated_at=1.0))
    await house.follow(house.request("look"), session_id=session_id, key_id="")


async def session_deleted(house: House) -> None:
    """A session that is forgotten, with its runs or without."""
    await house.store.delete_session(house.chance.choice(["s1", "s2"]), with_runs=house.chance.random() < 0.4)


async def expired(house: House) -> None:
    """Time goes by, and what is past its own is forgotten."""
    house.clock.time += house.chance.choice([1.0, 150.0, 400.0])
    await house.store.expire(house.clock.now())


STEPS: tuple[Callable[[House], Coroutine[Any, Any, None]], ...] = (
    talk,
    talk,
    talk,
    mixed,
    ask_and_answer,
    ask_and_answer,
    cancelled,
    taken_over,
    forked,
    again,
    deleted,
    purged,
    in_session,
    in_session,
    session_deleted,
    expired,
)
