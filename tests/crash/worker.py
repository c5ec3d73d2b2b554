"""A program that lives through scenes and dies in them: one forked process for each point, and one that goes on.

Reads jobs as JSON lines (scene, fatal points, store) and writes one line of findings for each. The parent has
everything imported and opens nothing, so that a fork costs milliseconds and a child begins as a new process does.
"""

import asyncio
import contextlib
import gc
import logging
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from crash.checker import History, check, read, wrong_times
from crash.points import FatalModel, FatalStore, FatalToolbox, Points
from crash.reader import Got, Resumed, numbered
from crash.scenes import CLIENT_TOOL, SCENES, Ledger, Scene, SceneModel, SceneToolbox, server_tools
from treadle.core.events import Numbered, Numbering, RunEvent, read_event
from treadle.core.items import text_message
from treadle.core.request import Request, Surface
from treadle.core.tool_definitions import ToolSpec
from treadle.engine.ports import Model
from treadle.journal.journal_interface import SessionRow, Store
from treadle.journal.open_store import open_store
from treadle.runs import RunDependencies, Runs, RunsOptions
from treadle.runs import live_event_relay as relay
from treadle.runs.session_locks import SessionLocks
from treadle.runtime import RandomIds, SystemClock
from treadle.runtime.database_clock import SharedClock
from treadle.telemetry import Metrics

BOUND_S = 20.0
LATER_S = 3_600.0
WRONG_S = (0.0, -LATER_S, LATER_S)
"""How far the clocks of the machines are off, by life."""
SESSION = "sess_kept"
LEASES_END = "UPDATE {schema}.leases SET until = 0"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Where to die: at each of `points` of the scene, and then, going on, at the point `again` of the recovery."""

    scene: str
    points: list[int]
    folder: str
    store: str = ""
    again: int | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a point came to. Without problems the run is as it should be; `place` is where it died."""

    scene: str
    point: int
    place: str
    problems: list[str]
    status: str = ""
    epochs: int = 0


class LaterClock(SystemClock):
    """The machine's time, some time later: leases of before have ended, and waiting takes as long as ever."""

    def __init__(self, offset_s: float) -> None:
        self._offset_s = offset_s

    def now(self) -> float:
        return time.time() + self._offset_s


class Process:
    """One life of a process that works for a scene."""

    def __init__(self, scene: Scene, folder: Path, place: str, points: Points, age: int) -> None:
        self.scene = scene
        self.age = age
        self.folder = folder
        self.ledger = Ledger(folder / "ledger")
        own = LaterClock(age * LATER_S / 60)
        # On PostgreSQL every life is on a machine whose clock is wrong in its own way.
        self.clock = SharedClock(LaterClock(WRONG_S[age]) if place.startswith("postgresql") else own)
        self.store: Store = open_store(place, clock=own.now)
        self.fatal = FatalStore(self.store, points)
        self.running = asyncio.Event()
        toolbox = SceneToolbox(self.ledger, self._begun)
        rooms = RunDependencies(
            store=self.fatal,
            models=self,
            tools=self,
            toolbox=FatalToolbox(toolbox, points),
            clock=self.clock,
            ids=RandomIds(),
            metrics=Metrics(),
        )
        settled = self.fatal.settled if scene.is_stored else _at_once
        self._model = FatalModel(SceneModel(scene, self._refuse, settled), points)
        self.runs = Runs(rooms, RunsOptions(owner=f"process{age}", lease_s=15.0, limits=scene.limits))

    def model_for(self, name: str) -> Model:
        return self._model

    def tools(self) -> Sequence[object]:
        return server_tools()

    async def _begun(self, tool: str) -> None:
        if tool == self.scene.cancels_in and not self.age:
            self.running.set()
            await asyncio.sleep(BOUND_S)

    def _refuse(self, problem: str) -> None:
        with (self.folder / "refusals").open("a") as file:
            file.write(problem + "\n")

    async def begin(self) -> None:
        """Ask, watch, and cancel where the scene wants it."""
        request = Request(
            protocol="responses",
            model="m",
            items=(text_message("user", "go"),),
            tools=(ToolSpec(name=CLIENT_TOOL),) if self.scene.has_client_tool else (),
            store=self.scene.is_stored,
            surface=Surface(stream=not self.scene.is_whole),
        )
        if self.scene.in_session:
            await self.store.create_session(SessionRow(id=SESSION, created_at=1.0, updated_at=1.0))
        handle = await self.runs.start(request, session_id=SESSION if self.scene.in_session else None)
        if self.scene.is_whole:
            await handle.wait()
        (self.folder / "run").write_text(handle.run_id)
        watching = asyncio.create_task(self._watch(handle.run_id, handle.events()))
        if self.scene.cancels_in:
            await self.running.wait()
            await handle.cancel()
        await handle.wait()
        await watching

    async def cancel_unowned(self) -> None:
        """Ask for the end of a run that nobody drives, where the scene wants it."""
        if self.scene.cancels_unowned and (self.folder / "run").exists():
            await self.store.request_cancel((self.folder / "run").read_text())

    async def resume(self) -> None:
        """Wait until the run that an earlier process left has ended."""
        if not (self.folder / "run").exists():
            [row] = await self.store.list_runs() or [None]
            if row is None:
                return
            (self.folder / "run").write_text(row.id)
        run_id = (self.folder / "run").read_text()
        await self._watch(run_id, self.runs.events(run_id))
        if (live := self.runs.find_live(run_id)) is not None:
            await live.wait()

    async def _watch(self, run_id: str, events: object) -> None:
        """Be a client: write down each event as it comes."""
        sighting = self.folder / f"seen-{os.getpid()}"
        with sighting.open("ab") as file:
            async for batch in self._numbered(events):
                file.write(b"".join(msgspec.json.encode(numbered.event) + b"\n" for numbered in batch))
                file.flush()

    async def _numbered(self, batches: object) -> AsyncIterator[list[Numbered]]:
        """Pass events on, and write them down as a client gets them that goes on after some number that it had."""
        got, client = self.folder / "got", resumed(self.folder)
        back = client.go_back(random.Random(f"{self.folder.name} {self.age}"))
        numbering, after = Numbering(), client.after
        with got.open("ab") as file:
            file.write(b"%d\n" % back)
            async for batch in batches:
                fresh = [got for got in numbered(batch, numbering) if got.number > after]
                file.write(b"".join(msgspec.json.encode(got) + b"\n" for got in fresh))
                file.flush()
                yield batch


async def _at_once() -> None:
    """Wait for nothing: what is not stored is not told to other processes."""


async def live(scene: Scene, folder: Path, place: str, points: Points, age: int) -> None:
    """Be a process from its start to its end, or to the fatal point."""
    process = Process(scene, folder, place, points, age)
    await process.store.open()
    async with asyncio.timeout(BOUND_S):
        if age:
            await end_leases(place)
            await process.cancel_unowned()
        await process.clock.measure(process.store.server_time)
        await process.runs.open()
        await (process.resume() if age else process.begin())
    await process.runs.close()
    await process.store.close()


async def end_leases(place: str) -> None:
    """Let the time of the leases pass where the database's own clock counts it."""
    if not place.startswith("postgresql"):
        return
    import asyncpg

    from treadle.journal.store_url import PostgresAddress

    address = PostgresAddress(place)
    connection = await asyncpg.connect(address.dsn)
    await connection.execute(LEASES_END.format(schema=address.quoted_schema))
    await connection.close()


async def look(scene: Scene, folder: Path, place: str) -> tuple[History | None, list[str]]:
    """Read what is left and check it."""
    store = open_store(place)
    await store.open()
    try:
        problems = (folder / "refusals").read_text().splitlines() if (folder / "refusals").exists() else []
        if not (folder / "run").exists():
            effects = Ledger(folder / "ledger").read()
            return None, problems + ["something was done for a run that does not exist"] * bool(effects)
        history = await read(store, (folder / "run").read_text(), Ledger(folder / "ledger").read(), sightings(folder))
        history = msgspec.structs.replace(history, resumed=[resumed(folder)])
        problems += wrong_times(history.row, time.time() + 2 * LATER_S / 60)
        if scene.is_stored:
            problems += check(history)
            problems += await kept(scene, history, store)
        elif await is_left(store, history):
            problems.append("what was not to be stored is still there when its time is over")
        return history, problems
    finally:
        await store.close()


async def is_left(store: Store, history: History) -> bool:
    """Tell whether the content of a run that was not to be stored outlives its time."""
    await store.expire(time.time() + 2 * LATER_S)
    return await store.find_run(history.row.id) is not None and bool(await store.entries(history.row.id))


async def kept(scene: Scene, history: History, store: Store) -> list[str]:
    """Check that a session goes on from the run that ended in it."""
    if not scene.in_session or history.row.status != "completed":
        return []
    seat = await SessionLocks(store).enter(SESSION, "")
    head = seat.head
    return [] if head == history.row.id else [f"the session does not go on from the run that ended in it, but {head}"]


def sightings(folder: Path) -> list[list[RunEvent]]:
    """Return what each client saw."""
    return [[read_event(line) for line in file.read_bytes().splitlines()] for file in sorted(folder.glob("seen-*"))]


def resumed(folder: Path) -> Resumed:
    """Return what the client has that goes on after each crash."""
    got = folder / "got"
    lines = got.read_bytes().splitlines() if got.exists() else []
    return Resumed([msgspec.json.decode(line, type=Got | int) for line in lines])


def forked(work: Callable[[], Awaitable[None]]) -> int:
    """Run something in a process of its own and return how that ended: 0, or the signal, or 1."""
    pid = os.fork()
    if pid:
        status = os.waitpid(pid, 0)[1]
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    code = 1
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(work())
            code = 0
        finally:
            if code:
                sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            os._exit(code)
    return code


def die(job: Job, point: int) -> Finding:
    """Kill a process at a point of the scene, let others go on, and see what came of it."""
    scene, folder = SCENES[job.scene], Path(job.folder) / f"{job.scene}-{point}-{job.again or 0}"
    folder.mkdir(parents=True)
    place = job.store.format(name=folder.name.replace("-", "_")) if job.store else str(folder / "treadle.db")
    problems: list[str] = []

    async def first() -> None:
        points = Points(point)
        await live(scene, folder, place, points, 0)
        (folder / "points").write_text("\n".join(points.names))

    async def next_one(age: int, fatal: int | None) -> None:
        points = Points(fatal)
        await live(scene, folder, place, points, age)

    async def last() -> None:
        history, found = await look(scene, folder, place)
        names = (folder / "points").read_text().splitlines() if (folder / "points").exists() else []
        finding = Finding(
            scene=job.scene,
            point=point,
            place="the end" if names else "",
            problems=problems + found,
            status=history.row.status if history else "",
            epochs=len({line.epoch for line in history.lines}) if history else 0,
        )
        (folder / "finding").write_bytes(msgspec.json.encode(finding))

    code = forked(first)
    if code not in (0, signal.SIGKILL):
        problems.append(f"the first process ended with {code}")
    if job.again is not None:
        forked(lambda: next_one(1, job.again))
    code = forked(lambda: next_one(2, None))
    if code:
        problems.append(f"the process that should go on ended with {code}")
    if forked(last):
        problems.append("the checker could not read the run")
        return Finding(scene=job.scene, point=point, place="", problems=problems)
    return msgspec.json.decode((folder / "finding").read_bytes(), type=Finding)


def main() -> None:
    """Do the jobs that come."""
    logging.disable(logging.ERROR)
    relay.FLUSH_S = 0.0
    gc.freeze()
    for line in sys.stdin:
        job = msgspec.json.decode(line, type=Job)
        for point in job.points:
            print(msgspec.json.encode(die(job, point)).decode(), flush=True)
        print("done", flush=True)


if __name__ == "__main__":
    main()
