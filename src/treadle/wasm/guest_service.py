"""Runs session guests by name or by code, as threads or as processes, and reports how they ended."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec

from treadle.core.errors import NotFound
from treadle.wasm.engine.compiler import BadGuest, CompiledModule
from treadle.wasm.engine.guest_instance import Control
from treadle.wasm.execution.conversation_runs import ConversationRuns, GuestConversation, Sender
from treadle.wasm.execution.process_workers import Assignment
from treadle.wasm.execution.session_program import ProgramEnded, ProgramStart, run_program
from treadle.wasm.execution.thread_messages import OutputHandler, log_output
from treadle.wasm.execution.thread_workers import ThreadLine, run_in_thread
from treadle.wasm.execution.worker_process import Done, GuestJob
from treadle.wasm.guest_pool import GuestModule, GuestPool, off_loop

log = logging.getLogger("treadle.wasm")


class Guests:
    """The session guests of one process."""

    def __init__(self, pool: GuestPool, conversations: ConversationRuns, modules: Sequence[GuestModule] = ()) -> None:
        self._pool = pool
        self._conversations = conversations
        self._modules = {module.name: module for module in modules if module.kind == "session"}

    @property
    def names(self) -> list[str]:
        """Return the names of the configured guests, sorted."""
        return sorted(self._modules)

    @property
    def modules(self) -> list[GuestModule]:
        """Return the configured guests by name."""
        return [self._modules[name] for name in self.names]

    @property
    def live(self) -> int:
        """Return the number of live guests, including tool guests."""
        return self._pool.live

    def find(self, name: str) -> GuestModule:
        """Return a configured guest.

        Raises: NotFound, naming the configured guests.
        """
        module = self._modules.get(name)
        if module is None:
            known = f"There are {', '.join(self.names)}." if self._modules else "Name one in a [[guest]] table."
            raise NotFound(f"There is no guest {name!r}.", param="name", hint=known)
        return module

    async def run(
        self,
        module: GuestModule,
        *,
        stdin: bytes = b"",
        on_output: OutputHandler | None = None,
        wasm: bytes | None = None,
        sender: Sender | None = None,
    ) -> ProgramEnded:
        """Run a guest to its end, for a sender; cancellation stops it. A guest's errors are in the result.

        Raises: NotFound, BadGuest, TooManyGuests, ConfigError.
        """
        with self._pool.place():
            compiled: CompiledModule = await off_loop(partial(self._pool.prepare, module, wasm))
            if compiled.is_component:
                raise BadGuest("A component cannot be a session guest, only a tool guest.", param="path")
            start = ProgramStart(model=module.model, stdin=stdin)
            conversation = GuestConversation(module.grants, sender)
            run = self._in_process if module.isolation == "process" else self._in_thread
            work = run(module, compiled, start, conversation, on_output or partial(log_output, module.name))
            ended = await self._traced(module, conversation, work)
        ended = msgspec.structs.replace(ended, run_ids=tuple(conversation.run_ids))
        self._record_end(module, ended)
        return ended

    async def close(self) -> None:
        """End the worker processes."""
        await self._pool.close()

    async def _in_thread(
        self,
        module: GuestModule,
        compiled: CompiledModule,
        start: ProgramStart,
        conversation: GuestConversation,
        on_output: OutputHandler,
    ) -> ProgramEnded:
        control = Control(module.limits)
        line = ThreadLine(asyncio.get_running_loop(), self._conversations, conversation, control, on_output)
        code = self._pool.compiler.load(compiled, module.spec)
        work = asyncio.ensure_future(
            run_in_thread(partial(run_program, code, module.spec, control, line, start), f"treadle-guest-{module.name}")
        )
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            control.cancel()
            await asyncio.wait((work,))
            raise

    async def _in_process(
        self,
        module: GuestModule,
        compiled: CompiledModule,
        start: ProgramStart,
        conversation: GuestConversation,
        on_output: OutputHandler,
    ) -> ProgramEnded:
        workers = self._pool.workers
        worker = await workers.take(compiled.digest)
        job = GuestJob(
            spec=module.spec, limits=module.limits, code_bytes=len(compiled.code), start=start, grant=module.wasi
        )
        try:
            done: Done = await Assignment(worker, self._conversations, conversation, on_output).run(job, compiled.code)
        except BaseException:
            await worker.close()
            raise
        await workers.give_back(compiled.digest, worker)
        assert done.ended is not None, "a session's job ends with how it ended"
        return done.ended

    async def _traced(
        self, module: GuestModule, conversation: GuestConversation, work: Coroutine[Any, Any, ProgramEnded]
    ) -> ProgramEnded:
        """Run a guest within a tracing span, if tracing is on; its runs become children of the span."""
        tracer = self._pool.tracer
        if tracer is None:
            return await work
        span = tracer.guest(module.name)
        conversation.trace_parent = span.parent
        code, cpu_s = "cancelled", 0.0
        try:
            ended = await work
            code, cpu_s = _code(ended), ended.cpu_s
            return ended
        finally:
            span.end(code, cpu_s)

    def _record_end(self, module: GuestModule, ended: ProgramEnded) -> None:
        code = _code(ended)
        self._pool.meter.guest_ended(code, ended.cpu_s)
        fields = {"guest": module.name, "stop": code, "cpu_s": ended.cpu_s, "runs": len(ended.run_ids)}
        log.info("guest ended", extra={**fields, "host_calls": ended.host_calls, "exit_code": ended.exit_code})


def _code(ended: ProgramEnded) -> str:
    """Return how a guest ended, as a code."""
    return "ok" if ended.stop is None else ended.stop.code
