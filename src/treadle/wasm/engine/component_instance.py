"""One instance of a component tool: exports `describe` and `call` with strings, imports only `log`.

The WIT world is include/treadle_tool.wit. A component is never re-entered.
"""

import threading
from collections.abc import Callable
from typing import Any

from treadle.wasm.engine.guest_instance import Control
from treadle.wasm.engine.guest_limits import GuestStopped, StopCode
from treadle.wasm.engine.wasi_grants import WasiAccess
from treadle.wasm.engine.wasmtime_bindings import HOST_FAULTS, watch
from treadle.wasm.engine.wasmtime_engine import EngineSpec, engine_of, load_wasmtime, ticking

LOG_INTERFACES = ("treadle:tool/host", "treadle:tool/host@1.0.0")
INSTANCES_MAX = 64
TABLES_MAX = 64
MEMORIES_MAX = 4
_LEVEL = 2

Log = Callable[[int, str], None]


class ComponentBox:
    """One component within its limits; use it only in the thread that created it. It has WASI only with `access`."""

    def __init__(
        self, component: Any, spec: EngineSpec, control: Control, log: Log, access: WasiAccess | None = None
    ) -> None:
        self._wasmtime = load_wasmtime()
        self._owner = threading.get_ident()
        self.control = control
        self._store = self._wasmtime.Store(engine_of(spec.of(is_component=True)))
        limits = control.limits
        self._store.set_limits(
            memory_size=limits.memory_bytes_max,
            table_elements=limits.table_elements_max * 10,
            instances=INSTANCES_MAX,
            tables=TABLES_MAX,
            memories=MEMORIES_MAX,
        )
        self._kept = watch(self._store, control.must_stop)
        self._instance = self._enter(lambda: self._link(log, access).instantiate(self._store, component))

    def call(self, name: str, *arguments: str) -> Any:
        """Call an exported function.

        Raises: GuestStopped.
        """
        function = self._instance.get_func(self._store, name)
        if function is None:
            self.control.end("invalid", f"The component exports no `{name}`.")
            raise GuestStopped(self.control.stop)  # pyright: ignore[reportArgumentType]

        def work() -> Any:
            value = function(self._store, *arguments)
            function.post_return(self._store)
            return value

        return self._enter(work)

    def call_tool(self, name: str, arguments: str) -> tuple[bool, str]:
        """Run a tool; return whether it succeeded, and its text.

        Raises: GuestStopped.
        """
        value = self.call("call", name, arguments)
        # wasmtime returns a result<string, string>, whose two types are equal, as a tagged Variant.
        tag, payload = getattr(value, "tag", "ok"), getattr(value, "payload", value)
        return tag == "ok", str(payload)

    def close(self) -> None:
        """Discard the instance."""
        self._store.close()

    def _link(self, log: Log, access: WasiAccess | None) -> Any:
        from wasmtime.component import Linker

        linker = Linker(self._store.engine)
        if access is not None:
            access.attach(self._store)
            linker.add_wasip2()

        def logged(_store: Any, *arguments: Any) -> None:
            try:
                log(_LEVEL, str(arguments[-1]))
            except HOST_FAULTS:
                self.control.end("crash", "A host function failed; this is a bug of Treadle.")

        with linker.root() as root:
            for interface in LOG_INTERFACES:
                with root.add_instance(interface) as instance:
                    instance.add_func("log", logged)
        return linker

    def _enter(self, work: Callable[[], Any]) -> Any:
        assert self._owner == threading.get_ident(), "a guest is called by the thread that made it"
        is_outer = self.control.enter()
        try:
            with ticking():
                self._store.set_epoch_deadline(1)
                value = work()
        except (self._wasmtime.Trap, self._wasmtime.WasmtimeError, TypeError) as error:
            words = [line.strip() for line in str(error).splitlines() if line.strip()]
            code: StopCode = "link" if "import" in str(error) and "not found" in str(error) else "trap"
            # wasmtime's message names a trap on its last line, but a missing import on its first.
            reason = (words[0] if code == "link" else words[-1]) if words else type(error).__name__
            self.control.end(code, f"The guest stopped: {reason}.")
            raise GuestStopped(self.control.stop) from None  # pyright: ignore[reportArgumentType]
        finally:
            if is_outer:
                self.control.leave()
        if self.control.stop is not None:
            raise GuestStopped(self.control.stop)
        return value
