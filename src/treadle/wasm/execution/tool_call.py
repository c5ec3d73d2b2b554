"""Runs one call of a tool guest in a fresh instance, for core modules and components."""

from typing import TYPE_CHECKING, Any

import msgspec

from treadle.core.json import cut_text
from treadle.core.tool_definitions import Outcome, failure
from treadle.wasm.engine.component_instance import ComponentBox
from treadle.wasm.engine.guest_instance import Control, GuestSandbox, HostFunction
from treadle.wasm.engine.guest_limits import GuestStopped, Stop
from treadle.wasm.engine.minimal_wasi import MODULES as WASI_MODULES
from treadle.wasm.engine.minimal_wasi import Wasi
from treadle.wasm.engine.wasi_grants import WasiAccess, WasiGrant
from treadle.wasm.engine.wasmtime_engine import EngineSpec
from treadle.wasm.execution.thread_messages import GuestOutput, OutputHandler, Stream
from treadle.wasm.guest_function_call import TOOL_SIGNATURE, Caller

if TYPE_CHECKING:
    from wasmtime import Module

PREFIX = "tool_"
DESCRIBE = "describe"
DESCRIPTION_BYTES_MAX = 1_048_576
_NOTHING: tuple[str, ...] = ()
_STOP_RC = {"timeout": "timeout", "cancelled": "cancelled"}


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call: the tool, its arguments as JSON, and its output limit."""

    name: str
    arguments: str
    output_bytes_max: int = 65_536


def run_tool(
    code: Any,
    spec: EngineSpec,
    control: Control,
    call: ToolCall,
    on_output: OutputHandler,
    grant: WasiGrant | None = None,
) -> Outcome:
    """Run a tool in a fresh instance; a stopped guest gives a failed outcome.

    A grant requires a separate process.
    """
    output = _Output(control, on_output)
    access = None if grant is None else WasiAccess(grant, output.print)
    run = _run_component if _is_component(code) else _run_core
    try:
        return run(code, spec, control, call, output, access)
    except GuestStopped as stopped:
        return _stopped(stopped.stop)


def describe(code: Any, spec: EngineSpec, control: Control) -> str | None:
    """Return the guest's own description of its tools, as JSON; None if it has none.

    Raises: GuestStopped.
    """
    if _is_component(code):
        box = ComponentBox(code, spec, control, lambda _level, _text: None)
        try:
            return box.call(DESCRIBE)
        finally:
            box.close()
    call = ToolCall(name=DESCRIBE, arguments="{}", output_bytes_max=DESCRIPTION_BYTES_MAX)
    sandbox = _open(code, spec, control, _Output(control, lambda _: None))
    try:
        function = sandbox.function(DESCRIBE, TOOL_SIGNATURE)
        if function is None:
            return None
        outcome = Caller(sandbox).call(function, call.arguments, call.output_bytes_max)
    finally:
        sandbox.close()
    return None if outcome.is_error else outcome.text


def tool_names(code: Any) -> list[str]:
    """Return the names of the tools that a core module exports."""
    if _is_component(code):
        return []
    names = [str(export.name) for export in code.exports]
    return [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]


def _run_core(
    module: "Module",
    spec: EngineSpec,
    control: Control,
    call: ToolCall,
    output: "_Output",
    access: WasiAccess | None,
) -> Outcome:
    sandbox = _open(module, spec, control, output, access)
    try:
        function = sandbox.function(PREFIX + call.name, TOOL_SIGNATURE)
        if function is None:
            return failure("failed", f"The guest exports no {PREFIX}{call.name} with the signature of a tool.")
        return Caller(sandbox).call(function, call.arguments, call.output_bytes_max)
    finally:
        sandbox.close()


def _open(
    module: "Module", spec: EngineSpec, control: Control, output: "_Output", access: WasiAccess | None = None
) -> GuestSandbox:
    """Create an instance and initialize its runtime.

    Raises: GuestStopped.
    """
    sandbox = GuestSandbox(module, spec, control)
    wasi = Wasi(sandbox, output)

    def stub(name: str, function: str) -> HostFunction | None:
        return wasi.stub(function) if name in WASI_MODULES else None

    try:
        sandbox.start({}, stub, access)
        initialize = sandbox.function("_initialize", (_NOTHING, _NOTHING))
        if initialize is not None:
            sandbox.do(initialize)
    except GuestStopped:
        sandbox.close()
        raise
    return sandbox


def _run_component(
    code: Any, spec: EngineSpec, control: Control, call: ToolCall, output: "_Output", access: WasiAccess | None
) -> Outcome:
    box = ComponentBox(code, spec, control, output.log, access)
    try:
        ok, text = box.call_tool(call.name, call.arguments)
    finally:
        box.close()
    if not ok:
        return failure("failed", cut_text(text, 512))
    size = len(text.encode("utf-8", "replace"))
    if size > call.output_bytes_max:
        return failure("too_large", f"The output has {size} bytes; at most {call.output_bytes_max} are taken.")
    return Outcome(text=text, output_bytes=size)


class _Output:
    """Forwards a tool guest's output, up to its limit."""

    def __init__(self, control: Control, on_output: OutputHandler) -> None:
        self._control = control
        self._on_output = on_output
        self._bytes = 0

    def print(self, fd: int, data: bytes) -> None:
        """Forward text written to standard output or error."""
        self._emit("stdout" if fd == 1 else "stderr", data.decode("utf-8", "replace"), len(data), 2)

    def log(self, level: int, text: str) -> None:
        """Forward a line of a component's log."""
        self._emit(
            "log", cut_text(text, self._control.limits.log_line_bytes_max), len(text.encode("utf-8", "replace")), level
        )

    def _emit(self, stream: Stream, text: str, size: int, level: int) -> None:
        self._bytes += size
        if self._bytes > self._control.limits.log_bytes_max:
            self._control.end("quota", f"The guest logged more than {self._control.limits.log_bytes_max} bytes.")
            return
        self._on_output(GuestOutput(stream=stream, text=text, level=level))


def _stopped(stop: Stop) -> Outcome:
    return failure(_STOP_RC.get(stop.code, "failed"), f"The tool was stopped ({stop.code}): {stop.message}")


def _is_component(code: Any) -> bool:
    return type(code).__name__ == "Component"
