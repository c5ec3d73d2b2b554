"""One instance of a guest: created, called, stopped and discarded, always in the thread that owns it.

A guest ends in one of three ways: its function returns, it traps, or it is stopped (by its limits, a host function, or
`cancel` from another thread). After the last two it is `GuestStopped` and never called again.
"""

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.wasm.engine.guest_limits import GuestStopped, SandboxLimits, Stop, StopCode
from treadle.wasm.engine.wasi_grants import WasiAccess
from treadle.wasm.engine.wasmtime_bindings import Needed, Signature, call, host_function, needs_of, signature_of, watch
from treadle.wasm.engine.wasmtime_engine import EngineSpec, engine_of, load_wasmtime, ticking

if TYPE_CHECKING:
    from wasmtime import Func, Module, Store, Table

TABLES_MAX = 4
MESSAGE_CHARS_MAX = 400
U32 = 0xFFFFFFFF

HostFunction = Callable[..., int]


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """A host function: its signature and its implementation."""

    signature: Signature
    function: HostFunction


Imports = Mapping[tuple[str, str], Import]
Stub = Callable[[str, str], HostFunction | None]


class Control:
    """Stops one guest. Any thread may request the stop; the guest's own thread checks for it at each tick."""

    def __init__(self, limits: SandboxLimits) -> None:
        self.limits = limits
        self.stop: Stop | None = None
        self.cpu_s = 0.0
        self.deadline = time.monotonic() + limits.wall_s
        self._entered_cpu: float | None = None
        self._on_cancel: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def used_cpu_s(self) -> float:
        """Return the CPU time used so far. Call it in the guest's own thread."""
        return self.cpu_s if self._entered_cpu is None else self.cpu_s + time.thread_time() - self._entered_cpu

    def end(self, code: StopCode, message: str, exit_code: int | None = None) -> None:
        """Stop the guest; only the first reason is recorded."""
        with self._lock:
            if self.stop is None:
                self.stop = Stop(code=code, message=message[:MESSAGE_CHARS_MAX], exit_code=exit_code)

    def cancel(self, message: str = "The guest was cancelled.") -> None:
        """Stop the guest from another thread, even while it waits."""
        self.end("cancelled", message)
        with self._lock:
            hooks = tuple(self._on_cancel)
        for hook in hooks:
            hook()

    def on_cancel(self, hook: Callable[[], None]) -> None:
        """Register a function to call on cancellation."""
        with self._lock:
            self._on_cancel.append(hook)
            is_late = self.stop is not None and self.stop.code == "cancelled"
        if is_late:
            hook()

    def must_stop(self) -> bool:
        """Return, at a tick, whether the guest must stop."""
        if self.stop is None:
            if self.used_cpu_s > self.limits.cpu_s:
                self.end("timeout", f"The guest used more than {self.limits.cpu_s:g} s of CPU.")
            elif time.monotonic() > self.deadline:
                self.end("timeout", f"The guest took longer than {self.limits.wall_s:g} s.")
        return self.stop is not None

    def enter(self) -> bool:
        """Start counting CPU time; False for a nested call, when it is already counted."""
        if self._entered_cpu is not None:
            return False
        self._entered_cpu = time.thread_time()
        return True

    def leave(self) -> None:
        """Stop counting CPU time."""
        self.cpu_s, self._entered_cpu = self.used_cpu_s, None


class GuestSandbox:
    """One instance within its limits. Call its methods only in the thread that created it."""

    def __init__(self, module: "Module", spec: EngineSpec, control: Control) -> None:
        _refuse_event_loop()
        wasmtime = load_wasmtime()
        self.control = control
        self._wasmtime = wasmtime
        self._module = module
        self._owner = threading.get_ident()
        self._references: list[object] = []
        self._store: Store = wasmtime.Store(engine_of(spec))
        self._exports: dict[str, Any] = {}
        limits = control.limits
        self._store.set_limits(
            memory_size=limits.memory_bytes_max,
            table_elements=limits.table_elements_max,
            instances=1,
            tables=TABLES_MAX,
            memories=1,
        )
        self._references.append(watch(self._store, control.must_stop))

    def start(self, imports: Imports, stub: Stub, access: WasiAccess | None = None) -> None:
        """Link and instantiate; the module's start function runs within the limits. `access` is the WASI grant.

        Raises: GuestStopped.
        """
        if access is not None:
            self._attach(access)
        externs = [self._link(each, imports, stub, access) for each in needs_of(self._module)]
        instance: Any = self._enter(lambda: self._wasmtime.Instance(self._store, self._module, externs))
        self._exports = dict(instance.exports(self._store))
        if not isinstance(self._exports.get("memory"), self._wasmtime.Memory):
            raise self._ended("invalid", "The guest exports no memory named `memory`.")

    def close(self) -> None:
        """Discard the instance."""
        self._exports = {}
        self._store.close()
        self._references.clear()

    def function(self, name: str, signature: Signature) -> "Func | None":
        """Return an exported function, if it exists and has that signature."""
        found = self._exports.get(name)
        return found if self.fits(found, signature) else None

    def fits(self, value: Any, signature: Signature) -> bool:
        """Return whether a value is a function of that signature."""
        return isinstance(value, self._wasmtime.Func) and signature_of(value.type(self._store)) == signature

    def table(self, names: tuple[str, ...]) -> "Table | None":
        """Return a table of functions: the first of these names, else the first exported."""
        ordered = [self._exports.get(name) for name in names] + list(self._exports.values())
        return next((each for each in ordered if self._is_function_table(each)), None)

    def slot(self, table: "Table", index: int) -> "Func | None":
        """Return the function in a slot of a table; None for an empty or missing slot."""
        if not 0 <= index < table.size(self._store):
            return None
        found = table.get(self._store, index)
        return found if isinstance(found, self._wasmtime.Func) else None

    def call(self, function: "Func", *arguments: int) -> int:
        """Call a function of the guest that returns an integer.

        Raises: GuestStopped, when it did not return by itself.
        """
        return self._enter(lambda: call(self._store, function, arguments, has_result=True))

    def do(self, function: "Func", *arguments: int) -> None:
        """Call a function of the guest that returns nothing.

        Raises: GuestStopped, when it did not return by itself.
        """
        self._enter(lambda: call(self._store, function, arguments, has_result=False))

    def read(self, pointer: int, length: int) -> bytes | None:
        """Return bytes of the guest's memory; None if the range is not entirely within it."""
        start = self._range(pointer, length)
        return None if start is None else ctypes.string_at(start, length & U32)

    def write(self, pointer: int, data: bytes) -> bool:
        """Write bytes into the guest's memory; False, with nothing written, if they do not fit."""
        start = self._range(pointer, len(data))
        if start is None:
            return False
        ctypes.memmove(start, data, len(data))
        return True

    def read_u32(self, pointer: int) -> int | None:
        """Read a 32-bit number from the guest's memory."""
        raw = self.read(pointer, 4)
        return None if raw is None else int.from_bytes(raw, "little")

    def write_u32(self, pointer: int, value: int) -> bool:
        """Write a 32-bit number into the guest's memory."""
        return self.write(pointer, value.to_bytes(4, "little"))

    def _range(self, pointer: int, length: int) -> int | None:
        """Return the address of a range; pointers and lengths arrive signed and are read as unsigned."""
        memory = self._exports.get("memory")
        if memory is None:
            return None
        pointer, length = pointer & U32, length & U32
        if pointer + length > memory.data_len(self._store):
            return None
        address = ctypes.cast(memory.data_ptr(self._store), ctypes.c_void_p).value or 0
        return address + pointer

    def _is_function_table(self, value: Any) -> bool:
        return isinstance(value, self._wasmtime.Table) and str(value.type(self._store).element) == "funcref"

    def _attach(self, access: WasiAccess) -> None:
        try:
            access.attach(self._store)
        except self._wasmtime.WasmtimeError:
            raise self._ended("link", "A folder that was granted to the guest cannot be opened.") from None

    def _link(self, needed: Needed, imports: Imports, stub: Stub, access: WasiAccess | None) -> "Func":
        """Create the host function for one import, or return the engine's own.

        Raises: GuestStopped.
        """
        name = f"{needed.module}.{needed.name}"
        if needed.signature is None:
            raise self._ended("link", f"The guest imports {name}, which is not a function.")
        granted = None if access is None else access.extern(self._store, needed.module, needed.name)
        if granted is not None:
            if signature_of(granted.type(self._store)) != needed.signature:
                raise self._ended("link", f"The guest imports {name} with other types than it has.")
            return granted
        offered = imports.get((needed.module, needed.name))
        function = stub(needed.module, needed.name) if offered is None else offered.function
        if function is None:
            raise self._ended("link", f"The guest imports {name}, which is not there.")
        if offered is not None and offered.signature != needed.signature:
            raise self._ended("link", f"The guest imports {name} with other types than it has.")
        made, reference = host_function(self._store, needed, function, ends=self._host_returned)
        self._references.append(reference)
        return made

    def _host_returned(self, raised: BaseException | None) -> bool:
        if raised is not None:
            self.control.end("crash", "A host function failed; this is a bug of Treadle.")
        return self.control.stop is not None

    def _enter(self, work: Callable[[], Any]) -> Any:
        assert self._owner == threading.get_ident(), "a guest is called by the thread that made it"
        if self.control.must_stop():
            raise GuestStopped(self.control.stop or _NO_REASON)
        is_outer = self.control.enter()
        try:
            with ticking():
                self._store.set_epoch_deadline(1)
                value = work()
        except (self._wasmtime.Trap, self._wasmtime.WasmtimeError) as error:
            self._record_trap(error)
            raise GuestStopped(self.control.stop or _NO_REASON) from None
        finally:
            if is_outer:
                self.control.leave()
        if self.control.stop is not None:
            raise GuestStopped(self.control.stop)
        return value

    def _record_trap(self, error: Exception) -> None:
        """Record the trap as the reason, unless the guest was stopped and the trap is only the means."""
        words = str(error).strip()
        first = words.splitlines()[-1].strip() if words else type(error).__name__
        is_too_big = "exceed" in words and ("memory" in words or "table" in words)
        code: StopCode = "memory" if is_too_big and not isinstance(error, self._wasmtime.Trap) else "trap"
        trap_code = getattr(error, "trap_code", None)
        self.control.end(code, f"The guest stopped: {trap_code.name.lower() if trap_code else first}.")

    def _ended(self, code: StopCode, message: str) -> GuestStopped:
        self.control.end(code, message)
        return GuestStopped(self.control.stop or _NO_REASON)


_NO_REASON = Stop(code="trap", message="The guest stopped.")


def _refuse_event_loop() -> None:
    """Refuse to run on an event loop's thread: a guest blocks while a model answers, so both would deadlock."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise AssertionError("a guest never runs on the thread of an event loop")
