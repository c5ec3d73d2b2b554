"""What a process must outlive whatever its guests do: fault handlers, small stacks, threads of an event loop."""

import subprocess
import sys

import pytest

from treadle.core.errors import ConfigError
from treadle.wasm.engine import wasmtime_engine as engine
from treadle.wasm.engine.guest_instance import Control, GuestSandbox
from treadle.wasm.engine.guest_limits import SandboxLimits
from treadle.wasm.engine.wasmtime_engine import EngineSpec, engine_of, load_wasmtime

OUT_OF_BOUNDS = """
import faulthandler, threading
from treadle.wasm.engine.wasmtime_engine import *
from treadle.wasm.engine.guest_instance import Control, GuestSandbox
from treadle.wasm.engine.guest_limits import SandboxLimits, GuestStopped
spec = EngineSpec()
module = load_wasmtime().Module(engine_of(spec), '''%s''')
faulthandler.enable()
def run():
    sandbox = GuestSandbox(module, spec, Control(SandboxLimits()))
    sandbox.start({}, lambda m, n: None)
    try:
        sandbox.call(sandbox.function("run", ((), ("i32",))))
    except GuestStopped as stopped:
        print(stopped.stop.code)
threading.stack_size(THREAD_STACK_BYTES)
thread = threading.Thread(target=run)
thread.start()
thread.join()
print("alive")
"""
GUESTS = {
    "out of bounds": '(module (memory (export "memory") 1) (func (export "run") (result i32) i32.const -4 i32.load))',
    "too deep": '(module (memory (export "memory") 1) (func $f (export "run") (result i32) call $f call $f i32.add))',
}


@pytest.mark.parametrize("name", GUESTS)
def test_a_fault_handler_that_comes_late_does_no_harm(name: str) -> None:
    """Enabled after the engine exists, it would kill the process at the first fault of a guest that uses signals."""
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_BOUNDS % GUESTS[name]], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["trap", "alive"])


async def test_a_guest_never_runs_on_the_thread_of_an_event_loop() -> None:
    """There it would wait for an answer that needs the very same thread."""
    module = load_wasmtime().Module(engine_of(EngineSpec()), GUESTS["too deep"])
    with pytest.raises(AssertionError, match="event loop"):
        GuestSandbox(module, EngineSpec(), Control(SandboxLimits()))


def test_without_wasmtime_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint is the command that helps."""

    def missing(name: str) -> object:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(engine, "_loaded", None)
    monkeypatch.setattr(engine.importlib, "import_module", missing)
    with pytest.raises(ConfigError) as raised:
        load_wasmtime()
    assert raised.value.hint == "pip install 'treadle[wasm]'"


def test_another_version_of_wasmtime_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of its bindings are used that may change."""
    monkeypatch.setattr(engine, "_loaded", None)
    monkeypatch.setattr(engine, "version", lambda _: "49.0.0")
    with pytest.raises(ConfigError, match=r"not 49\.0\.0"):
        load_wasmtime()


def test_the_process_of_a_guest_has_nothing_of_the_gateway_in_it() -> None:
    """No client of upstreams, no store, no tools: it starts quickly, and there is little for a guest to find."""
    code = """import sys, treadle.wasm.execution.worker_process
rooms = ("runs", "upstream", "store", "tools", "config", "runtime", "server")
print([room for room in rooms if f"treadle.{room}" in sys.modules], "aiohttp" in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[] False\n"


def test_nothing_loads_wasmtime_before_it_is_needed() -> None:
    """A gateway without guests starts without it."""
    code = "import sys, treadle.runtime, treadle.cli.commands.wasm_command; sys.exit('wasmtime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
