"""Runs guests in worker processes: reused for the next job of the same module, killed when over the time limit.

Killing a worker costs only a new start: the guest's send is ended, and its open call gets a result.
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
from treadle.wasm.execution.thread_messages import Answered, Ask, GuestOutput, Message, OutputHandler, Wanted
from treadle.wasm.execution.worker_process import FRAME_BYTES_MAX, Done, FromWorker, GuestJob, Halt, write_frame

GRACE_S = 1.0
"""How long a guest may exceed its time limit before its process is killed."""
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
        """Return whether the process is running."""
        return self._process.returncode is None

    async def send(self, message: Message, raw: bytes = b"") -> None:
        """Write one frame; ignored if the process has exited."""
        with contextlib.suppress(ConnectionError):
            self._in.write(write_frame(message) + raw)
            await self._in.drain()

    async def frames(self) -> AsyncGenerator[FromWorker, None]:
        """Yield the worker's messages, until it exits or sends an invalid frame."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, msgspec.MsgspecError):
            while True:
                size = int.from_bytes(await self._out.readexactly(4), "big")
                if size > FRAME_BYTES_MAX:
                    return
                yield _reader.decode(await self._out.readexactly(size))

    async def kill(self) -> None:
        """Kill the process and wait for it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def close(self) -> None:
        """Close the process's input and kill it."""
        self._in.close()
        await self.kill()


class GuestWorkers:
    """The pool of worker processes, by module."""

    def __init__(self) -> None:
        self._idle: dict[str, list[GuestWorker]] = {}

    async def take(self, key: str) -> GuestWorker:
        """Return an idle worker of a module, or start one."""
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
        """Return a worker to the pool; it is closed if enough are idle."""
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
    """One job on a worker: reads its frames, serves its sends, enforces its time limit."""

    def __init__(
        self,
        worker: GuestWorker,
        conversations: ConversationRuns | None,
        conversation: GuestConversation,
        on_output: OutputHandler,
    ) -> None:
        self._worker = worker
        self._conversations = conversations
        self._conversation = conversation
        self._on_output = on_output
        self._send: asyncio.Task[None] | None = None
        self._call: asyncio.Future[Answered] | None = None

    async def run(self, job: GuestJob, code: bytes) -> Done:
        """Run the job; a worker that exceeds the time limit is killed."""
        await self._worker.send(job, code)
        try:
            async with asyncio.timeout(job.limits.wall_s + GRACE_S):
                return await self._read_frames()
        except TimeoutError:
            await self._worker.kill()
            return _over(job.limits)
        except asyncio.CancelledError:
            await self._halt()
            raise
        finally:
            await self._end_send()

    async def _read_frames(self) -> Done:
        async for message in self._worker.frames():
            match message:
                case Ask():
                    self._send = asyncio.create_task(self._serve(message), name="treadle-guest-send")
                case Answered():
                    if self._call is not None and not self._call.done():
                        self._call.set_result(message)
                case GuestOutput():
                    self._on_output(message)
                case Done():
                    return message
        await self._worker.kill()
        return Done(ended=ProgramEnded(stop=_CRASHED), outcome=failure("failed", _CRASHED.message))

    async def _serve(self, ask: Ask) -> None:
        assert self._conversations is not None, "a tool guest has nobody to ask"
        await self._worker.send(await self._conversations.serve(ask, self._call_guest_tool, self._conversation))

    async def _call_guest_tool(self, call: CallItem, context: CallContext) -> Answered:
        self._call = asyncio.get_running_loop().create_future()
        await self._worker.send(Wanted(call=call, round=context.round, run_id=context.run_id))
        return await self._call

    async def _halt(self) -> None:
        """Ask the guest to stop; kill the process if it does not."""
        await self._worker.send(Halt())
        try:
            async with asyncio.timeout(GRACE_S):
                await self._read_frames()
        except TimeoutError:
            await self._worker.kill()

    async def _end_send(self) -> None:
        """End the send of a guest that has ended: an open call gets a failed result, then the run ends."""
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
