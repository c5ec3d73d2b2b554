"""One simulation from one seed: random conversations, two processes over one store, and everything that goes wrong.

Same seed, same history. Faults stop after a while; then every run must end, and the checker reads what is left.
"""

import asyncio
import hashlib
import random
from contextlib import suppress

import msgspec

from crash.checker import check, read, wrong_times
from crash.reader import Resumed, Streamed
from crash.scenes import CLIENT_TOOL, Reply, Scene
from sim.loop import run
from sim.process import LEASE_S, Process, Sink, task_factory
from sim.store import CURRENT, SimStore
from treadle.core.errors import StoreError, TreadleError
from treadle.core.events import ENDED, RunEvent
from treadle.core.items import text_message
from treadle.core.request import Request
from treadle.core.tool_definitions import ToolSpec
from treadle.engine.limits import Limits
from treadle.protocols.protocol_registry import ProtocolName

FAULTS_S = 60.0
HEALING_S = 40 * LEASE_S
CALLS = ("look", "look", "read_one", "put", "pay", "pay", "erase", "forbidden", "nonsense", CLIENT_TOOL)
PROTOCOLS: tuple[ProtocolName, ...] = ("chat", "messages", "gemini", "responses")
LIMITS = (Limits(), Limits(), Limits(max_iterations=2), Limits(max_total_tool_calls=2), Limits(wall_s=20.0))
LAST = (
    *3 * (Reply(text="Done."), Reply(text="So it is.", thought="Hm.")),
    Reply(text="Brok", fails="inside"),
    Reply(fails="before"),
    Reply(text="Too lo", stop="length", calls=("pay",)),
)
CLOCKS_S = (0.0, 3_600.0, -3_600.0)
"""How far the clock of a machine may be off."""

FAULTS = ("kill", "kill", "freeze", "freeze", "cancel", "cancel_far", "full", "restart", "clock", "lock")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a seed; `trace` is the hash of all that was journalled."""

    seed: int
    problems: list[str]
    trace: str
    runs: int
    takeovers: int


def random_scene(chance: random.Random) -> Scene:
    """Make up a conversation."""
    replies = [_random_round(chance) for _ in range(chance.randint(0, 4))]
    last = chance.choice(LAST)
    return Scene(
        replies=(*replies, last),
        limits=chance.choice(LIMITS),
        has_client_tool=True,
        fixed_ids=chance.random() < 0.3,
        is_fickle=chance.random() < 0.3,
    )


def _random_round(chance: random.Random) -> Reply:
    calls = tuple(chance.choice(CALLS) for _ in range(chance.randint(1, 4)))
    text, thought = chance.choice(("", "I do it.")), chance.choice(("", "", "Let me think."))
    return Reply(text=text, thought=thought, calls=calls, note=chance.random() < 0.2)


Sightings = dict[str, list[list[RunEvent]]]


class World:
    """All that happens in a simulation."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.scenes = {f"m{n}": random_scene(self.chance) for n in range(self.chance.randint(1, 3))}
        self.sink = Sink()
        self.near: Sightings = {}
        self.far: Sightings = {}
        self.resumed: dict[str, list[Resumed | Streamed]] = {}
        self.result: Result | None = None
        self.seen: set[tuple[int, int, str]] = set()
        self._resuming: list[asyncio.Task[None]] = []
        self._made = 0

    async def main(self) -> None:
        """Live through it all and keep the result."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(task_factory)
        self.store = SimStore(loop.time)
        await self.store.open()
        self.places = [await self._boot(), await self._boot()]
        begin = [asyncio.create_task(self._ask(model)) for model in self.scenes]
        faults = [asyncio.create_task(self._fault()) for _ in range(self.chance.randint(0, 4))]
        self.reader = asyncio.create_task(self._read_along())
        await asyncio.gather(*begin, *faults)
        await self._heal()
        self.reader.cancel()
        self.result = await self._judge()
        for process in self.places:
            process.kill()

    async def _boot(self) -> Process:
        self._made += 1
        chance = random.Random(f"{self.seed}-{self._made}")
        process = Process(f"p{self._made}", self.store, self.scenes, self.sink, chance)
        # Of another source than what else happens: the clocks of machines are apart from the beginning.
        process.gate.wrong_s = random.Random(f"{self.seed}-{self._made}-clock").choice(CLOCKS_S)
        # In some worlds nothing of a model call is written before it is over: clients are always ahead of the journal.
        process.gate.is_late = self.seed % 3 == 0
        await process.spawn(process.clock.measure(self._time))
        process.spawn(process.clock.measure_forever(self._time))
        await process.spawn(process.runs.open())
        return process

    async def _read_along(self) -> None:
        """Be another program that reads the journal at any time, and remember what it saw."""
        chance = random.Random(f"{self.seed}-reader")
        while True:
            await asyncio.sleep(chance.choice((0.05, 0.5, 3.0)))
            self.seen |= set(self.store.read_entries())

    async def _time(self) -> float:
        """Return the time of the database."""
        return asyncio.get_running_loop().time()

    async def _ask(self, model: str) -> None:
        """Be a client: ask one process, watch there, and perhaps watch at the other too."""
        await asyncio.sleep(self.chance.uniform(0, 5))
        place = self.chance.randrange(2)
        scene, is_background = self.scenes[model], self.chance.random() < 0.5
        request = Request(
            protocol="responses",
            model=model,
            items=(text_message("user", "go"),),
            tools=(ToolSpec(name=CLIENT_TOOL),),
            background=is_background,
        )
        self.places[place].spawn(self._client(self.places[place], request, scene.limits))

    async def _client(self, process: Process, request: Request, limits: Limits) -> None:
        try:
            handle = await process.runs.start(request, limits=limits)
        except TreadleError:
            return
        other = self.places[1] if self.places[0] is process else self.places[0]
        other.spawn(self._watch(other, handle.run_id))
        # It outlives the process in which this client asked.
        token = CURRENT.set(None)
        for client in (Resumed(), Streamed(self.chance.choice(PROTOCOLS), handle.run_id)):
            self._resuming.append(asyncio.get_running_loop().create_task(self._resume(handle.run_id, client)))
        CURRENT.reset(token)
        await self._see(self.near, handle.run_id, handle.events())

    async def _watch(self, process: Process, run_id: str) -> None:
        await asyncio.sleep(self.chance.uniform(0, 3))
        is_far = process.runs.find_live(run_id) is None
        await self._see(self.far if is_far else self.near, run_id, process.runs.events(run_id))

    async def _resume(self, run_id: str, client: Resumed | Streamed) -> None:
        """Be a client that reads anywhere, loses its connection at any time, and goes on after any id that it had."""
        self.resumed.setdefault(run_id, []).append(client)
        chance = random.Random(f"{self.seed}-{run_id}-{type(client).__name__}")
        while not client.has_ended:
            process = self.places[chance.randrange(2)]
            reading = process.spawn(client.connect(process.runs.events(run_id)))
            await asyncio.wait([reading], timeout=chance.choice((0.05, 1.0, 5.0, 30.0)))
            reading.cancel()
            await asyncio.wait([reading], timeout=1.0)
            await asyncio.sleep(chance.choice((0.0, 0.1, 2.0)))
            if chance.random() < 0.3 and not client.has_ended:
                client.go_back(chance)

    async def _see(self, sightings: Sightings, run_id: str, events: object) -> None:
        seen: list[RunEvent] = []
        sightings.setdefault(run_id, []).append(seen)
        async for batch in events:
            seen += [numbered.event for numbered in batch]

    async def _fault(self) -> None:
        """Let one thing go wrong, some time."""
        kind, place = self.chance.choice(FAULTS), self.chance.randrange(2)
        wait_s, lasts_s = self.chance.uniform(0, 12), self.chance.choice((0.1, 5.0, 20.0, 40.0))
        await asyncio.sleep(wait_s)
        process = self.places[place]
        match kind:
            case "kill":
                process.kill()
                await asyncio.sleep(lasts_s)
                if self.places[place] is process:
                    self.places[place] = await self._boot()
            case "freeze":
                process.gate.freeze()
                await asyncio.sleep(lasts_s)
                process.gate.thaw()
            case "full":
                process.gate.fails = 0.3
                await asyncio.sleep(lasts_s)
                process.gate.fails = 0.0
            case "lock":
                self.store.lock()
                await asyncio.sleep(lasts_s)
                self.store.unlock()
            case "clock":
                process.gate.wrong_s = self.chance.choice((-3_600.0, 86_400.0))
            case "restart":
                await self._restart(process, place)
            case _:
                await self._cancel(process, is_far=kind == "cancel_far")

    async def _restart(self, process: Process, place: int) -> None:
        """Stop a process as a service manager does, and kill it where it takes too long."""
        closing = process.spawn(process.runs.close())
        await asyncio.wait([closing], timeout=10.0)
        process.kill()
        if self.places[place] is process:
            self.places[place] = await self._boot()

    async def _cancel(self, process: Process, *, is_far: bool) -> None:
        rows = await self.store.list_runs()
        if not rows:
            return
        run_id = self.chance.choice(rows).id
        if is_far:
            with suppress(StoreError):
                await self.store.request_cancel(run_id)
        else:
            process.spawn(process.runs.cancel(run_id))

    async def _heal(self) -> None:
        """Let nothing more go wrong, and wait until all runs have ended."""
        self.store.unlock()
        for place, process in enumerate(self.places):
            process.gate.fails = 0.0
            process.gate.thaw()
            if process.gate.is_dead:
                self.places[place] = await self._boot()
        until = asyncio.get_running_loop().time() + HEALING_S
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(1.0)
            if all(row.status in ENDED for row in await self.store.list_runs()):
                break
        if self._resuming:
            await asyncio.wait(self._resuming, timeout=HEALING_S)
        await asyncio.sleep(1.0)

    async def _judge(self) -> Result:
        problems, trace, takeovers = list(self.sink.problems), hashlib.sha256(), 0
        rows = await self.store.list_runs()
        for row in rows:
            history = await read(
                self.store,
                row.id,
                self.sink.effects,
                self.near.get(row.id, ()),
                self.far.get(row.id, ()),
                self.resumed.get(row.id, ()),
            )
            problems += [f"{row.id}: a client never had the end" for each in history.resumed if not each.has_ended]
            problems += check(history)
            problems += wrong_times(row, asyncio.get_running_loop().time())
            takeovers += len({line.epoch for line in history.lines}) - 1
            trace.update("".join(line.sha256 for line in history.lines).encode())
        lost = self.seen - set(self.store.read_entries())
        problems += [f"run {run}: another program read the entry {seq}, and it is gone" for run, seq, _ in lost]
        strange = {effect.run_id for effect in self.sink.effects} - {row.id for row in rows}
        problems += [f"{run_id}: an effect of no run" for run_id in sorted(strange)]
        return Result(seed=self.seed, problems=problems, trace=trace.hexdigest(), runs=len(rows), takeovers=takeovers)


def simulate(seed: int) -> Result:
    """Run the simulation of a seed."""
    world = World(seed)
    try:
        run(world.main())
    except RuntimeError as error:
        return Result(seed=seed, problems=[f"the simulation stopped: {error}"], trace="", runs=0, takeovers=0)
    assert world.result is not None
    return world.result
