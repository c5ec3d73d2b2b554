"""Runs one tool call: finds the tool, validates the arguments, runs it within its policy, returns an Outcome.

A tool's exceptions never reach the engine; only cancellation does. Whether a call may run at all (approval, limits of
the run) is decided before.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from types import CoroutineType
from typing import Any, get_args

import msgspec

from treadle.core.errors import OutputTooLarge, ToolError, ToolFailed, ToolTimeout, TreadleError, UnknownTool
from treadle.core.items import CallItem
from treadle.core.json import cut_text, write_json
from treadle.core.shared_ports import Clock
from treadle.core.tool_definitions import (
    RC,
    CallContext,
    Outcome,
    failure,
    is_person_only,
    listed_names,
    refuse_person_only,
)
from treadle.tools.argument_validation import check_arguments, read_arguments
from treadle.tools.call_rates import CallRates
from treadle.tools.function_tools import Bound, Style, Tool
from treadle.tools.result_rendering import (
    PLAIN,
    ToolAnswer,
    answer_of,
    answer_of_error,
    cut_object,
    cut_output,
    parts_with,
    with_warnings,
    write_summary,
    write_text,
)
from treadle.tools.thread_pool import LATE, PoolEnded, Threads
from treadle.tools.tool_context import UNSEEN, ToolContext
from treadle.tools.tool_registry import ToolRegistry

MESSAGE_BYTES_MAX = 1_000
CANCEL_GRACE_S = 0.5
"""How long a cancelled async tool may clean up before the runner stops waiting for it."""
RETRY_PAUSE_S = 0.1
_COROUTINES = frozenset({CoroutineType})
"""The type that nearly all async functions return; checked before the slower isawaitable()."""
_RETRIED_EFFECTS = ("read", "idempotent")
_CODES = frozenset(get_args(RC)) - {"ok"}

Keep = Callable[[bytes, CallContext], Awaitable[str | None]]
Report = Callable[[CallContext, str], None]


class RunnerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits that no tool's policy can exceed."""

    arguments_bytes_max: int = 262_144
    output_bytes_max: int = 65_536
    stored_bytes_max: int = 1_048_576
    threads_max: int = 32


class ToolRunner:
    """Runs calls of registered tools; implements the engine's Toolbox port.

    Sync tools run in threads. A thread cannot be killed: after a timeout or a cancel its result is dropped and
    its context is `cancelled`, but it stays busy until the function returns. The number of threads is bounded, so the
    worst that hanging tools can do is to make later sync tools time out while they wait for a thread.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        clock: Clock,
        limits: RunnerLimits | None = None,
        keep: Keep | None = None,
        report: Report | None = None,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._limits = limits or RunnerLimits()
        self._keep = keep
        self._report = report
        self._threads = Threads(self._limits.threads_max)
        self._abandoned: set[asyncio.Task[PoolEnded]] = set()
        self._rates = CallRates()

    async def run(self, call: CallItem, context: CallContext) -> Outcome:
        """Validate and run one call. Every failure of the tool is an Outcome; only cancellation is raised."""
        began = self._clock.monotonic()
        tool = self._registry.get(call.name)
        if tool is None:
            outcome = await self._unknown_tool(call, context)
            return msgspec.structs.replace(outcome, duration_s=self._clock.monotonic() - began)
        if context.sandbox and context.sandbox > tool.sandbox:
            return _refuse_weaker_sandbox(tool, context.sandbox)
        policy = tool.declared.policy
        bytes_max = min(policy.output_bytes_max, self._limits.output_bytes_max)
        tool_context = self._context_for(call, context, bytes_max) if tool.takes_context else UNSEEN
        try:
            arguments = read_arguments(call.arguments, self._limits.arguments_bytes_max)
            if not tool.validator.fits_now(arguments, len(call.arguments)):
                await check_arguments(tool.validator, tool.name, arguments, self._threads)
            if policy.rate_per_min:
                self._rates.take(tool.name, policy.rate_per_min, context.key_id, self._clock.monotonic())
            if policy.retries and policy.effect in _RETRIED_EFFECTS:
                answer = await self._attempts(tool, arguments, tool_context)
            else:
                answer = await self._call(tool, arguments, tool_context, policy.timeout_s)
            if answer.parts:
                self._check_parts(answer)
            rc = "ok" if answer.envelope.ok else "failed"
        except ToolError as error:
            answer, rc = answer_of_error(error), _rc(error)
        finally:
            tool_context.cancel()
        if warnings := tool_context.warnings:
            answer = with_warnings(answer, warnings)
        try:
            outcome = await self._outcome(answer, rc, tool.style, bytes_max, context)
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            answer = answer_of_error(ToolFailed(f"{tool.name} gave a result that cannot be written: {error}."))
            outcome = await self._outcome(answer, "failed", tool.style, bytes_max, context)
        sandbox = "" if outcome.rc == "invalid_arguments" else tool.sandbox
        return msgspec.structs.replace(outcome, duration_s=self._clock.monotonic() - began, sandbox=sandbox)

    def close(self) -> None:
        """End the threads once they are idle."""
        self._threads.close()

    def _context_for(self, call: CallItem, context: CallContext, bytes_max: int) -> ToolContext:
        """Build the context that the tool receives."""
        report = self._report
        return ToolContext(
            run_id=context.run_id,
            session_id=context.session_id,
            call_id=call.call_id,
            output_bytes_max=bytes_max,
            report=None if report is None else partial(_report_progress, asyncio.get_running_loop(), report, context),
        )

    async def _unknown_tool(self, call: CallItem, context: CallContext) -> Outcome:
        """Return the outcome of a call to a tool that is not registered or that no model may call."""
        if is_person_only(call.name):
            return refuse_person_only(call.name)
        answer = answer_of_error(self._unknown(call.name))
        return await self._outcome(answer, "unknown_tool", "plain", self._limits.output_bytes_max, context)

    async def _attempts(self, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> ToolAnswer:
        """Retry until the tool succeeds, fails permanently, or the deadline of all attempts together has passed."""
        policy = tool.policy
        deadline = self._clock.monotonic() + policy.timeout_s
        for attempt in range(policy.retries + 1):
            try:
                return await self._call(tool, arguments, context, deadline - self._clock.monotonic())
            except ToolFailed:
                pause = RETRY_PAUSE_S * 2**attempt
                if attempt == policy.retries or self._clock.monotonic() + pause >= deadline:
                    raise
                await self._clock.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def _call(self, tool: Tool, arguments: dict[str, Any], context: ToolContext, timeout_s: float) -> ToolAnswer:
        """Convert the arguments, call the tool's code and normalize its result; every exception becomes a ToolError."""
        try:
            bound = tool.bind(arguments, context)
            if tool.is_async:
                ended = await self._in_task(tool, bound, timeout_s)
            else:
                began = self._clock.monotonic()
                ended = await self._threads.run(bound, timeout_s)
                if ended is LATE:
                    raise _timeout_of(tool)
                if type(ended.value) not in PLAIN and inspect.isawaitable(given := ended.value):
                    # A sync function may return an awaitable; it gets what is left of the timeout.
                    left_s = timeout_s - (self._clock.monotonic() - began)
                    ended = await self._in_task(tool, lambda: given, left_s)
            if ended.raised is not None:
                raise _tool_error(ended.raised)
            return answer_of(ended.value)
        except (ToolError, asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:
            # A tool is foreign code: whatever it raises, SystemExit too, is the result of the call.
            raise _tool_error(error) from error

    async def _in_task(self, tool: Tool, bound: Bound, timeout_s: float) -> PoolEnded:
        """Run a coroutine in a task; a task that ignores its cancellation is abandoned, not awaited."""
        loop = asyncio.get_running_loop()
        done_or_late: asyncio.Future[None] = loop.create_future()
        task = loop.create_task(_run_bound(bound, done_or_late))
        # A task cancelled before its first step never runs its `finally`, so it needs a callback as well.
        task.add_done_callback(partial(_wake, done_or_late))
        timer = loop.call_later(timeout_s, _wake, done_or_late)
        try:
            await done_or_late
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        finally:
            timer.cancel()
        if not task.done():
            await self._stop(task)
            raise _timeout_of(tool)
        if task.cancelled():
            what = "was cancelled by other code" if task.cancelling() else "cancelled itself"
            raise ToolFailed(f"{tool.name} {what}.")
        return task.result()

    async def _stop(self, task: asyncio.Task[PoolEnded]) -> None:
        task.cancel()
        task.add_done_callback(_retrieve_exception)
        if not await _ends_within(task, CANCEL_GRACE_S):
            self._abandoned.add(task)
            task.add_done_callback(self._abandoned.discard)

    async def _outcome(
        self, answer: ToolAnswer, rc: str, style: Style, bytes_max: int, context: CallContext
    ) -> Outcome:
        text = write_text(answer, style)
        size = len(text.encode())
        shown, handle = text, None
        if size > bytes_max:
            stored = cut_text(text, self._limits.stored_bytes_max).encode()
            handle = await self._store_output(stored, context)
            if style == "s3":
                shown = cut_object(text, bytes_max, handle=handle)
            else:
                shown = cut_output(text, bytes_max, kept_bytes=len(stored), handle=handle)
        return Outcome(
            text=shown,
            rc=rc,
            summary=write_summary(answer, text),
            envelope=answer.envelope,
            parts=parts_with(answer.parts, shown) if answer.parts else (),
            output_bytes=size,
            truncated=size > bytes_max or answer.is_cut,
            handle=handle,
        )

    def _check_parts(self, answer: ToolAnswer) -> None:
        size = len(write_json(answer.parts))
        if size > self._limits.stored_bytes_max:
            raise OutputTooLarge(
                f"The tool returned {size} bytes of content parts; {self._limits.stored_bytes_max} are kept."
            )

    async def _store_output(self, whole: bytes, context: CallContext) -> str | None:
        if self._keep is None:
            return None
        try:
            return await self._keep(whole, context)
        except TreadleError:
            # The model still gets the part that fits; the notice states that the rest was not stored.
            return None

    def _unknown(self, name: str) -> UnknownTool:
        name = cut_text(name, 128)
        names = [each.name for each in self._registry.tools()]
        hint = f"There are: {listed_names(name, names)}." if names else "There are no tools."
        return UnknownTool(f'There is no tool "{name}". {hint}')


def _report_progress(loop: asyncio.AbstractEventLoop, report: Report, context: CallContext, text: str) -> None:
    """Pass progress to the event loop; a sync tool reports from its own thread."""
    # A thread may outlive its loop; the report is dropped then.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(report, context, text)


async def _run_bound(bound: Bound, done_or_late: "asyncio.Future[None]") -> PoolEnded:
    """Call a tool's code, await its result, and return the outcome as a value, as the thread pool does."""
    try:
        result = bound()
        is_usual = type(result) in _COROUTINES
        return PoolEnded(value=await result if is_usual or inspect.isawaitable(result) else result)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - a tool is foreign code, and the runner reports every failure
        return PoolEnded(raised=error)
    finally:
        _wake(done_or_late)


def _wake(done_or_late: "asyncio.Future[None]", _: object = None) -> None:
    if not done_or_late.done():
        done_or_late.set_result(None)


async def _ends_within(task: asyncio.Task[PoolEnded], seconds: float) -> bool:
    """Wait for a task up to a time limit, without cancelling it; return whether it has ended."""
    loop = asyncio.get_running_loop()
    done_or_late: asyncio.Future[None] = loop.create_future()
    wake = partial(_wake, done_or_late)
    task.add_done_callback(wake)
    timer = loop.call_later(seconds, wake)
    try:
        await done_or_late
    finally:
        timer.cancel()
        task.remove_done_callback(wake)
    return task.done()


def _refuse_weaker_sandbox(tool: Tool, level: str) -> Outcome:
    """Return the outcome of a call that was approved for a stronger sandbox than this process has."""
    words = f"Not run: it was allowed to run at sandbox {level}, and this process has {tool.sandbox}. Call it again."
    return failure("denied", words)


def _timeout_of(tool: Tool) -> ToolTimeout:
    return ToolTimeout(f"{tool.name} did not finish within {tool.policy.timeout_s:g} s.")


def _rc(error: ToolError) -> str:
    """Return a known result code. A tool's own codes appear in the text only, so that metric labels stay bounded."""
    code = error.info.code
    if code in _CODES:
        return code
    return error.code if error.code in _CODES else "failed"


def _tool_error(error: BaseException) -> ToolError:
    if isinstance(error, ToolError):
        return error
    return ToolFailed(cut_text(f"{type(error).__name__}: {_message_of(error)}".rstrip(": "), MESSAGE_BYTES_MAX))


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception whose own text fails is still only a failed tool
        return ""


def _retrieve_exception(task: asyncio.Task[PoolEnded]) -> None:
    """Retrieve an abandoned task's exception, so that asyncio does not log it as never retrieved."""
    if not task.cancelled():
        task.exception()
