"""Guests as processes: a worker for each, kept for the next job of the same module, killed when it overruns.

A killed worker costs a start, nothing else: whatever the guest had asked for is ended, and its calls have results.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator

import msgspec

from treadle.core.items import CallItem
from treadle.core.tool_definitions import CallContext, Outcome, failure
from treadle.wasm.engine.compiler import child_environment
from treadle.wasm.engine.guest_limits import SandboxLimits, Stop
from treadle.wasm.execution.conversation_runs import ConversationRuns, GuestConversation
from treadle.wasm.execution.session_program import ProgramEnded
from treadle.wasm.execution.thread_messages import Answered, Ask, Hear, Message, Said, Wanted
from treadle.wasm.execution.worker_process import FRAME_BYTES_MAX, Done, FromWorker, GuestJob, Halt, write_frame

GRACE_S = 1.0
"""How long past its limit a guest may take to be stopped from within before its process is killed."""
IDLE_MAX = 2
_CRASHED = Stop(code="crash", message="The process of the guest died.")
_reader: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)


class GuestWorker:
    """One child process and the frames to and from it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in = process.stdin
        self._out = process.stdout

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Tell whether the process is there."""
        return self._process.returncode is None

    async def send(self, message: Message, raw: bytes = b"") -> None:
        """Write one frame; a process that is gone hears nothing."""
        with contextlib.suppress(ConnectionError):
            self._in.write(write_frame(message) + raw)
            await self._in.drain()

    async def frames(self) -> AsyncGenerator[FromWorker, None]:
        """Yield what the worker says, until it is gone or talks nonsense."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, msgspec.MsgspecError):
            while True:
                size = int.from_bytes(await self._out.readexactly(4), "big")
                if size > FRAME_BYTES_MAX:
                    return
                yield _reader.decode(await self._out.readexactly(size))

    async def kill(self) -> None:
        """End the process at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def close(self) -> None:
        """Let the process end, and end it."""
        self._in.close()
        await self.kill()


class GuestWorkers:
    """The worker processes of this process, by the module they serve."""

    def __init__(self) -> None:
        self._idle: dict[str, list[GuestWorker]] = {}

    async def take(self, key: str) -> GuestWorker:
        """Return an idle worker of that module, or a new one."""
        idle = self._idle.get(key, [])
        while idle:
            worker = idle.pop()
            if worker.is_alive:
                return worker
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "treadle.wasm.execution.worker_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=child_environment(),
        )
        return GuestWorker(process)

    async def give_back(self, key: str, worker: GuestWorker) -> None:
        """Keep a worker for the next job, unless there are enough."""
        idle = self._idle.setdefault(key, [])
        if worker.is_alive and len(idle) < IDLE_MAX:
            idle.append(worker)
        else:
            await worker.close()

    async def close(self) -> None:
        """End every idle worker."""
        workers = [worker for idle in self._idle.values() for worker in idle]
        self._idle.clear()
        await asyncio.gather(*(worker.close() for worker in workers))


class Assignment:
    """One job on a worker: its frames read, its sends served, its time held."""

    def __init__(
        self, worker: GuestWorker, desk: ConversationRuns | None, visit: GuestConversation, hear: Hear
    ) -> None:
        self._worker = worker
        self._desk = desk
        self._visit = visit
        self._hear = hear
        self._send: asyncio.Task[None] | None = None
        self._call: asyncio.Future[Answered] | None = None

    async def run(self, job: GuestJob, code: bytes) -> Done:
        """Run the job; a worker that does not end it in time is killed."""
        await self._worker.send(job, code)
        try:
            async with asyncio.timeout(job.limits.wall_s + GRACE_S):
                return await self._listen()
        except TimeoutError:
            await self._worker.kill()
            return _over(job.limits)
        except asyncio.CancelledError:
            await self._halt()
            raise
        finally:
            await self._end_send()

    async def _listen(self) -> Done:
        async for message in self._worker.frames():
            match message:
                case Ask():
                    self._send = asyncio.create_task(self._serve(message), name="treadle-guest-send")
                case Answered():
                    if self._call is not None and not self._call.done():
                        self._call.set_result(message)
                case Said():
                    self._hear(message)
                case Done():
                    return message
        await self._worker.kill()
        return Done(ended=ProgramEnded(stop=_CRASHED), outcome=failure("failed", _CRASHED.message))

    async def _serve(self, ask: Ask) -> None:
        assert self._desk is not None, "a tool guest has nobody to ask"
        await self._worker.send(await self._desk.serve(ask, self._want, self._visit))

    async def _want(self, call: CallItem, context: CallContext) -> Answered:
        self._call = asyncio.get_running_loop().create_future()
        await self._worker.send(Wanted(call=call, round=context.round, run_id=context.run_id))
        return await self._call

    async def _halt(self) -> None:
        """Ask the guest to stop; kill the one that does not."""
        await self._worker.send(Halt())
        try:
            async with asyncio.timeout(GRACE_S):
                await self._listen()
        except TimeoutError:
            await self._worker.kill()

    async def _end_send(self) -> None:
        """End the send of a guest that is gone: a call without an answer gets one, then its run ends."""
        if self._send is None or self._send.done():
            return
        if self._call is not None and not self._call.done():
            gone = failure("failed", "The guest was stopped while this tool ran.")
            self._call.set_result(Answered(outcome=gone, stop=_CRASHED))
        elif self._call is None or self._call.result().stop is None:
            self._send.cancel()
        await asyncio.wait((self._send,))


def _over(limits: SandboxLimits) -> Done:
    message = f"The guest took longer than {limits.wall_s:g} s and was killed."
    stop = Stop(code="timeout", message=message)
    return Done(ended=ProgramEnded(stop=stop), outcome=failure("timeout", message))


def outcome_of(done: Done) -> Outcome:
    """Return the outcome of a tool's job."""
    return done.outcome or failure("failed", "The guest gave no result.")
