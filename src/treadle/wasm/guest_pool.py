"""Resources shared by all guests of a process: the compiler, the workers, the limit of live guests, the metrics."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.core.errors import NotFound, RequestError
from treadle.core.shared_ports import Meter, NoMeter
from treadle.core.tool_definitions import Approval, Effect
from treadle.telemetry.run_observer import Tracer
from treadle.wasm.engine.compiler import BadGuest, CompiledModule, Compiler
from treadle.wasm.engine.guest_limits import EngineMode, Isolation, SandboxLimits
from treadle.wasm.engine.wasi_grants import WasiGrant, check_place
from treadle.wasm.engine.wasmtime_engine import EngineSpec, load_wasmtime
from treadle.wasm.execution.process_workers import GuestWorkers

log = logging.getLogger("treadle.wasm")

LIVE_MAX = 256
TOOLS_AT_ONCE = 2 * (os.cpu_count() or 1)
Kind = Literal["session", "tools"]


class GuestModule(msgspec.Struct, frozen=True, kw_only=True):
    """A module as its operator configured it."""

    name: str
    path: str
    kind: Kind = "session"
    isolation: Isolation = "thread"
    engine: EngineMode = "safe"
    limits: SandboxLimits = SandboxLimits()
    model: str = ""
    grants: tuple[str, ...] = ()
    wasi: WasiGrant | None = None
    effect: Effect = "write"
    approval: Approval = "by_effect"
    schema: str = ""

    @property
    def spec(self) -> EngineSpec:
        """Return the engine settings its code is compiled with."""
        return EngineSpec(mode=self.engine, memory_bytes_max=self.limits.memory_bytes_max)


class TooManyGuests(RequestError):
    """The limit of live guests is reached."""

    code = "too_many_guests"
    status = 429
    retryable = True


class GuestPool:
    """Compiles guests and limits how many are alive at once."""

    def __init__(
        self,
        compiler: Compiler,
        *,
        live_max: int = LIVE_MAX,
        meter: Meter | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.compiler = compiler
        self.workers = GuestWorkers()
        self.meter: Meter = meter or NoMeter()
        self.tracer = tracer
        self._live_max = live_max
        self._live = 0

    @property
    def live(self) -> int:
        """Return the number of live guests."""
        return self._live

    @contextlib.contextmanager
    def place(self) -> Generator[None]:
        """Reserve a place for one guest.

        Raises: TooManyGuests.
        """
        if self._live >= self._live_max:
            raise TooManyGuests(f"{self._live_max} guests are alive; try again when one has ended.")
        self._live += 1
        try:
            yield
        finally:
            self._live -= 1

    def prepare(self, module: GuestModule, wasm: bytes | None = None) -> CompiledModule:
        """Compile a module, or return it from the cache. Blocks: call it at startup or in a thread.

        Raises: NotFound, BadGuest, ConfigError.
        """
        load_wasmtime()
        check_place(module.wasi, module.isolation)
        if wasm is None:
            wasm = read_guest(module.path)
        compiled = self.compiler.compile(wasm, module.spec, bytes_max=module.limits.module_bytes_max)
        self.meter.guest_compiled(compiled.seconds, was_cached=compiled.was_cached)
        log.debug("guest compiled", extra={"guest": module.name, "cached": compiled.was_cached})
        return compiled

    async def close(self) -> None:
        """End the worker processes."""
        await self.workers.close()


def read_guest(path: str) -> bytes:
    """Read a guest's file; a `.wat` file is converted to WASM.

    Raises: NotFound, BadGuest.
    """
    file = Path(path).expanduser()
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise NotFound(f"{path}: {error.strerror or error}", param="path") from None
    if file.suffix != ".wat":
        return raw
    wasmtime = load_wasmtime()
    try:
        return bytes(wasmtime.wat2wasm(raw.decode("utf-8", "replace")))
    except wasmtime.WasmtimeError as error:
        raise BadGuest(f"{path}: {error}", param="path") from None


async def off_loop(work: Callable[[], Any]) -> Any:
    """Run blocking work other than a guest in asyncio's thread pool."""
    return await asyncio.to_thread(work)
