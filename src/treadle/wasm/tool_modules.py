"""Tool guests: core modules with `tool_<name>` exports, and components, as tools of the registry.

Every call gets a fresh instance, so that calls share no state. The tools are described by a JSON file beside the
module, or by the module itself (`describe`).
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from treadle.core.errors import ConfigError, ToolError, ToolFailed, ToolTimeout
from treadle.core.json import BadJson, read_json, write_json
from treadle.core.tool_definitions import Outcome, ServerTool, ToolPolicy, ToolSpec
from treadle.tools import Tool
from treadle.tools.function_tools import foreign_tool
from treadle.tools.tool_context import ToolContext
from treadle.wasm.cchat_tool_registration import RegistrationRefusal, read_tool
from treadle.wasm.engine.compiler import CompiledModule
from treadle.wasm.engine.guest_instance import Control
from treadle.wasm.engine.guest_limits import GuestStopped
from treadle.wasm.engine.wasmtime_engine import THREAD_STACK_BYTES
from treadle.wasm.execution.conversation_runs import GuestConversation
from treadle.wasm.execution.process_workers import Assignment, outcome_of
from treadle.wasm.execution.session_program import ProgramEnded
from treadle.wasm.execution.thread_messages import GuestOutput, OutputHandler, log_output
from treadle.wasm.execution.thread_workers import run_in_thread
from treadle.wasm.execution.tool_call import ToolCall, describe, run_tool, tool_names
from treadle.wasm.execution.worker_process import GuestJob
from treadle.wasm.guest_pool import TOOLS_AT_ONCE, GuestModule, GuestPool

T = TypeVar("T")
SCHEMA_BYTES_MAX = 1_048_576


class ToolGuest:
    """One tool guest: its code, its tool specifications, and the execution of calls."""

    def __init__(self, pool: GuestPool, module: GuestModule, *, on_output: OutputHandler | None = None) -> None:
        self._pool = pool
        self._module = module
        self._on_output = on_output or partial(log_output, module.name)
        self._compiled: CompiledModule = pool.prepare(module)
        self._code: Any = pool.compiler.load(self._compiled, module.spec)
        self._at_once = asyncio.Semaphore(TOOLS_AT_ONCE)

    def tools(self) -> list[Tool]:
        """Return the guest's tools for the registry.

        Raises: ConfigError.
        """
        module = self._module
        policy = ToolPolicy(effect=module.effect, approval=module.approval, timeout_s=module.limits.wall_s + 1.0)
        why = dict.fromkeys(("effect", "approval"), f"[[guest]] {module.name}") | {"timeout_s": "[guests]"}
        return [
            foreign_tool(
                ServerTool(spec=spec, policy=policy, source=f"wasm:{module.name}"),
                partial(self._handle, spec.name),
            ).placed("wasm-process" if module.isolation == "process" else "wasm", why)
            for spec in self.specs()
        ]

    def specs(self) -> list[ToolSpec]:
        """Return the specifications of the guest's tools.

        Raises: ConfigError.
        """
        specs = _read_specs(self._described(), self._module)
        if not self._compiled.is_component:
            exported = set(tool_names(self._code))
            missing = [spec.name for spec in specs if spec.name not in exported]
            if missing:
                raise _wrong(self._module, f"describes {missing[0]!r}, but exports no tool_{missing[0]}")
        return specs

    async def call(self, call: ToolCall) -> Outcome:
        """Run one call in a fresh instance."""
        with self._pool.place():
            async with self._at_once:
                run = self._in_process if self._module.isolation == "process" else self._in_thread
                return await run(call)

    async def _handle(self, name: str, arguments: dict[str, Any], context: ToolContext) -> object:
        """Run a call for the tool runner, and return its value or raise its error.

        Raises: ToolError.
        """
        call = ToolCall(name=name, arguments=write_json(arguments).decode(), output_bytes_max=context.output_bytes_max)
        outcome = await self.call(call)
        if outcome.is_error:
            raise _error(outcome)
        return _value(outcome.text)

    async def _in_thread(self, call: ToolCall) -> Outcome:
        control = Control(self._module.limits)
        work = partial(run_tool, self._code, self._module.spec, control, call, self._thread_safe_output())
        try:
            return await run_in_thread(work, f"treadle-tool-{self._module.name}")
        except asyncio.CancelledError:
            control.cancel()
            raise
        finally:
            self._pool.meter.guest_ended("ok" if control.stop is None else control.stop.code, control.cpu_s)

    def _thread_safe_output(self) -> OutputHandler:
        """Return an output callback for the guest's thread that forwards to the event loop."""
        loop = asyncio.get_running_loop()

        def forward(said: GuestOutput) -> None:
            # An abandoned guest may print after the loop is closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._on_output, said)

        return forward

    async def _in_process(self, call: ToolCall) -> Outcome:
        workers, compiled = self._pool.workers, self._compiled
        worker = await workers.take(compiled.digest)
        job = GuestJob(
            spec=self._module.spec,
            limits=self._module.limits,
            code_bytes=len(compiled.code),
            is_component=compiled.is_component,
            call=call,
            grant=self._module.wasi,
        )
        try:
            done = await Assignment(worker, None, GuestConversation(), self._on_output).run(job, compiled.code)
        except BaseException:
            await worker.close()
            raise
        await workers.give_back(compiled.digest, worker)
        ended = done.ended or ProgramEnded()
        self._pool.meter.guest_ended("ok" if ended.stop is None else ended.stop.code, ended.cpu_s)
        return outcome_of(done)

    def _described(self) -> str:
        """Return the tools as JSON: from the file beside the module, else from the guest's `describe`.

        Raises: ConfigError.
        """
        file = Path(self._module.schema or f"{self._module.path}.json").expanduser()
        if self._module.schema or file.is_file():
            try:
                return file.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise _wrong(self._module, f"cannot read its schemas: {error}") from None
        try:
            text = _in_guest_thread(partial(describe, self._code, self._module.spec, Control(self._module.limits)))
        except GuestStopped as stopped:
            more = f" ({file.name} beside it would say what they are)" if stopped.stop.code == "link" else ""
            message = f"was stopped while it described its tools{more}: {stopped.stop.message}"
            raise _wrong(self._module, message) from None
        if text is None:
            raise _wrong(self._module, f"has neither `describe` nor the file {file.name} beside it")
        return text


def _read_specs(text: str, module: GuestModule) -> list[ToolSpec]:
    """Read a JSON array of tools, nested or flat.

    Raises: ConfigError.
    """
    try:
        value = read_json(text[:SCHEMA_BYTES_MAX])
    except BadJson as error:
        raise _wrong(module, f"describes its tools in something that is not JSON: {error}") from None
    tools: Any = cast("dict[str, Any]", value).get("tools") if isinstance(value, dict) else value
    if not isinstance(tools, list) or not tools:
        raise _wrong(module, "describes no tools: expected a JSON array of them")
    specs: dict[str, ToolSpec] = {}
    for each in cast("list[Any]", tools):
        spec = read_tool(json.dumps(each).encode(), specs)
        if isinstance(spec, RegistrationRefusal):
            raise _wrong(module, f"describes a tool that cannot be one: {spec.message}")
        specs[spec.name] = spec
    return list(specs.values())


def _value(text: str) -> object:
    """Return the value of a tool's JSON output; other output stays text."""
    try:
        return read_json(text)
    except BadJson:
        return text


def _error(outcome: Outcome) -> ToolError:
    message = outcome.summary or outcome.text
    return ToolTimeout(message) if outcome.rc == "timeout" else ToolFailed(message, code=None)


def _wrong(module: GuestModule, message: str) -> ConfigError:
    return ConfigError(f"the guest {module.name!r} ({module.path}) {message}", param="guest")


def _in_guest_thread(work: Callable[[], T]) -> T:
    """Run a guest to its end in a new thread and wait; safe from any thread, even before an event loop runs."""
    results: list[T] = []
    errors: list[GuestStopped] = []

    def run() -> None:
        try:
            results.append(work())
        except GuestStopped as stopped:
            errors.append(stopped)

    before = threading.stack_size(THREAD_STACK_BYTES)
    try:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
