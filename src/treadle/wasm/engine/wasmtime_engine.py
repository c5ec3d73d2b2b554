"""Imports wasmtime on first use; holds one engine for each compile setting, and the clock that interrupts guests.

The clock ticks only while a guest is running. Every guest checks at each tick whether it must stop, so stopping one
does not affect the others.
"""

import contextlib
import hashlib
import importlib
import threading
from collections.abc import Generator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.core.errors import ConfigError
from treadle.wasm.engine.guest_limits import EngineMode

if TYPE_CHECKING:
    from wasmtime import Engine

TICK_S = 0.01
STACK_BYTES = 524_288
THREAD_STACK_BYTES = 8_388_608
"""Far larger than a guest's own stack: if the thread's stack ended first, a deep recursion would kill the process."""
_VERSION_WANTED = "50."


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an engine; guests with different settings do not share compiled code."""

    mode: EngineMode = "safe"
    memory_bytes_max: int = 67_108_864
    is_component: bool = False

    def of(self, *, is_component: bool) -> "EngineSpec":
        """Return the same settings for a component or for a core module."""
        return self if is_component == self.is_component else msgspec.structs.replace(self, is_component=is_component)

    @property
    def digest(self) -> str:
        """Return a digest of the settings."""
        return hashlib.sha256(msgspec.json.encode((self, STACK_BYTES))).hexdigest()[:16]


def load_wasmtime() -> Any:
    """Return the wasmtime package.

    Raises: ConfigError, naming the extra to install.
    """
    global _loaded
    if _loaded is None:
        _loaded = _load()
    return _loaded


_loaded: Any = None
"""Cached: looking up the package's version takes longer than calling a guest."""


def _load() -> Any:
    try:
        wasmtime = importlib.import_module("wasmtime")
    except ImportError as error:
        raise ConfigError(
            f"WASM guests need wasmtime, which is not installed ({error})",
            code="wasm_not_installed",
            hint="pip install 'treadle[wasm]'",
        ) from None
    if not version("wasmtime").startswith(_VERSION_WANTED):
        raise ConfigError(
            f"WASM guests need wasmtime {_VERSION_WANTED}x, not {version('wasmtime')}",
            code="wasm_not_installed",
            hint="pip install 'treadle[wasm]'",
        )
    return wasmtime


class _EpochTicker:
    """Advances the epoch of every engine while at least one guest runs."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._engines: list[Engine] = []
        self._running = 0
        self._thread: threading.Thread | None = None

    def add(self, engine: "Engine") -> None:
        """Add an engine to the clock."""
        with self._changed:
            self._engines.append(engine)

    @contextlib.contextmanager
    def ticking(self) -> Generator[None]:
        """Run the clock."""
        with self._changed:
            self._running += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._tick, name="treadle-guest-clock", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1

    def _tick(self) -> None:
        pause = threading.Event()
        while True:
            with self._changed:
                while not self._running:
                    self._changed.wait()
                engines = tuple(self._engines)
            for engine in engines:
                engine.increment_epoch()
            pause.wait(TICK_S)


_clock = _EpochTicker()
_engines: dict[EngineSpec, "Engine"] = {}
_lock = threading.Lock()


def ticking() -> contextlib.AbstractContextManager[None]:
    """Run the clock of all engines while a guest runs."""
    return _clock.ticking()


def engine_of(spec: EngineSpec) -> "Engine":
    """Return the engine of a spec; created on first use and cached.

    Raises: ConfigError.
    """
    wasmtime = load_wasmtime()
    with _lock:
        engine = _engines.get(spec)
        if engine is None:
            engine = wasmtime.Engine(_config(wasmtime, spec))
            _engines[spec] = engine
            _clock.add(engine)
        return engine


_FEATURES_OFF = ("wasm_threads", "wasm_memory64", "shared_memory", "wasm_gc", "gc_support")


def _config(wasmtime: Any, spec: EngineSpec) -> Any:
    config = wasmtime.Config()
    for feature in _FEATURES_OFF:
        setattr(config, feature, False)
    config.wasm_component_model = spec.is_component
    # The engine's glue code between the modules of a component accesses the memory of each.
    config.wasm_multi_memory = spec.is_component
    config.epoch_interruption = True
    config.max_wasm_stack = STACK_BYTES
    config.cranelift_nan_canonicalization = True
    config.signals_based_traps = spec.mode == "fast"
    config.memory_reservation = spec.memory_bytes_max
    config.memory_reservation_for_growth = 0
    config.memory_guard_size = 0
    return config
