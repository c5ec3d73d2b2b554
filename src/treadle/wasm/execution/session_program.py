"""Runs one session guest from start to end, in the calling thread."""

import time
from typing import TYPE_CHECKING

import msgspec

from treadle.wasm.cchat_host_calls import CchatHost
from treadle.wasm.engine.guest_instance import Control, GuestSandbox, Signature
from treadle.wasm.engine.guest_limits import GuestStopped, Stop
from treadle.wasm.engine.wasi_grants import WasiAccess, WasiGrant
from treadle.wasm.engine.wasmtime_engine import EngineSpec
from treadle.wasm.execution.thread_messages import Line

if TYPE_CHECKING:
    from wasmtime import Func, Module

_NOTHING: tuple[str, ...] = ()
_ENTRIES = (
    ("run", ((_NOTHING, ("i32",)), (_NOTHING, _NOTHING))),
    ("_start", ((_NOTHING, _NOTHING),)),
    ("main", ((_NOTHING, ("i32",)), (("i32", "i32"), ("i32",)))),
)
"""The entry point: the first of these exports with one of its signatures."""


class ProgramEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a guest ended, and its resource use. `stop` is set if it did not end by itself."""

    exit_code: int | None = None
    stop: Stop | None = None
    run_ids: tuple[str, ...] = ()
    cpu_s: float = 0.0
    wall_s: float = 0.0
    host_calls: int = 0


class ProgramStart(msgspec.Struct, frozen=True, kw_only=True):
    """A guest's inputs other than its code."""

    model: str = ""
    stdin: bytes = b""


def run_program(
    module: "Module",
    spec: EngineSpec,
    control: Control,
    line: Line,
    start: ProgramStart,
    grant: WasiGrant | None = None,
) -> ProgramEnded:
    """Run the guest; its errors are in the result. A grant requires a separate process."""
    began = time.monotonic()
    sandbox = GuestSandbox(module, spec, control)
    host = CchatHost(sandbox, line, model=start.model, stdin=start.stdin)
    exit_code: int | None = None
    stop: Stop | None = None
    try:
        access = None if grant is None else WasiAccess(grant, host.print, start.stdin)
        sandbox.start(host.imports(), host.stub, access)
        exit_code = _run(sandbox)
    except GuestStopped as stopped:
        stop = stopped.stop
    finally:
        sandbox.close()
    if stop is not None and stop.code == "exit" and not host.is_in_tool:
        exit_code, stop = stop.exit_code, None
    return ProgramEnded(
        exit_code=exit_code,
        stop=stop,
        cpu_s=round(control.cpu_s, 6),
        wall_s=round(time.monotonic() - began, 6),
        host_calls=host.host_calls,
    )


def _run(sandbox: GuestSandbox) -> int:
    """Call the guest's entry point.

    Raises: GuestStopped.
    """
    initialize = sandbox.function("_initialize", (_NOTHING, _NOTHING))
    if initialize is not None:
        sandbox.do(initialize)
    entry = find_entry(sandbox)
    if entry is None:
        sandbox.control.end("invalid", "The guest exports no `run`, `_start` or `main` that can be called.")
        raise GuestStopped(sandbox.control.stop or _INVALID)
    function, (parameters, results) = entry
    arguments = [0] * len(parameters)
    if results:
        return sandbox.call(function, *arguments)
    sandbox.do(function, *arguments)
    return 0


def find_entry(sandbox: GuestSandbox) -> "tuple[Func, Signature] | None":
    """Return the guest's entry point and its signature."""
    for name, signatures in _ENTRIES:
        for signature in signatures:
            found = sandbox.function(name, signature)
            if found is not None:
                return found, signature
    return None


_INVALID = Stop(code="invalid", message="The guest cannot be run.")
